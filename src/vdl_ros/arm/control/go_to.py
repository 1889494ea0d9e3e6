"""Plans the trajectory of the controller that brings ``tool0`` to a place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from vdl_ros.arm.model.geometry import ArmGeometry
from vdl_ros.arm.model.inverse_kinematics import MOVED, Collides, InverseKinematics
from vdl_ros.arm.model.joints import JOINTS

__all__ = ['JointGoal', 'Planner']

#: Shortest duration, s.
_SHORTEST = 0.5
#: The only joint that may move ``tool0`` and be unmeasured: the camera does not see it.
_UNSEEN = 'wrist'


class JointGoal(NamedTuple):
    """A trajectory of one point: names of joints, their positions, rad, and its duration, s."""

    names: tuple[str, ...]
    positions: tuple[float, ...]
    duration: float


class Planner:
    """Plans moves to places."""

    def __init__(self, geometry: ArmGeometry, collides: Collides | None = None) -> None:
        """Plan for this arm; arguments as of :class:`InverseKinematics`."""
        self._geometry = geometry
        self._inverse = InverseKinematics(geometry, collides)

    def plan(self, place: ArrayLike, measured: ArrayLike) -> JointGoal:
        """
        Return the move to a place.

        A wrist that is not measured stays where it is, and is taken to be straight.

        Args:
            place: of ``tool0`` in ``base_link``, float64 [3], m.
            measured: positions of the joints, float64 [5], rad; NaN for unmeasured ones.

        Raises:
            UnreachableError: as ``InverseKinematics.solve``.
            ValueError: a joint is not measured that has to be, or ``place`` is not three numbers.
        """
        here = np.asarray(measured, np.float64)
        known = dict(zip(JOINTS, np.isfinite(here).tolist(), strict=True))
        missing = [name for name in MOVED if not known[name] and name != _UNSEEN]
        if missing:
            raise ValueError(f'{", ".join(missing)}: not measured')
        names = tuple(name for name in MOVED if known[name])
        # As far as they are not known.
        straight = np.zeros(len(JOINTS)).clip(self._geometry.lower, self._geometry.upper)
        start = np.where(np.isfinite(here), here, straight)
        goal = self._inverse.solve(place, start, names)
        duration = max(_SHORTEST, float(self._inverse.travel_time(start, goal)))
        return JointGoal(names, tuple(float(goal[JOINTS.index(name)]) for name in names), duration)
