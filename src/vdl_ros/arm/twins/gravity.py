"""Torques of the arm's weight on its joints, for many poses at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.kinematics import Kinematics
from vdl_ros.arm.simulation.scene import PREFIX, Scene

__all__ = ['Gravity']

Array = NDArray[np.float64]


class Gravity:
    """Torques of the arm's weight on its joints, from the masses of the description."""

    def __init__(self, scene: Scene) -> None:
        """Take the masses of ``scene``."""
        model, geometry = scene.model, scene.geometry
        self._kinematics = Kinematics(geometry)
        self._joints = [index for index, load in enumerate(scene.load) if load > 0.0]
        names = [JOINTS[index] for index in self._joints]
        self._moved = [geometry.joints[name].child for name in names]
        self._axes = [geometry.joints[name].axis for name in names]
        parents = {joint.child: joint.parent for joint in geometry.joints.values()}

        def moves(link: str, by: str) -> bool:
            return link == by or (link in parents and moves(parents[link], by))

        self._links = [link for link in geometry.links
                       if model.body(PREFIX + link).mass[0] > 0.0
                       and any(moves(link, by) for by in self._moved)]
        bodies = [model.body(PREFIX + link) for link in self._links]
        self._centres = [np.append(body.ipos, 1.0) for body in bodies]
        mass = np.array([float(body.mass[0]) for body in bodies])
        weight = -float(model.opt.gravity[2])
        #: Weight of each link on each joint, N.
        self._weights = weight * mass * [
            [moves(link, by) for link in self._links] for by in self._moved]

    def __call__(self, positions: Array) -> Array:
        """Return the torques that hold the arm, float64 [N, 5], N m."""
        poses = self._kinematics.poses(positions, {*self._moved, *self._links})
        centres = np.stack([(poses[link] @ centre)[..., :3]
                            for link, centre in zip(self._links, self._centres, strict=True)])
        result = np.zeros(positions.shape)
        for index, joint in enumerate(self._joints):
            pose = poses[self._moved[index]]
            axis = pose[..., :3, :3] @ self._axes[index]
            # The sum of weight times lever; only its vertical part turns the joint.
            weights = self._weights[index]
            lever = np.tensordot(weights, centres, 1) - weights.sum() * pose[..., :3, 3]
            result[..., joint] = axis[..., 0] * lever[..., 1] - axis[..., 1] * lever[..., 0]
        return result
