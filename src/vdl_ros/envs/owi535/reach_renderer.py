"""Images of an arm and its target, for ``render()``."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.simulation.render import ArmRenderer
from vdl_ros.arm.simulation.scene import Scene, build_scene
from vdl_ros.envs.owi535.reach_task import CLOSE

__all__ = ['ReachRenderer']

WIDTH, HEIGHT = 320, 240
TARGET = 'target'


class ReachRenderer:
    """
    Draws the arm and a sphere of the size within which the target counts as reached.

    All share one scene and one OpenGL context, since a process can have only one: it is opened by
    the first image and closed by the last :meth:`close`.
    """

    _users: set[ReachRenderer] = set()
    _scene: Scene
    _data: Any
    _renderer: ArmRenderer

    def render(
        self, positions: NDArray[np.float64], target: NDArray[np.float64],
    ) -> NDArray[np.uint8]:
        """
        Return an image, uint8 [240, 320, 3].

        Args:
            positions: of the joints, float64 [5], rad.
            target: in ``base_link``, float64 [3], m.

        Raises:
            OpenGLError: this machine cannot render.
            RuntimeError: another renderer of the arm is open in this process.
        """
        cls = ReachRenderer
        if not cls._users:
            cls._scene = build_scene(width=WIDTH, height=HEIGHT, furnish=_add_target)
            cls._data = mujoco.MjData(cls._scene.model)
            cls._renderer = ArmRenderer(cls._scene, WIDTH, HEIGHT)
        cls._users.add(self)
        cls._data.mocap_pos[0] = target
        cls._scene.set_positions(cls._data, positions)
        return cls._renderer.render_data(cls._data)

    def close(self) -> None:
        """Stop drawing; may be called twice."""
        cls = ReachRenderer
        if self in cls._users:
            cls._users.remove(self)
            if not cls._users:
                cls._renderer.close()


def _add_target(spec: Any) -> None:
    """Add the sphere, which touches nothing."""
    body = spec.worldbody.add_body(name=TARGET, mocap=True)
    body.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[CLOSE, 0.0, 0.0],
                  rgba=[0.1, 0.75, 0.2, 0.6], contype=0, conaffinity=0)
