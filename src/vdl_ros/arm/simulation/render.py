"""
Renderer of the simulated arm, without a display, and the geometry of its camera.

The default of ``MUJOCO_GL`` is egl. MuJoCo reads it at import: a program that imports MuJoCo
before this package has to set it.
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
    Renders images of a scene.

    Only one can be open in a process: two EGL contexts corrupt each other's images. Use it in the
    thread that made it.
    """

    _open: ArmRenderer | None = None

    def __init__(self, scene: Scene, width: int = 320, height: int = 240):
        """
        Open the renderer.

        Args:
            scene: to render; changes of its model show in the next image.
            width: of the images, pixels.
            height: of the images, pixels.

        Raises:
            RuntimeError: another renderer is open.
            OpenGLError: this machine cannot render.
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
        except Exception as error:  # each backend of OpenGL raises its own type
            backend = mujoco.GLContext.__module__  # mujoco.egl, unless MUJOCO_GL was set too late
            raise OpenGLError(f'OpenGL ({backend}): {" ".join(str(error).split())}') from error
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
        Return an image of the arm at ``positions``, RGB, uint8 [height, width, 3].

        Args:
            positions: float64 [5], rad.
            lamp: whether it is lit.
            out: array to write to instead of a new one.

        Raises:
            RuntimeError: the renderer is closed.
        """
        self.scene.set_positions(self._data, np.asarray(positions, np.float64))
        return self.render_data(self._data, lamp, out)

    def render_data(
        self, data: Any, lamp: bool = False, out: NDArray[np.uint8] | None = None,
    ) -> NDArray[np.uint8]:
        """
        Return an image of a simulation's ``data``, objects included, uint8 [height, width, 3].

        Raises:
            RuntimeError: the renderer is closed.
        """
        if self._renderer is None:
            raise RuntimeError('the renderer is closed')
        appearance.set_lamp(self.scene.model, lamp)
        # The camera may have moved since: its pose follows from the bodies.
        mujoco.mj_kinematics(self.scene.model, data)
        mujoco.mj_camlight(self.scene.model, data)
        self._renderer.update_scene(data, camera=CAMERA)
        image: NDArray[np.uint8] = self._renderer.render(out=out)
        return image

    @property
    def bare(self) -> Any:
        """Return the ``mujoco.Renderer``, to measure what it takes alone."""
        return self._renderer

    def close(self) -> None:
        """Free the OpenGL context; may be called twice."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
            ArmRenderer._open = None


def camera_matrix(scene: Scene, width: int, height: int) -> Array:
    """
    Return the intrinsic matrix, float64 [3, 3], pixels, as of ``sensor_msgs/CameraInfo.k``.

    The origin is the centre of the upper left pixel, so the centre of the image is at
    ((width - 1) / 2, (height - 1) / 2). Pixels are square, without distortion.
    """
    angle = math.radians(float(scene.model.camera(CAMERA).fovy[0]))
    focal = height / 2.0 / math.tan(angle / 2.0)
    return np.array([
        [focal, 0.0, (width - 1) / 2.0], [0.0, focal, (height - 1) / 2.0], [0.0, 0.0, 1.0]])


def camera_pose(scene: Scene) -> Array:
    """
    Return the pose of the optical frame in ``base_link``, float64 [4, 4], m.

    z points into the scene, x to the right and y down in the image.
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
    Return the projections of points, float64 [..., 2]: column and row, pixels.

    Args:
        scene: with its camera in place.
        points: float64 [..., 3] in ``base_link``, m; NaN is returned for one behind the camera.
        width: of the image, pixels.
        height: of the image, pixels.
    """
    pose = camera_pose(scene)
    local = (np.asarray(points, np.float64) - pose[:3, 3]) @ pose[:3, :3]
    depth = np.where(local[..., 2:] > 0.0, local[..., 2:], np.nan)
    return np.array((local @ camera_matrix(scene, width, height).T)[..., :2] / depth)
