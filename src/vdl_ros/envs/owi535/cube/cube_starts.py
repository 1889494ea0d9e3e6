"""Poses in which episodes of *push* and *pick and place* begin: above the cube, or around it."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.kinematics import Kinematics
from vdl_ros.arm.simulation.collisions import CollisionChecker
from vdl_ros.arm.simulation.scene import build_scene
from vdl_ros.envs.owi535.arm_task import World
from vdl_ros.envs.owi535.cube_scene import CUBE, EDGE, add_cube

__all__ = ['FARTHEST', 'NEAREST', 'SIDE', 'draw_grips', 'draw_starts']

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: The area of cubes and goals in front of the arm: distances from the base's axis, m, and largest
#: angle to either side, rad.
NEAREST, FARTHEST, SIDE = 0.16, 0.25, 1.2
#: Heights of ``tool0``, m: above any cube, and around one on the table.
_ABOVE, _AROUND = (0.06, 0.12), (0.01, 0.018)
#: The third component of the hand's direction: downwards, so that no other part is as low as a
#: cube; and at least 30 degrees downwards.
_DOWN, _STEEP = 0.0, -0.5
#: How far the gripper is open around a cube, share of its range: from where the cube is just free.
_OPEN = (0.85, 1.0)
#: Largest difference between the directions of gripper and cube, rad.
_ASLANT = 0.1
#: So many poses have about the same distance from the axis.
_CHOICE = 8


def draw_starts(
    world: World, by_camera: Bools, is_open: bool, random: np.random.Generator,
) -> Array:
    """
    Return random poses above a cube, float64 [N, 5], rad.

    Args:
        world: of the tasks.
        by_camera: whose wrist is straight, bool [N].
        is_open: whether the gripper is.
        random: random numbers.
    """
    starts = np.empty((len(by_camera), len(JOINTS)))
    for poses, which in zip(_above(world), (~by_camera, by_camera), strict=True):
        starts[which] = poses[random.integers(len(poses), size=int(which.sum()))]
    if is_open:
        gripper = JOINTS.index('gripper')
        starts[:, gripper] = world.scene.geometry.upper[gripper]
    return starts


def draw_grips(
    world: World, by_camera: Bools, cubes: Array, random: np.random.Generator,
) -> tuple[Array, Array]:
    """
    Return random poses around cubes, open, and the poses of these cubes.

    Args:
        world: of the tasks.
        by_camera: whose wrist is straight, bool [N].
        cubes: where the cubes are to be, about, float64 [N, 2], m.
        random: random numbers.

    Returns:
        Joint positions, float64 [N, 5], rad, and poses of cubes that lie on the table in the
        direction of the fingers, float64 [N, 7], m and quaternions w, x, y, z.
    """
    geometry = world.scene.geometry
    count, base, gripper = len(cubes), JOINTS.index('base'), JOINTS.index('gripper')
    grips = np.empty((count, len(JOINTS)))
    radius, angle = np.linalg.norm(cubes, axis=1), np.arctan2(cubes[:, 1], cubes[:, 0])
    for (poses, reach), which in zip(_around(world), (~by_camera, by_camera), strict=True):
        nearest = np.abs(reach - radius[which][:, None]).argsort(axis=1)[:, :_CHOICE]
        chosen = random.integers(_CHOICE, size=len(nearest))
        grips[which] = poses[nearest[np.arange(len(nearest)), chosen]]
    grips[:, base] += angle
    grips[:, gripper] = random.uniform(*_OPEN, count) * geometry.upper[gripper]
    half = (angle + random.uniform(-_ASLANT, _ASLANT, count)) / 2.0
    tool = Kinematics(geometry).pose(grips)[:, :2, 3]
    zeros = np.zeros(count)
    return grips, np.column_stack([
        tool, np.full(count, EDGE / 2.0), np.cos(half), zeros, zeros, np.sin(half)])


@functools.cache
def _above(world: World) -> tuple[Array, Array]:
    """Return poses above a cube, float64 [M, 5]: of any wrist, and of a straight one."""
    found = []
    for space in (world.free, world.straight):
        pose = Kinematics(world.scene.geometry).pose(space.poses)
        low, high = _ABOVE
        height, side = pose[:, 2, 3], np.arctan2(pose[:, 1, 3], pose[:, 0, 3])
        found.append(space.poses[(height > low) & (height < high) & (np.abs(side) < SIDE)
                                 & (pose[:, 2, 2] < _DOWN)])
    return found[0], found[1]


@functools.cache
def _around(world: World) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return poses around a cube, float64 [M, 5], and distances from the axis, float64 [M], m."""
    scene = build_scene(world.scene.geometry, furnish=add_cube)
    checker, kinematics = CollisionChecker(scene), Kinematics(scene.geometry)
    along = scene.model.jnt_qposadr[scene.model.body(CUBE).jntadr[0]]
    base, gripper = JOINTS.index('base'), JOINTS.index('gripper')
    found = []
    for space in (world.free, world.straight):
        pose = kinematics.pose(space.poses)
        low, high = _AROUND
        height, radius = pose[:, 2, 3], np.linalg.norm(pose[:, :2, 3], axis=1)
        which = ((height > low) & (height < high) & (radius > NEAREST) & (radius < FARTHEST)
                 & (pose[:, 2, 2] < _STEEP))
        # Turned towards a cube on the x axis; not those that bend over backwards.
        turned = space.poses[:, base] - np.arctan2(pose[:, 1, 3], pose[:, 0, 3])
        which &= np.abs(turned) < np.pi / 2.0
        poses = space.poses[which]
        poses[:, base] = turned[which]
        poses[:, gripper] = _OPEN[0] * scene.geometry.upper[gripper]
        free = np.zeros(len(poses), np.bool_)
        for row, distance in enumerate(radius[which]):
            scene.model.qpos0[along] = distance
            free[row] = not checker.collides(poses[row:row + 1])[0]
        found.append((poses[free], radius[which][free]))
    return found[0], found[1]
