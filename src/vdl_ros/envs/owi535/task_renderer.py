"""Images of the arm, its target and its cube."""

from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.geometry import CUBE_COLOUR, EDGE
from vdl_ros.arm.simulation.render import ArmRenderer
from vdl_ros.arm.simulation.scene import Scene, build_scene

Array = NDArray[np.float64]
Image = NDArray[np.uint8]

#: Radius of the target, m: the distance of success.
RADIUS = 0.02
# Where nothing is seen, m.
_AWAY = (0.0, 0.0, -10.0)
_HALF_ROD = 0.5


class TaskRenderer:
    """Draws the arm, a sphere of the size within which the target counts as reached, and the cube.

    All share one OpenGL context, since a process can have only one. It is opened by the first
    image and closed by the last :meth:`close`; images of another size open it anew, which takes
    about as long as 50 images.

    ``rod``: the target stands on a thin rod, whose foot on the table shows where it is in space.
    """

    _users: set['TaskRenderer'] = set()
    _scene: Scene
    _data: Any
    _renderer: ArmRenderer

    def __init__(self, width: int = 320, height: int = 240, rod: bool = False) -> None:
        self._size = width, height
        self._rod = rod

    def render(
        self, positions: Array, target: Array, cube: Array | None = None, out: Image | None = None,
    ) -> Image:
        """Return an image, uint8 [height, width, 3].

        Args:
            positions: of the joints, float64 [5], rad.
            target: in ``base_link``, float64 [3], m.
            cube: its pose in ``base_link``, float64 [7], m and a quaternion; None: without.
            out: array to write to instead of a new one.

        Raises:
            OpenGLError: this machine cannot render.
        """
        cls = TaskRenderer
        if cls._users and (cls._renderer.width, cls._renderer.height) != self._size:
            cls._renderer.close()
            cls._renderer = ArmRenderer(cls._scene, *self._size)
        if not cls._users:
            cls._scene = build_scene(furnish=_add_target_and_cube)
            cls._data = mujoco.MjData(cls._scene.model)
            cls._renderer = ArmRenderer(cls._scene, *self._size)
        cls._users.add(self)
        data = cls._data
        cls._scene.write_positions(data.qpos[None], positions[None])
        data.mocap_pos[0] = target
        data.mocap_pos[1] = (target[0], target[1], target[2] - _HALF_ROD) if self._rod else _AWAY
        data.mocap_pos[2] = _AWAY if cube is None else cube[:3]
        data.mocap_quat[2] = (1.0, 0.0, 0.0, 0.0) if cube is None else cube[3:]
        return cls._renderer.render_data(data, out=out)

    def close(self) -> None:
        """Stop drawing; may be called twice."""
        cls = TaskRenderer
        if self in cls._users:
            cls._users.remove(self)
            if not cls._users:
                cls._renderer.close()


def _add_target_and_cube(spec: Any) -> None:
    """Add the sphere, its rod and the cube, which touch nothing; they move by ``mocap_pos``."""
    geom = mujoco.mjtGeom
    for name, kind, size, colour in (
            ('target', geom.mjGEOM_SPHERE, [RADIUS, 0.0, 0.0], [0.1, 0.75, 0.2, 0.6]),
            # It reaches through the table, whose top hides the rest.
            ('rod', geom.mjGEOM_CYLINDER, [0.002, _HALF_ROD, 0.0], [0.1, 0.75, 0.2, 1.0]),
            ('cube', geom.mjGEOM_BOX, [EDGE / 2.0] * 3, (*CUBE_COLOUR, 1.0))):
        body = spec.worldbody.add_body(name=name, mocap=True)
        body.add_geom(type=kind, size=size, rgba=colour, contype=0, conaffinity=0)
