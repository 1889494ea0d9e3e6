"""
What the observations of all tasks have in common: the arm's joints, commands and ``tool0``.

Names, order and units of the numbers are stated by lists of :class:`Feature`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vdl_ros.arm.model.geometry import ArmGeometry
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.kinematics import Kinematics

__all__ = [
    'IN_FLIGHT', 'MOVING', 'RATE', 'ArmObserver', 'ArmView', 'Feature', 'JointReading',
    'arm_features', 'bounded', 'bounds', 'feature_space', 'target_features',
]

Array = NDArray[np.float64]

#: Observations and commands per second, Hz.
RATE = 10.0
#: The motors that move ``tool0``: all but the gripper's.
MOVING = JOINTS[:4]
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


class JointReading(NamedTuple):
    """
    A measurement of the joints.

    ``positions`` is float64 [..., 5], rad, in the order of ``joints.JOINTS``, NaN for a joint that
    is not measured; ``stamp`` is its time, float64 [...], s.
    """

    positions: Array
    stamp: Array


class ArmView(NamedTuple):
    """
    What a measurement says of the arm.

    ``features`` are those of :func:`arm_features`, float64 [..., N]; ``tool`` the place of
    ``tool0``, float64 [..., 3], m; ``turntable`` the rotation of the arm's plane, float64
    [..., 3, 3]; ``jacobian`` that of ``tool0``'s place, float64 [..., 3, 4], m/rad.
    """

    features: Array
    tool: Array
    turntable: Array
    jacobian: Array

    def turned(self, direction: Array) -> Array:
        """Return what is forward and left of a direction, float64 [..., 2]."""
        return np.asarray((direction[..., None, :] @ self.turntable)[..., 0, :2])


def arm_features(motors: Sequence[str] = MOVING) -> tuple[Feature, ...]:
    """Return the features of the arm itself; ``motors`` are the first ones of ``JOINTS``."""
    return (
        *(Feature(f'{motor}_position', 'rad', 2.0 * math.pi) for motor in motors),
        *(Feature(f'{motor}_velocity', 'rad/s', 2.0) for motor in motors),
        Feature('wrist_measured', '', 1.0),
        *(Feature(f'{motor}_command_{back}', '', 1.0)
          for back in range(1, IN_FLIGHT + 1) for motor in motors),
        *(Feature(f'tool_{axis}', 'm', 1.0) for axis in 'xyz'))


def target_features(name: str = 'target') -> tuple[Feature, ...]:
    """Return the features of a place that ``tool0`` should reach."""
    return (
        *(Feature(f'{name}_from_tool_{axis}', 'm', 2.0) for axis in 'xyz'),
        Feature(f'{name}_from_tool_forward', 'm', 2.0),
        Feature(f'{name}_from_tool_left', 'm', 2.0),
        *(Feature(f'{motor}_approach', 'm/rad', 1.0) for motor in MOVING),
        *(Feature(f'{motor}_turn', 'rad', 0.2) for motor in MOVING),
        Feature('nearness', '', 1.0))


def bounds(features: Sequence[Feature]) -> NDArray[np.float64]:
    """Return the bounds of features, float64 [N]."""
    return np.array([feature.bound for feature in features])


def feature_space(features: Sequence[Feature]) -> spaces.Box:
    """Return the space of observations of features."""
    limits = np.asarray(bounds(features), np.float32)
    return spaces.Box(-limits, limits, dtype=np.float32)


def bounded(values: Sequence[Array], limits: NDArray[np.float64]) -> NDArray[np.float32]:
    """Join parts of observations, float64 [..., n] each, and clip them: float32 [..., N]."""
    joined = np.concatenate(values, axis=-1)
    return np.asarray(np.clip(joined, -limits, limits), np.float32)


class ArmObserver:
    """Assembles what observations have in common, for one arm or for many at once."""

    def __init__(self, geometry: ArmGeometry, motors: Sequence[str] = MOVING) -> None:
        """Compute places with this geometry; ``motors`` are those of the task's actions."""
        self._kinematics = Kinematics(geometry)
        self._count = len(motors)
        #: Angles that are assumed for joints without a measurement: the arm upright.
        self._assumed = np.zeros(len(JOINTS)).clip(geometry.lower, geometry.upper)

    def view(
        self, reading: JointReading, before: JointReading, commands: NDArray[np.int8],
    ) -> ArmView:
        """
        Return what is known of the arm.

        Args:
            reading: the latest measurement.
            before: the measurement of the observation before, or ``reading`` if there is none.
            commands: the latest ``IN_FLIGHT`` commands, the newest first, -1, 0 or 1, int8
                [..., IN_FLIGHT, motors]; 0 where there was none.
        """
        measured = np.isfinite(reading.positions)
        positions = np.where(measured, reading.positions, self._assumed)
        passed = np.asarray(reading.stamp - before.stamp)[..., None]
        moved = np.where(measured & (passed > 0.0), reading.positions - before.positions, 0.0)
        velocities = np.nan_to_num(moved) / np.where(passed > 0.0, passed, 1.0)
        poses = self._kinematics.poses(positions, ('turntable', 'tool0'))
        tool = poses['tool0'][..., :3, 3]
        jacobian = self._kinematics.jacobian(positions)[..., :3, :len(MOVING)]
        features = np.concatenate([
            positions[..., :self._count], velocities[..., :self._count],
            measured[..., JOINTS.index('wrist'), None],
            commands.reshape(*commands.shape[:-2], -1), tool], axis=-1)
        return ArmView(features, tool, poses['turntable'][..., :3, :3], jacobian)

    @staticmethod
    def towards(view: ArmView, target: Array) -> Array:
        """Return the features of ``target``, float64 [..., 3], m, in ``base_link``."""
        away = target - view.tool
        distance = np.linalg.norm(away, axis=-1, keepdims=True)
        nearer = (away[..., None, :] @ view.jacobian)[..., 0, :]
        # Least squares for each motor alone.
        turn = nearer / ((view.jacobian**2).sum(axis=-2) + NEAREST**2)
        approach = nearer / np.maximum(distance, NEAREST)
        nearness = NEAR / (NEAR + distance)
        return np.concatenate([away, view.turned(away), approach, turn, nearness], axis=-1)
