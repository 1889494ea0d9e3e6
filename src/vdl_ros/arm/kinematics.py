"""Kinematics of the arm, vectorized over poses: forward, Jacobian, inverse; moves."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vdl_ros.arm.geometry import ArmGeometry, Joint, Positions
from vdl_ros.arm.joints import JOINTS
from vdl_ros.common.quoting import quoted

Array = NDArray[np.float64]


class Kinematics:
    """Computes poses and Jacobians of the arm's frames.

    Positions are float64 [..., 5], rad, in the order of ``joints.JOINTS``; poses are float64
    [..., 4, 4] in ``base_link``, m: they transform points from the frame to the base. An unknown
    frame is a KeyError.
    """

    def __init__(self, geometry: ArmGeometry):
        self._geometry = geometry
        self._by_child = {joint.child: joint for joint in geometry.joints.values()}
        self._steps = {name: _step(joint) for name, joint in geometry.joints.items()}

    def pose(self, positions: ArrayLike, frame: str = 'tool0') -> Array:
        return self.poses(positions, (frame,))[frame]

    def poses(
        self, positions: ArrayLike, frames: Collection[str] | None = None,
    ) -> dict[str, Array]:
        """Return the poses of frames by name, each float64 [..., 4, 4]; by default of all."""
        q = np.asarray(positions, np.float64)
        found: dict[str, Array] = {
            self._geometry.root: np.array(np.broadcast_to(np.eye(4), (*q.shape[:-1], 4, 4)))}
        for frame in self._geometry.links if frames is None else frames:
            for joint in self._chain(frame):
                if joint.child not in found:
                    found[joint.child] = found[joint.parent] @ self._local(joint, q)
        return found if frames is None else {frame: found[frame] for frame in frames}

    def jacobian(self, positions: ArrayLike, frame: str = 'tool0') -> Array:
        """Return the velocity of the origin of ``frame`` in ``base_link``, float64 [..., 3, 5].

        It is in m/s, for one rad/s of each joint.
        """
        q, chain = np.asarray(positions, np.float64), self._chain(frame)
        poses = self.poses(q, [joint.child for joint in chain])
        result = np.zeros((*q.shape[:-1], 3, len(JOINTS)))
        for joint in chain:
            if joint.type == 'fixed':
                continue
            # A joint leaves its own axis where it is.
            pose, column = poses[joint.child], JOINTS.index(joint.mimic or joint.name)
            axis = pose[..., :3, :3] @ joint.axis
            away = poses[frame][..., :3, 3] - pose[..., :3, 3]
            result[..., column] += joint.multiplier * np.cross(axis, away)
        return result

    def _chain(self, frame: str) -> list[Joint]:
        chain: list[Joint] = []
        link = frame
        while link != self._geometry.root:
            if link not in self._by_child:
                raise KeyError(
                    f'{frame}: no such frame; there are {", ".join(self._geometry.links)}')
            chain.append(self._by_child[link])
            link = chain[-1].parent
        return chain[::-1]

    def _local(self, joint: Joint, q: Array) -> Array:
        """Return the pose of a joint's child in its parent, float64 [..., 4, 4] or [4, 4]."""
        if joint.type == 'fixed':
            return joint.origin
        # Mimicking joints follow another one.
        value = q[..., JOINTS.index(joint.mimic or joint.name), None, None]
        value = value * joint.multiplier + joint.offset
        step = self._steps[joint.name]
        return np.asarray(step[0] + np.sin(value) * step[1] + np.cos(value) * step[2])


def _step(joint: Joint) -> Array:
    """Return float64 [3, 4, 4] of which a joint's pose is a sum, ``origin`` included.

    The first, plus sine and cosine of the angle times the others.
    """
    parts = np.zeros((3, 4, 4))
    x, y, z = joint.axis
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    # Rodrigues' formula: 1 + sin K + (1 - cos) K^2.
    parts[0, :3, :3] = np.eye(3) + cross @ cross
    parts[0, 3, 3] = 1.0
    parts[1, :3, :3] = cross
    parts[2, :3, :3] = -cross @ cross
    return np.asarray(joint.origin @ parts)


Bools = NDArray[np.bool_]
#: Returns which poses, float64 [N, 5], rad, collide, bool [N].
Collides = Callable[[Array], Bools]

