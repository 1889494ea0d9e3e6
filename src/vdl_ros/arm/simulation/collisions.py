"""Collisions of the arm with itself and its scene, for many poses, by MuJoCo's geometry."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from vdl_ros.arm.simulation.scene import PREFIX, Scene

__all__ = ['DEEPEST', 'CollisionChecker']

#: Largest penetration of parts that is allowed, m.
DEEPEST = 0.001


class CollisionChecker:
    """Finds the poses in which the arm would be inside itself or something else of its scene."""

    def __init__(self, scene: Scene) -> None:
        """Check poses in ``scene``; objects stay where its model places them."""
        self.scene = scene
        model = scene.model
        self._data: Any = mujoco.MjData(model)
        self._arm = np.array([
            model.body(model.geom_bodyid[geom]).name.startswith(PREFIX)
            for geom in range(model.ngeom)])

    def collides(self, positions: ArrayLike) -> NDArray[np.bool_]:
        """Return whether poses collide, bool [N]; ``positions`` is float64 [N, 5], rad."""
        model, data = self.scene.model, self._data
        poses = np.asarray(positions, np.float64)
        qpos = np.tile(model.qpos0, (len(poses), 1))
        self.scene.write_positions(qpos, poses)
        found = np.zeros(len(poses), np.bool_)
        for row, values in enumerate(qpos):
            data.qpos[:] = values
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)  # the search for contacts needs it
            mujoco.mj_collision(model, data)
            if data.ncon:
                contacts = data.contact
                deep = contacts.dist < -DEEPEST
                found[row] = bool((deep & self._arm[contacts.geom].any(axis=1)).any())
        return found
