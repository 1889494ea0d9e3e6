"""The arm on the camera's picture is where MuJoCo's camera sees it."""

import mujoco
import numpy as np

from vdl_ros.arm.geometry import load
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.arm.simulation.render import camera_matrix, place_camera
from vdl_ros.arm.simulation.scene import CAMERA, build_scene
from vdl_ros.view.overlay import draw_arm, to_pixels

JOINTS = np.array([0.4, 0.3, 0.6, -0.2, 0.0])
PLACEMENT = 0.7, 0.5, -0.9


def test_lines_are_where_the_camera_sees_the_joints():
    scene = build_scene(load())
    place_camera(scene.model, *PLACEMENT)
    data = mujoco.MjData(scene.model)
    scene.set_positions(data, JOINTS)
    mujoco.mj_forward(scene.model, data)
    camera = data.camera(CAMERA)
    poses = Kinematics(load()).poses(JOINTS)
    points = np.array([pose[:3, 3] for pose in poses.values()])
    # MuJoCo's cameras look along -z, with y up.
    seen = (points - camera.xpos) @ camera.xmat.reshape(3, 3) @ np.diag([1.0, -1.0, -1.0])
    expected = seen @ camera_matrix(scene, 320, 240).T
    expected = expected[:, :2] / expected[:, 2:]
    found = to_pixels(points, poses['camera_target'][:3, 3], PLACEMENT, 320, 240)
    in_front = seen[:, 2] > 0.01
    assert in_front.sum() > 5
    np.testing.assert_allclose(found[in_front], expected[in_front], atol=1e-6)

    picture = draw_arm(np.zeros((240, 320, 3), np.uint8), load(), np.where(
        JOINTS == 0.0, np.nan, JOINTS), PLACEMENT, True)
    x, y = to_pixels(poses['tool0'][None, :3, 3], poses['camera_target'][:3, 3], PLACEMENT,
                     320, 240)[0].round().astype(int)
    assert picture[y - 4:y + 5, x - 4:x + 5].any()
    assert picture[-1].sum() == 0