#: How near a solution brings ``tool0`` to its place, m.
TOLERANCE = 0.001
#: Joints that move ``tool0``.
MOVED = JOINTS[:4]
# Random poses, of which the starts are chosen; half of the starts are near the place, half of them
# near the arm. More of them find a place more surely, and take longer.
_POSES, _STARTS = 4000, 32
_ITERATIONS = 60
# Damping, m^2/rad^2: at the place, and more for each m^2 away from it.
_DAMPING, _DAMPING_AWAY = 1e-6, 0.5
# Poses on the straight line to a goal that are checked for collisions are at most this far apart,
# rad.
_CHECKED_EVERY = 0.1
# Least time of a move, s.
_MIN_DURATION = 0.5
# The only joint that may move ``tool0`` and be unmeasured: the camera does not see it.
_UNSEEN = 'wrist'


class UnreachableError(ValueError):
    """A place that ``tool0`` cannot reach; the message is one line."""


class JointGoal(NamedTuple):
    """A trajectory of one point: names of joints, their positions, rad, and its duration, s."""

    names: tuple[str, ...]
    positions: tuple[float, ...]
    duration: float


class InverseKinematics:
    """Finds joint positions for places of ``tool0`` in ``base_link``.

    Args:
        collides: finds poses in collision, such as ``CollisionChecker.collides``; None: any
            pose within the limits is allowed.
    """

    def __init__(self, geometry: ArmGeometry, collides: Collides | None = None) -> None:
        self._geometry = geometry
        self._kinematics = Kinematics(geometry)
        self._collides = collides
        random = np.random.default_rng(0)
        self._poses: Array = random.uniform(geometry.lower, geometry.upper, (_POSES, len(JOINTS)))
        self._places: Array = self._kinematics.pose(self._poses)[:, :3, 3]

    def solve(
        self, place: ArrayLike, start: ArrayLike, joints: Sequence[str] = MOVED,
    ) -> Positions:
        """Return the joint positions, float64 [5], rad, that are reached soonest from ``start``.

        With a checker they are free of collisions, and so is the straight line to them. ``place``
        is float64 [3], m; joints other than ``joints`` stay where they are.

        Raises:
            UnreachableError: no position within the limits is one.
            ValueError: ``place`` is not three finite numbers.
        """
        there = np.asarray(place, np.float64)
        if there.shape != (3,) or not np.isfinite(there).all():
            raise ValueError(f'place: {there.tolist()} is not allowed: three finite numbers, m')
        here = np.asarray(start, np.float64)
        here = here.clip(self._geometry.lower, self._geometry.upper)
        moved = np.array([name in joints for name in JOINTS])
        q = self._converge(self._starts(there, here, moved), there, moved)
        places = self._kinematics.pose(q)[:, :3, 3]
        away = np.linalg.norm(places - there, axis=1)
        found = q[away <= TOLERANCE]
        what = f'({", ".join(f"{value:g}" for value in there)}) m'
        if not len(found):
            nearest = ', '.join(f'{value:.2f}' for value in places[away.argmin()])
            raise UnreachableError(
                f'{what} is out of reach: tool0 comes to {100.0 * away.min():.1f} cm of it, '
                f'at ({nearest}) m')
        found = found[np.argsort(self.travel_time(here, found), kind='stable')]
        if self._collides is None:
            return np.array(found[0])
        for goal in found[~self._collides(found)]:
            if self.is_free(here, goal):
                return np.array(goal)
        raise UnreachableError(f'{what} cannot be reached straight from here without a collision')

    def plan(self, place: ArrayLike, measured: ArrayLike) -> JointGoal:
        """Return the move of ``tool0`` to a place, float64 [3], m; errors as of :meth:`solve`.

        ``measured`` are the joints, float64 [5], rad; NaN: not measured, which is a ValueError. A
        wrist that is not measured stays where it is, and is taken to be straight.
        """
        here = np.asarray(measured, np.float64)
        names = tuple(name for name in MOVED if name != _UNSEEN or np.isfinite(
            here[JOINTS.index(name)]))
        start = self._start(here, names)
        return self._move(start, self.solve(place, start, names), names)

    def plan_joints(self, positions: Mapping[str, float], measured: ArrayLike) -> JointGoal:
        """Return the move of joints to ``positions``, rad by name; the others stay where they are.

        Raises:
            UnreachableError: the arm would collide on its way.
            ValueError: a joint does not exist or is not measured (NaN), or is to leave its limits.
        """
        for name, position in positions.items():
            if name not in JOINTS:
                raise ValueError(f'{quoted(name)}: no such joint: {", ".join(JOINTS)}')
            lower, upper = (float(limits[JOINTS.index(name)]) for limits in (
                self._geometry.lower, self._geometry.upper))
            if not lower <= position <= upper:
                raise ValueError(
                    f'{name}={position:g} is not allowed: from {lower:.3f} to {upper:.3f} rad')
        start = self._start(np.asarray(measured, np.float64), positions)
        goal = np.array([positions.get(name, at) for name, at in zip(JOINTS, start, strict=True)])
        if not self.is_free(start, goal):
            raise UnreachableError('the arm would collide on its way')
        return self._move(start, goal, tuple(positions))

    def _start(self, measured: Positions, joints: Collection[str]) -> Positions:
        """Return where the arm is; of ``joints`` all must be measured, others are straight."""
        known = np.isfinite(measured)
        missing = [name for name, is_known in zip(JOINTS, known, strict=True)
                   if name in joints and not is_known]
        if missing:
            raise ValueError(f'{", ".join(missing)}: not measured')
        return np.where(known, measured, self._geometry.upright)

    def _move(self, start: Positions, goal: Positions, names: tuple[str, ...]) -> JointGoal:
        duration = max(_MIN_DURATION, float(self.travel_time(start, goal)))
        return JointGoal(names, tuple(float(goal[JOINTS.index(name)]) for name in names), duration)

    def travel_time(self, start: Array, goals: Array) -> Array:
        """Return the least time from ``start`` [5] to ``goals`` [..., 5], float64 [...], s."""
        away = np.abs(goals - start) / self._geometry.velocity
        return np.asarray(away.max(axis=-1))

    def is_free(self, start: Array, goal: Array) -> bool:
        """Return whether the arm collides nowhere on the straight line between two poses."""
        if self._collides is None:
            return True
        count = max(1, math.ceil(float(np.abs(goal - start).max()) / _CHECKED_EVERY))
        shares = np.arange(count + 1)[:, None] / count
        hits = self._collides(start + shares * (goal - start))
        # A collision at the start may be left: measurements are not exact.
        return not (hits[1:] & ~hits[:-1]).any() and not hits[-1]

    def _starts(self, there: Array, here: Array, moved: Bools) -> Array:
        """Return poses to start from, float64 [N, 5]: the arm's own, and random ones."""
        near = np.linalg.norm(self._places - there, axis=1)
        # A radian away counts as much as 10 cm.
        soon = near + 0.1 * np.abs(self._poses - here)[:, moved].max(axis=1)
        half = _STARTS // 2
        rows = np.concatenate([np.argpartition(near, half)[:half],
                               np.argpartition(soon, half)[:half]])
        starts = np.vstack([here, self._poses[np.unique(rows)]])
        return np.where(moved, starts, here)

    def _converge(self, q: Array, there: Array, moved: Bools) -> Array:
        """Return the poses to which damped least squares leads from ``q``, float64 [N, 5]."""
        lower, upper = self._geometry.lower, self._geometry.upper
        q = q.copy()
        active = np.arange(len(q))
        for _ in range(_ITERATIONS):
            away = there - self._kinematics.pose(q[active])[:, :3, 3]
            far = (away**2).sum(axis=1)
            going = far > (0.1 * TOLERANCE)**2
            active, away, far = active[going], away[going], far[going]
            if not len(active):
                break
            now = q[active]
            jacobian = self._kinematics.jacobian(now) * moved
            damping = (_DAMPING + _DAMPING_AWAY * far)[:, None]
            turn = _damped(jacobian, away, damping)
            # Joints that would pass a limit stay, and the others do without them.
            stuck = ((now <= lower) & (turn < 0.0)) | ((now >= upper) & (turn > 0.0))
            turn = _damped(np.where(stuck[:, None], 0.0, jacobian), away, damping)
            q[active] = (now + turn).clip(lower, upper)
        return q


def _damped(jacobian: Array, away: Array, damping: Array) -> Array:
    """Return the turns, float64 [N, 5], rad, that bring ``away`` [N, 3], m, nearer to 0."""
    transposed = jacobian.transpose(0, 2, 1)
    square = jacobian @ transposed + damping[:, None] * np.eye(3)
    return np.asarray((transposed @ np.linalg.solve(square, away[..., None]))[..., 0])
