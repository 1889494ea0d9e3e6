"""
Inverse kinematics of ``tool0``: which joint positions bring it to a place.

Damped least squares from several starts, within the joint limits. With three or four joints to a
place there are several solutions, often a whole family; the quickest to reach is chosen, of those
without a collision if a checker is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vdl_ros.arm.model.geometry import ArmGeometry, Positions
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.kinematics import Kinematics

__all__ = ['TOLERANCE', 'InverseKinematics', 'UnreachableError']

Array = NDArray[np.float64]
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


class UnreachableError(ValueError):
    """A place that ``tool0`` cannot reach; the message is one line."""


class InverseKinematics:
    """Finds joint positions for places of ``tool0`` in ``base_link``."""

    def __init__(self, geometry: ArmGeometry, collides: Collides | None = None) -> None:
        """
        Prepare starts.

        Args:
            geometry: of the arm.
            collides: finds poses in collision, such as ``CollisionChecker.collides``; None: any
                pose within the limits is allowed.
        """
        self._geometry = geometry
        self._kinematics = Kinematics(geometry)
        self._collides = collides
        random = np.random.default_rng(0)
        self._poses: Array = random.uniform(geometry.lower, geometry.upper, (_POSES, len(JOINTS)))
        self._places: Array = self._kinematics.pose(self._poses)[:, :3, 3]

    def solve(
        self, place: ArrayLike, start: ArrayLike, joints: Sequence[str] = MOVED,
    ) -> Positions:
        """
        Return the joint positions, float64 [5], rad, that are reached soonest from ``start``.

        With a checker they are free of collisions, and so is the straight line to them.

        Args:
            place: of ``tool0`` in ``base_link``, float64 [3], m.
            start: where the joints are, float64 [5], rad.
            joints: those that may move; the others stay where they are.

        Raises:
            UnreachableError: no position within the limits brings ``tool0`` to the place, or all
                that do collide, there or on the way.
            ValueError: ``place`` is not three numbers, or ``start`` is not five.
        """
        there = np.asarray(place, np.float64)
        if there.shape != (3,) or not np.isfinite(there).all():
            raise ValueError(f'place: {there.tolist()} is not allowed: three finite numbers, m')
        here = np.asarray(start, np.float64)
        if here.shape != (len(JOINTS),) or not np.isfinite(here).all():
            raise ValueError(
                f'start: {here.tolist()} is not allowed: {len(JOINTS)} finite numbers, rad')
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

    def travel_time(self, start: Array, goals: Array) -> Array:
        """Return the least time from ``start`` [5] to ``goals`` [..., 5], float64 [...], s."""
        away = np.abs(goals - start) / self._geometry.velocity
        return np.asarray(away.max(axis=-1))

    def is_free(self, start: Array, goal: Array) -> bool:
        """
        Return whether the arm collides nowhere on the straight line between two poses.

        A collision at the start may be left: measurements are not exact.
        """
        if self._collides is None:
            return True
        count = max(1, math.ceil(float(np.abs(goal - start).max()) / _CHECKED_EVERY))
        shares = np.arange(count + 1)[:, None] / count
        hits = self._collides(start + shares * (goal - start))
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
            jacobian = self._kinematics.jacobian(now)[:, :3] * moved
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
