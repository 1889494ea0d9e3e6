"""
The observations of the tasks *push* and *pick and place*.

:func:`cube_features` states names, order and units of their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.model.geometry import ArmGeometry
from vdl_ros.envs.owi535.arm_observation import (
    MOVING,
    NEAR,
    ArmObserver,
    Feature,
    JointReading,
    arm_features,
    bounded,
    bounds,
    target_features,
)

__all__ = ['CLOSE', 'CubeObserver', 'CubeReading', 'cube_features', 'grip_point']

Array = NDArray[np.float64]

#: Distance of success, m.
CLOSE = 0.02


class CubeReading(NamedTuple):
    """
    A measurement of the cube, at the time of that of the joints.

    ``place`` is that of its centre in ``base_link``, float64 [..., 3], m; ``angle`` is its turn
    about the vertical axis, float64 [...], rad.
    """

    place: Array
    angle: Array


def cube_features(motors: Sequence[str]) -> tuple[Feature, ...]:
    """Return the features of a task with these motors, the first ones of ``JOINTS``."""
    return (
        *arm_features(motors), *target_features('grip'),
        *(Feature(f'cube_from_tool_{axis}', 'm', 2.0) for axis in ('forward', 'left', 'z')),
        *(Feature(f'goal_from_cube_{axis}', 'm', 2.0)
          for axis in ('x', 'y', 'z', 'forward', 'left')),
        Feature('goal_nearness', '', 1.0),
        *(Feature(f'{motor}_push', 'm/rad', 1.0) for motor in MOVING),
        Feature('cube_turn_cos', '', 1.0), Feature('cube_turn_sin', '', 1.0),
        Feature('age', 's', 1.0))


def grip_point(cube: Array, goal: Array, behind: float) -> Array:
    """
    Return where ``tool0`` should be to move the cube, float64 [..., 3], m.

    It is ``behind`` the cube, m, seen from the goal; nearer to its centre as the goal is nearer
    than ``CLOSE``.
    """
    away = goal - cube
    distance = np.linalg.norm(away, axis=-1, keepdims=True)
    return np.asarray(cube - behind * away / np.maximum(distance, CLOSE))


class CubeObserver:
    """Assembles observations for one arm, or for many at once."""

    def __init__(self, geometry: ArmGeometry, motors: Sequence[str], behind: float) -> None:
        """Compute places with this geometry; for ``behind`` see :func:`grip_point`."""
        self._arm = ArmObserver(geometry, motors)
        self._behind = behind
        self._bounds = bounds(cube_features(motors))

    def observe(
        self, reading: JointReading, before: JointReading, now: Array, commands: NDArray[np.int8],
        cube: CubeReading, goal: Array,
    ) -> NDArray[np.float32]:
        """
        Return the observation, float32 [..., features].

        Args:
            reading: the latest measurement of the joints.
            before: that of the observation before, or ``reading`` if there is none.
            now: the time, of the clock of the stamps, float64 [...], s.
            commands: the latest ``IN_FLIGHT`` commands, the newest first, -1, 0 or 1, int8
                [..., IN_FLIGHT, motors]; 0 where there was none.
            cube: the latest measurement of the cube.
            goal: where the cube's centre should be, in ``base_link``, float64 [..., 3], m.
        """
        view = self._arm.view(reading, before, commands)
        grip = grip_point(cube.place, goal, self._behind)
        from_tool, from_cube = cube.place - view.tool, goal - cube.place
        distance = np.linalg.norm(from_cube, axis=-1, keepdims=True)
        push = ((from_cube / np.maximum(distance, CLOSE))[..., None, :] @ view.jacobian)[..., 0, :]
        plane = np.arctan2(view.turntable[..., 1, 0], view.turntable[..., 0, 0])
        # A quarter of a turn makes no difference.
        turn = 4.0 * (cube.angle - plane)[..., None]
        return bounded([
            view.features, self._arm.towards(view, grip),
            view.turned(from_tool), from_tool[..., 2:], from_cube, view.turned(from_cube),
            NEAR / (NEAR + distance), push, np.cos(turn), np.sin(turn),
            np.asarray(now - reading.stamp)[..., None]], self._bounds)
