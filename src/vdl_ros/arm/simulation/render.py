"""Images of the simulated scene, and the look of its model: camera, colours and lights.

Functions change the model in place, from the next image on. Materials are those of the URDF with
the prefix ``arm/`` (``arm/yellow``) and those of scene.xml (``table``, ``floor``); lights are
``key``, ``fill`` and ``arm/lamp``.
"""

import math
from contextlib import AbstractContextManager
from typing import Any

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from vdl_ros.arm.simulation.scene import CAMERA, PREFIX, Scene, cube_address
from vdl_ros.common.opengl import OpenGLError, check_drawing

Array = NDArray[np.float64]
Image = NDArray[np.uint8]


def place_camera(
    model: Any, distance: float, elevation: float, azimuth: float, roll: float = 0.0,
) -> None:
    """Place the camera on a sphere about ``camera_target``, looking at it.

    Args:
        distance: from the target, m.
        elevation: above the target's height, rad, up to 60 degrees; or ValueError.
        azimuth: from the x axis towards the y axis, rad.
        roll: counter-clockwise rotation of the image, rad.
    """
    if not 0.0 <= elevation <= math.pi / 3 + 1e-9:
        raise ValueError(f'elevation: {elevation:g} is not allowed: from 0 to {math.pi / 3:g}')
    mount = model.body(PREFIX + 'camera_mount')
    mount.pos[:] = distance * np.array([
        math.cos(elevation) * math.cos(azimuth), math.cos(elevation) * math.sin(azimuth),
        math.sin(elevation)])
    # x forward, z up: roll about x, look down by the elevation, turn back towards the target.
    mujoco.mju_euler2Quat(mount.quat, [azimuth + math.pi, elevation, roll], 'zyx')


def set_field_of_view(model: Any, angle: float) -> None:
    model.camera(CAMERA).fovy[:] = math.degrees(angle)


def set_color(
    model: Any, material: str, rgb: ArrayLike, *, specular: float | None = None,
    shininess: float | None = None,
) -> None:
    """Colour a material, by three numbers from 0 to 1; a texture is multiplied by the colour.

    ``specular`` is the strength of highlights, ``shininess`` their sharpness, from 0 to 1; None:
    unchanged.
    """
    found = model.mat(material)
    found.rgba[:3] = np.clip(rgb, 0.0, 1.0)
    if specular is not None:
        found.specular[:] = specular
    if shininess is not None:
        found.shininess[:] = shininess


def set_light(model: Any, light: str, rgb: ArrayLike, direction: ArrayLike | None = None) -> None:
    """Set the colour of a light, usually from 0 to 1, and its direction, of any length."""
    found = model.light(light)
    if direction is not None:
        found.dir[:] = np.asarray(direction) / np.linalg.norm(direction)
    found.diffuse[:] = np.clip(rgb, 0.0, None)


def set_headlight(model: Any, ambient: ArrayLike, diffuse: ArrayLike) -> None:
    model.vis.headlight.ambient[:] = np.clip(ambient, 0.0, None)
    model.vis.headlight.diffuse[:] = np.clip(diffuse, 0.0, None)


def set_lamp(model: Any, on: bool) -> None:
    model.light(PREFIX + 'lamp').active[:] = on
    model.mat(PREFIX + 'lens').emission[:] = 1.0 if on else 0.0


def open_renderer(model: Any, width: int, height: int) -> Any:
    """Return a ``mujoco.Renderer``; OpenGLError: this machine cannot render."""
    if not hasattr(mujoco, 'GLContext'):
        check_drawing()
        raise OpenGLError('OpenGL: MuJoCo was imported with MUJOCO_GL=disable')
    try:
        return mujoco.Renderer(model, height=height, width=width)
    except Exception as error:  # each backend of OpenGL raises its own type
        backend = mujoco.GLContext.__module__  # mujoco.egl, unless MUJOCO_GL was set too late
        raise OpenGLError(f'OpenGL ({backend}): {" ".join(str(error).split())}') from error


class ArmRenderer(AbstractContextManager['ArmRenderer']):
    """Renders images of a scene.

    Only one can be open in a process: two EGL contexts corrupt each other's images. Use it in the
    thread that made it.

    Raises:
        RuntimeError: another renderer is open.
        OpenGLError: this machine cannot render.
    """

    _open: 'ArmRenderer | None' = None

    def __init__(self, scene: Scene, width: int = 320, height: int = 240):
        if ArmRenderer._open is not None:
            raise RuntimeError('a renderer is open in this process: close it first')
        buffer = scene.model.vis.global_
        buffer.offwidth = max(int(buffer.offwidth), width)
        buffer.offheight = max(int(buffer.offheight), height)
        self.scene = scene
        self.width, self.height = width, height
        self._data = mujoco.MjData(scene.model)
        self._renderer: Any = open_renderer(scene.model, width, height)
        ArmRenderer._open = self

    def __exit__(self, *_: object) -> None:
        self.close()

    def render(
        self, positions: ArrayLike, lamp: bool = False, out: Image | None = None,
        cube: ArrayLike | None = None,
    ) -> Image:
        """Return an image of the arm at ``positions``, float64 [5], rad; see :meth:`render_data`.

        ``out`` is an array to write to instead of a new one; ``cube`` the pose, float64 [7], of
        the cube of a scene that has one.
        """
        if cube is not None:
            self._data.qpos[cube_address(self.scene.model)] = cube
        self.scene.set_positions(self._data, np.asarray(positions, np.float64))
        return self.render_data(self._data, lamp, out)

    def render_data(self, data: Any, lamp: bool = False, out: Image | None = None) -> Image:
        """Return an image of ``data`` with all objects, RGB, uint8 [height, width, 3]."""
        if self._renderer is None:
            raise RuntimeError('the renderer is closed')
        set_lamp(self.scene.model, lamp)
        # The camera may have moved since: its pose follows from the bodies.
        mujoco.mj_kinematics(self.scene.model, data)
        mujoco.mj_camlight(self.scene.model, data)
        self._renderer.update_scene(data, camera=CAMERA)
        image: Image = self._renderer.render(out=out)
        return image

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
            ArmRenderer._open = None


def camera_matrix(scene: Scene, width: int, height: int) -> Array:
    """Return the intrinsic matrix, float64 [3, 3], pixels, as of ``sensor_msgs/CameraInfo.k``.

    The origin is the centre of the upper left pixel, so the centre of the image is at
    ((width - 1) / 2, (height - 1) / 2). Pixels are square, without distortion.
    """
    angle = math.radians(float(scene.model.camera(CAMERA).fovy[0]))
    focal = height / 2.0 / math.tan(angle / 2.0)
    return np.array([
        [focal, 0.0, (width - 1) / 2.0], [0.0, focal, (height - 1) / 2.0], [0.0, 0.0, 1.0]])
