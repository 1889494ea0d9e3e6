"""
Pictures of the simulated arm, without a display, and where the camera is that takes them.

``MUJOCO_GL`` is egl when nothing else was set. MuJoCo reads it when it is imported: whoever
imports it before this package sets it.
"""

from __future__ import annotations

import math
from typing import Any

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from vdl_ros.arm.simulation import appearance
from vdl_ros.arm.simulation.scene import CAMERA, Scene
from vdl_ros.common.opengl import OpenGLError, check_drawing

__all__ = ['ArmRenderer', 'camera_matrix', 'camera_pose', 'project']

Array = NDArray[np.float64]


class ArmRenderer:
    """
    Takes pictures of a scene.

    Only one can be open in a process: two contexts of EGL disturb each other's pictures. It must
    be used from the thread that made it.
    """

    _open: ArmRenderer | None = None

    def __init__(self, scene: Scene, width: int = 320, height: int = 240):
        """
        Open the renderer.

        Args:
            scene: what to look at; changes of its model count from the next picture.
            width: of the pictures, pixels.
            height: likewise.

        Raises:
            RuntimeError: another one is open.
            OpenGLError: nothing can be drawn on this machine.
        """
        if ArmRenderer._open is not None:
            raise RuntimeError('a renderer is open in this process: close it first')
        buffer = scene.model.vis.global_
        buffer.offwidth = max(int(buffer.offwidth), width)
        buffer.offheight = max(int(buffer.offheight), height)
        self.scene = scene
        self.width, self.height = width, height
        self._data = mujoco.MjData(scene.model)
        if not hasattr(mujoco, 'GLContext'):
            check_drawing()
            raise OpenGLError('OpenGL: MuJoCo was imported with MUJOCO_GL=disable')
        try:
            self._renderer: Any = mujoco.Renderer(scene.model, height=height, width=width)
        except Exception as error:  # each way to OpenGL fails in its own
            way = mujoco.GLContext.__module__  # mujoco.egl, unless MUJOCO_GL was set too late
            raise OpenGLError(f'OpenGL ({way}): {" ".join(str(error).split())}') from error
        ArmRenderer._open = self

    def __enter__(self) -> ArmRenderer:
        """Return self."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def render(
        self, positions: ArrayLike, lamp: bool = False, out: NDArray[np.uint8] | None = None,
    ) -> NDArray[np.uint8]:
        """
        Return a picture of the arm at ``positions``, RGB, uint8 [height, width, 3].

        Args:
            positions: float64 [5], rad.
            lamp: whether it shines.
            out: where to put the picture instead of a new array.

        Raises:
            RuntimeError: the renderer is closed.
        """
        self.scene.set_positions(self._data, np.asarray(positions, np.float64))
        return self.render_data(self._data, lamp, out)

    def render_data(
        self, data: Any, lamp: bool = False, out: NDArray[np.uint8] | None = None,
    ) -> NDArray[np.uint8]:
        """
        Return a picture of a simulation's ``data``, objects included, uint8 [height, width, 3].

        Raises:
            RuntimeError: the renderer is closed.
        """
        if self._renderer is None:
            raise RuntimeError('the renderer is closed')
        appearance.set_lamp(self.scene.model, lamp)
        # The camera may have been moved since: where it looks from follows from the bodies.
        mujoco.mj_kinematics(self.scene.model, data)
        mujoco.mj_camlight(self.scene.model, data)
        self._renderer.update_scene(data, camera=CAMERA)
        picture: NDArray[np.uint8] = self._renderer.render(out=out)
        return picture

    def close(self) -> None:
        """Free what OpenGL holds; may be called twice."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
            ArmRenderer._open = None


def camera_matrix(scene: Scene, width: int, height: int) -> Array:
    """
    Return the intrinsic matrix, float64 [3, 3], pixels, as of ``sensor_msgs/CameraInfo.k``.

    Pixel (0, 0) is the centre of the upper left one, so that the middle of the picture is at
    ((width - 1) / 2, (height - 1) / 2). Pixels are square and there is no distortion.
    """
    angle = math.radians(float(scene.model.camera(CAMERA).fovy[0]))
    focal = height / 2.0 / math.tan(angle / 2.0)
    return np.array([
        [focal, 0.0, (width - 1) / 2.0], [0.0, focal, (height - 1) / 2.0], [0.0, 0.0, 1.0]])


def camera_pose(scene: Scene) -> Array:
    """
    Return where the optical frame is in ``base_link``, float64 [4, 4], m.

    z looks into the scene, x to the right and y down in the picture.
    """
    data = mujoco.MjData(scene.model)
    mujoco.mj_kinematics(scene.model, data)
    mujoco.mj_camlight(scene.model, data)
    camera = data.camera(CAMERA)
    pose = np.eye(4)
    pose[:3, :3] = camera.xmat.reshape(3, 3) * [1.0, -1.0, -1.0]
    pose[:3, 3] = camera.xpos
    return pose


def project(scene: Scene, points: ArrayLike, width: int, height: int) -> Array:
    """
    Return where points are in the picture, float64 [..., 2]: column and row, pixels.

    Args:
        scene: with its camera in place.
        points: float64 [..., 3] in ``base_link``, m; NaN comes back for one behind the camera.
        width: of the picture, pixels.
        height: likewise.
    """
    pose = camera_pose(scene)
    local = (np.asarray(points, np.float64) - pose[:3, 3]) @ pose[:3, :3]
    depth = np.where(local[..., 2:] > 0.0, local[..., 2:], np.nan)
    return np.array((local @ camera_matrix(scene, width, height).T)[..., :2] / depth)
