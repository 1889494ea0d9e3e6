"""The cube of the tasks *push* and *pick and place*, and the ranges of its properties."""

from __future__ import annotations

import dataclasses
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from vdl_ros.envs.owi535.twin_ranges import Ranges, uniform

__all__ = ['COLOUR', 'CUBE', 'CUBES', 'EDGE', 'CubeRanges', 'Cubes', 'add_cube']

#: Name of the body.
CUBE = 'cube'
#: Edge, m: the gripper opens 4.5 cm.
EDGE = 0.03
COLOUR = (0.75, 0.12, 0.12, 1.0)


@dataclasses.dataclass(frozen=True)
class Cubes:
    """
    N cubes, one for each episode.

    ``mass`` is float64 [N], kg, ``friction`` its coefficient on table and fingers, float64 [N],
    and ``error`` what is added to measurements of its place, float64 [N, 2], m.
    """

    mass: NDArray[np.float64]
    friction: NDArray[np.float64]
    error: NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class CubeRanges:
    """Ranges of mass, kg, friction, and the distance of measured from true places, m."""

    mass: Ranges = ((0.02, 0.05),)
    friction: Ranges = ((0.4, 0.8),)
    error: Ranges = ((0.0, 0.004),)

    def draw(self, random: np.random.Generator, count: int) -> Cubes:
        """Return ``count`` random cubes."""
        mass, friction, error = (uniform(random, ranges, (count,)) for ranges in (
            self.mass, self.friction, self.error))
        angle = random.uniform(-np.pi, np.pi, count)
        away = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        return Cubes(mass, friction, error[:, None] * away)


#: By the value of an environment's argument ``randomisation``.
CUBES = {
    'inside': CubeRanges(),
    'held_out': CubeRanges(mass=((0.01, 0.02), (0.05, 0.07)), friction=((0.3, 0.4), (0.8, 1.0)),
                           error=((0.004, 0.008),)),
    'none': CubeRanges(mass=((0.03, 0.03),), friction=((0.6, 0.6),), error=((0.0, 0.0),))}


def add_cube(spec: Any) -> None:
    """Add the cube to a ``mujoco.MjSpec``, and what the gripper needs to hold it."""
    body = spec.worldbody.add_body(name=CUBE, pos=[0.2, 0.0, EDGE / 2.0])
    body.add_freejoint()
    # With the priority it is the cube's friction that counts.
    body.add_geom(name=CUBE, type=mujoco.mjtGeom.mjGEOM_BOX, size=[EDGE / 2.0] * 3, mass=0.03,
                  rgba=COLOUR, priority=1)
    # With MuJoCo's default, pyramids, a held cube creeps out of the fingers within seconds.
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.impratio = 10.0
