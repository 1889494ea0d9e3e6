"""
The observation of the task *reach*: assembled here for the environment and for the real arm.

``FEATURES`` states names, order and units of its numbers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.model.geometry import ArmGeometry
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.kinematics import Kinematics

__all__ = ['FEATURES', 'IN_FLIGHT', 'MOTORS', 'RATE', 'Feature', 'JointReading', 'ReachObserver']

Array = NDArray[np.float64]

#: Observations and commands per second, Hz.
RATE = 10.0
#: The motors of the task, in the order of actions: the gripper does not move ``tool0``.
MOTORS = JOINTS[:4]
#: Number of latest commands in an observation.
IN_FLIGHT = 8
# Below this distance, m, directions to the target mean little.
NEAREST = 0.005
# Distance of which the nearness is a half, m.
NEAR = 0.02


class Feature(NamedTuple):
    """One number of an observation; it is clipped to -``bound`` to ``bound``."""

    name: str
    unit: str
    bound: float


FEATURES = (
    *(Feature(f'{motor}_position', 'rad', 2.0 * math.pi) for motor in MOTORS),
    *(Feature(f'{motor}_velocity', 'rad/s', 2.0) for motor in MOTORS),
    Feature('wrist_measured', '', 1.0),
    *(Feature(f'{motor}_command_{back}', '', 1.0)
      for back in range(1, IN_FLIGHT + 1) for motor in MOTORS),
    *(Feature(f'tool_{axis}', 'm', 1.0) for axis in 'xyz'),
    *(Feature(f'target_from_tool_{axis}', 'm', 2.0) for axis in 'xyz'),
    Feature('target_from_tool_forward', 'm', 2.0),
    Feature('target_from_tool_left', 'm', 2.0),
    *(Feature(f'{motor}_approach', 'm/rad', 1.0) for motor in MOTORS),
    *(Feature(f'{motor}_turn', 'rad', 0.2) for motor in MOTORS),
    Feature('nearness', '', 1.0),
    Feature('age', 's', 1.0),
)
_BOUNDS = np.array([feature.bound for feature in FEATURES])


class JointReading(NamedTuple):
    """
    A measurement of the joints.

    ``positions`` is float64 [..., 5], rad, in the order of ``joints.JOINTS``, NaN for a joint that
    is not measured; ``stamp`` is its time, float64 [...], s.
    """

    positions: Array
    stamp: Array


class ReachObserver:
    """Assembles observations of the task for one arm, or for many at once."""

    def __init__(self, geometry: ArmGeometry) -> None:
        """Compute places with this geometry."""
        self._kinematics = Kinematics(geometry)
        #: Angles that are assumed for joints without a measurement: the arm upright.
        self._assumed = np.zeros(len(JOINTS)).clip(geometry.lower, geometry.upper)

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
        measured = np.isfinite(reading.positions)
        positions = np.where(measured, reading.positions, self._assumed)
        passed = np.asarray(reading.stamp - before.stamp)[..., None]
        moved = np.where(measured & (passed > 0.0), reading.positions - before.positions, 0.0)
        velocities = np.nan_to_num(moved) / np.where(passed > 0.0, passed, 1.0)
        poses = self._kinematics.poses(positions, ('turntable', 'tool0'))
        tool = poses['tool0'][..., :3, 3]
        away = target - tool
        distance = np.linalg.norm(away, axis=-1, keepdims=True)
        jacobian = self._kinematics.jacobian(positions)[..., :3, :len(MOTORS)]
        nearer = (away[..., None, :] @ jacobian)[..., 0, :]
        # Least squares for each motor alone.
        turn = nearer / ((jacobian**2).sum(axis=-2) + NEAREST**2)
        approach = nearer / np.maximum(distance, NEAREST)
        nearness = NEAR / (NEAR + distance)
        turned = (away[..., None, :] @ poses['turntable'][..., :3, :3])[..., 0, :]
        count = len(MOTORS)
        values = np.concatenate([
            positions[..., :count], velocities[..., :count],
            measured[..., JOINTS.index('wrist'), None],
            commands.reshape(*commands.shape[:-2], -1),
            tool, away, turned[..., :2], approach, turn, nearness,
            np.asarray(now - reading.stamp)[..., None]], axis=-1)
        return np.asarray(np.clip(values, -_BOUNDS, _BOUNDS), np.float32)
