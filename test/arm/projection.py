"""Where the camera of a scene sees points."""

import mujoco
import numpy as np

from vdl_ros.arm.simulation.render import camera_matrix
from vdl_ros.arm.simulation.scene import CAMERA


def camera_pose(scene):
    """Return the pose of the optical frame in ``base_link``, [4, 4]: y is down in the image."""
    data = mujoco.MjData(scene.model)
    mujoco.mj_kinematics(scene.model, data)
    mujoco.mj_camlight(scene.model, data)
    camera, pose = data.camera(CAMERA), np.eye(4)
    pose[:3, :3] = camera.xmat.reshape(3, 3) * [1.0, -1.0, -1.0]
    pose[:3, 3] = camera.xpos
    return pose


def project(scene, points, width, height):
    """Return column and row of points, [..., 3] in ``base_link``."""
    pose = camera_pose(scene)
    local = (np.asarray(points) - pose[:3, 3]) @ pose[:3, :3]
    return (local @ camera_matrix(scene, width, height).T)[..., :2] / local[..., 2:]
