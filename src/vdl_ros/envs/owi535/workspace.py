"""
Poses and targets of the arm: uniform over the places that ``tool0`` can reach without collision.

Random joint angles crowd near the base's axis. So poses without a collision are sampled once, and
weighted by the number of others within the same cube of space: then all reachable places are
equally likely, to the size of a cube. Every target is the place of a pose, so it can be reached.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.kinematics import Kinematics
from vdl_ros.arm.simulation.collisions import CollisionChecker

__all__ = ['CUBE', 'POSES', 'Workspace']

Array = NDArray[np.float64]

#: Number of poses; half of them are in collision and are left out.
POSES = 40_000
#: Edge of the cubes, m.
CUBE = 0.03


class Workspace:
    """
    Poses of the arm, float64 [N, 5], rad, gripper closed, and their targets, float64 [N, 3], m.

    Places are those of ``tool0`` in ``base_link``.
    """

    def __init__(
        self, checker: CollisionChecker, *, straight: bool = False, count: int = POSES,
        seed: int = 0,
    ) -> None:
        """
        Sample poses; takes about 10 us for each of ``count``.

        Args:
            checker: finds collisions; its scene has the geometry.
            straight: whether the wrist stays at 0, for arms whose wrist is not measured.
            count: of random poses, those in collision included.
            seed: of the poses.
        """
        geometry = checker.scene.geometry
        random = np.random.default_rng(seed)
        poses = random.uniform(geometry.lower, geometry.upper, (count, len(JOINTS)))
        poses[:, JOINTS.index('gripper')] = geometry.lower[JOINTS.index('gripper')]
        if straight:
            poses[:, JOINTS.index('wrist')] = 0.0
        self.poses: Array = poses[~checker.collides(poses)]
        self.places: Array = Kinematics(geometry).pose(self.poses)[:, :3, 3]
        cubes = np.floor(self.places / CUBE).astype(np.int64)
        _, cube, sizes = np.unique(cubes, axis=0, return_inverse=True, return_counts=True)
        cube = cube.reshape(-1)
        # All poses cube after cube; of each pose, where its cube begins there, and its size.
        self._by_cube = np.argsort(cube, kind='stable')
        self._begin, self._size = (np.cumsum(sizes) - sizes)[cube], sizes[cube]
        weights = 1.0 / self._size
        self._cumulative = np.cumsum(weights) / weights.sum()

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.intp]:
        """Return the indices of ``count`` random poses, uniform in space, int [count]."""
        found = np.searchsorted(self._cumulative, random.random(count))
        return np.minimum(found, len(self.poses) - 1)

    def neighbours(
        self, random: np.random.Generator, indices: NDArray[np.intp], count: int,
    ) -> Array:
        """
        Return random poses whose places are in the same cube, float64 [N, count, 5], rad.

        The first is the pose of ``indices``, int [N], itself. A pose may be returned twice.
        """
        within = random.integers(self._size[indices, None], size=(len(indices), count))
        within = self._by_cube[self._begin[indices, None] + within]
        within[:, 0] = indices
        poses: Array = self.poses[within]
        return poses
