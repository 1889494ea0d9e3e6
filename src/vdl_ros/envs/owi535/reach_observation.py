"""
The observation of the task *reach*: assembled here for the environment and for the real arm.

``FEATURES`` states names, order and units of its numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.model.geometry import ArmGeometry
from vdl_ros.envs.owi535.arm_observation import (
    IN_FLIGHT,
    MOVING,
    RATE,
    ArmObserver,
    Feature,
    JointReading,
    arm_features,
    bounded,
    bounds,
    target_features,
)

__all__ = ['FEATURES', 'IN_FLIGHT', 'MOTORS', 'RATE', 'Feature', 'JointReading', 'ReachObserver']

Array = NDArray[np.float64]

#: The motors of the task, in the order of actions: the gripper does not move ``tool0``.
MOTORS = MOVING
FEATURES = (*arm_features(MOTORS), *target_features(), Feature('age', 's', 1.0))
_BOUNDS = bounds(FEATURES)


class ReachObserver:
    """Assembles observations of the task for one arm, or for many at once."""

    def __init__(self, geometry: ArmGeometry) -> None:
        """Compute places with this geometry."""
        self._arm = ArmObserver(geometry)

    def observe(
        self, reading: JointReading, before: JointReading, now: Array, commands: NDArray[np.int8],
        target: Array,
    ) -> NDArray[np.float32]:
        """
        Return the observation, float32 [..., len(FEATURES)].

        Args:
            reading: the latest measurement.
            before: the measurement of the observation before, or ``reading`` if there is none.
            now: the time, of the clock of the stamps, float64 [...], s.
            commands: the latest ``IN_FLIGHT`` commands, the newest first, -1, 0 or 1, int8
                [..., IN_FLIGHT, 4]; 0 where there was none.
            target: the place that ``tool0`` should reach, in ``base_link``, float64 [..., 3], m.
        """
        view = self._arm.view(reading, before, commands)
        age = np.asarray(now - reading.stamp)[..., None]
        return bounded([view.features, self._arm.towards(view, target), age], _BOUNDS)
