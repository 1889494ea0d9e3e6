"""What the goal of a trajectory may demand of joints, besides the controller's settings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from vdl_ros.arm.model.geometry import Positions
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.common.quoting import quoted

__all__ = ['GoalTolerances', 'ToleranceError']


class ToleranceError(ValueError):
    """Tolerances that are refused; the message is one line."""


@dataclass(frozen=True)
class GoalTolerances:
    """
    Largest distances of joints from their targets.

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
    ) -> GoalTolerances:
        """
        Return the tolerances of a goal.

        Args:
            path: names of joints with distances, rad; 0: as the controller has it, less: any.
            goal: the same.
            late: s; 0: any.

        Raises:
            ToleranceError: an unknown joint, or a value that is not finite.
        """
        if not (math.isfinite(late) and late >= 0.0):
            raise ToleranceError(f'goal_time_tolerance: {late:g} s is not allowed: at least 0')
        return GoalTolerances(_by_joint('path_tolerance', path), _by_joint('goal_tolerance', goal),
                              late or math.inf)

    def violation(self, error: Positions, *, at_goal: bool) -> str:
        """
        Return which joint is too far from its target, '' if none is.

        Args:
            error: float64 [5], rad; NaN where unknown.
            at_goal: whether the trajectory has ended.
        """
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
