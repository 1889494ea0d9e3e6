"""Joint trajectories, checked and interpolated, and the tolerances of their goals."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from vdl_ros.arm.geometry import ArmGeometry, Positions
from vdl_ros.arm.joints import JOINTS
from vdl_ros.common.quoting import quoted

# Limit of points; their check takes 0.1 s, in which the controller sends nothing.
_POINTS = 10_000


class TrajectoryError(ValueError):
    """A trajectory that is refused as a whole; the message is one line."""


class JointTrajectory:
    """Timed points with straight lines between them.

    ``joints`` are the indices of the joints that it moves, in the order of ``joints.JOINTS``;
    ``times`` is float64 [N], s; ``points`` is float64 [N, 5], rad, with NaN for other joints.

    Args:
        names: joints, in the order of the columns.
        positions: N points with one value for each name, rad, within the joints' limits.
        times: N times from the start, s, increasing.

    Raises:
        TrajectoryError: arguments that are not so.
    """

    def __init__(
        self, names: Sequence[str], positions: Sequence[Sequence[float]],
        times: Sequence[float], geometry: ArmGeometry,
    ):
        if not names:
            raise TrajectoryError('trajectory: no joint')
        for name in names:
            if name not in JOINTS:
                raise TrajectoryError(
                    f'{quoted(name)}: no such joint; there are {", ".join(JOINTS)}')
            if list(names).count(name) > 1:
                raise TrajectoryError(f'{name}: named twice')
        if not len(positions):
            raise TrajectoryError('trajectory: no point')
        if len(positions) > _POINTS:
            raise TrajectoryError(
                f'trajectory: {len(positions)} points are not allowed: at most {_POINTS}')
        if len(times) != len(positions):
            raise TrajectoryError(f'trajectory: {len(positions)} points but {len(times)} times')
        self.joints = tuple(sorted(JOINTS.index(name) for name in names))
        self.points: Positions = np.full((len(positions), len(JOINTS)), math.nan)
        before = -math.inf
        for row, (point, time) in enumerate(zip(positions, times, strict=True)):
            what = f'point {row}'
            if len(point) != len(names):
                raise TrajectoryError(f'{what}: {len(point)} positions for {len(names)} joints')
            if not math.isfinite(time) or time < 0.0:
                raise TrajectoryError(f'{what}: time {time:g} s is not allowed: at least 0')
            if time <= before:
                raise TrajectoryError(f'{what}: time {time:g} s is not after {before:g} s')
            before = time
            for name, value in zip(names, point, strict=True):
                joint = geometry.joints[name]
                if not math.isfinite(value):
                    raise TrajectoryError(f'{what}: {name}: {value} is not a finite number')
                if not joint.lower - 1e-6 <= value <= joint.upper + 1e-6:
                    raise TrajectoryError(
                        f'{what}: {name}: {value:g} rad is not allowed: '
                        f'from {joint.lower:g} to {joint.upper:g}')
                self.points[row, JOINTS.index(name)] = value
        self.times: Positions = np.array(times, np.float64)

    @property
    def duration(self) -> float:
        return float(self.times[-1])

    def target(self, time: float, start: Positions) -> Positions:
        """Return where the joints should be, float64 [5], rad; NaN for joints it does not move.

        ``time`` is since the start, s, where the joints are at ``start``, float64 [5], rad.
        """
        after = int(np.searchsorted(self.times, time, side='right'))
        if after >= len(self.times):
            return np.array(self.points[-1])
        begun = 0.0 if after == 0 else float(self.times[after - 1])
        here = start if after == 0 else self.points[after - 1]
        share = (time - begun) / (float(self.times[after]) - begun)
        return np.array(here + (self.points[after] - here) * share)

    def ahead(self, time: float) -> Positions:
        """Return the next point, or the last one, float64 [5], rad; NaN as in ``target``."""
        after = int(np.searchsorted(self.times, time, side='right'))
        return np.array(self.points[min(after, len(self.times) - 1)])


class ToleranceError(ValueError):
    """Tolerances that are refused; the message is one line."""


@dataclass(frozen=True)
class GoalTolerances:
    """Largest distances of joints from their targets.

    Attributes:
        path: float64 [5], rad, while the arm moves; inf: any.
        goal: float64 [5], rad, at its end; inf: that of the controller's settings alone.
        late: s, after the end of the trajectory's time; inf: any.
    """

    path: Positions
    goal: Positions
    late: float = math.inf

    @staticmethod
    def of(
        path: Iterable[tuple[str, float]], goal: Iterable[tuple[str, float]], late: float,
    ) -> 'GoalTolerances':
        """Return the tolerances of a goal; ToleranceError: an unknown joint or a wrong value.

        ``path`` and ``goal`` have names of joints with distances, rad; 0: as the controller has
        it, less: any. ``late`` is in s; 0: any.
        """
        if not (math.isfinite(late) and late >= 0.0):
            raise ToleranceError(f'goal_time_tolerance: {late:g} s is not allowed: at least 0')
        return GoalTolerances(_by_joint('path_tolerance', path), _by_joint('goal_tolerance', goal),
                              late or math.inf)

    def violation(self, error: Positions, *, at_goal: bool) -> str:
        """Return which joint is too far from its target, '' if none is."""
        allowed = self.goal if at_goal else self.path
        too_far = np.abs(np.nan_to_num(error)) > allowed
        if not too_far.any():
            return ''
        index = int(np.argmax(too_far))
        return (f'{JOINTS[index]}: {abs(float(error[index])):.3f} rad from its target, '
                f'{float(allowed[index]):g} rad are allowed')


def _by_joint(what: str, values: Iterable[tuple[str, float]]) -> Positions:
    found = np.full(len(JOINTS), math.inf)
    for name, value in values:
        if name not in JOINTS:
            raise ToleranceError(
                f'{what}: {quoted(name)}: no such joint; there are {", ".join(JOINTS)}')
        if not math.isfinite(value):
            raise ToleranceError(f'{what}: {name}: {value} is not a finite number')
        if value > 0.0:
            found[JOINTS.index(name)] = value
    return found
