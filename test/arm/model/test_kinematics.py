"""Kinematics and Jacobian against MuJoCo."""

import re

import mujoco
import numpy as np
import pytest

from vdl_ros.arm.model.geometry import expand, load, parse
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.kinematics import Kinematics
from vdl_ros.arm.simulation.scene import PREFIX, build_scene

# Nothing of the defaults, so that no default can stand in two places.
ODD = {'shoulder_height': 0.07, 'upper_arm_length': 0.1, 'forearm_length': 0.12,
       'hand_length': 0.11, 'gripper_opening': 0.05, 'camera_distance': 0.6,
       'camera_elevation': 0.5, 'camera_azimuth': 2.0, 'camera_target_height': 0.1}
FRAMES = load().links


def random_positions(geometry, count, seed=0):
    return np.random.default_rng(seed).uniform(geometry.lower, geometry.upper, (count, 5))


def geared():
    """Return an arm whose right finger opens half as far, from elsewhere."""
    urdf, count = re.subn('multiplier="1" offset="0"', 'multiplier="0.5" offset="0.1"', expand())
    assert count == 1
    return parse(urdf)


@pytest.fixture(scope='module', params=[load, lambda: load(ODD), geared],
                ids=['default', 'odd', 'geared'])
def scene(request):
    return build_scene(request.param())


@pytest.fixture(scope='module')
def kinematics(scene):
    return Kinematics(scene.geometry)


def test_frames_match_mujoco(scene, kinematics):
    positions = random_positions(scene.geometry, 100)
    poses = kinematics.poses(positions)
    assert set(poses) == set(FRAMES)
    data = mujoco.MjData(scene.model)
    for row, q in enumerate(positions):
        scene.set_positions(data, q)
        for frame in FRAMES:
            body = data.body(PREFIX + frame)
            found = poses[frame][row]
            assert np.abs(found[:3, 3] - body.xpos).max() < 1e-6, frame
            assert np.abs(found[:3, :3] - body.xmat.reshape(3, 3)).max() < 1e-6, frame


def test_poses_of_some_frames_match_poses_of_all(kinematics, scene):
    positions = random_positions(scene.geometry, 6).reshape(2, 3, 5)
    every = kinematics.poses(positions)
    some = kinematics.poses(positions, ('tool0', 'turntable'))
    assert list(some) == ['tool0', 'turntable']
    assert all(np.array_equal(pose, every[frame]) for frame, pose in some.items())
    for frame in FRAMES:
        pose = kinematics.pose(positions, frame)
        assert pose.shape == (2, 3, 4, 4)
        np.testing.assert_allclose(pose, every[frame], atol=1e-12, err_msg=frame)
        np.testing.assert_allclose(
            pose[1, 2], kinematics.pose(positions[1, 2], frame), atol=1e-12, err_msg=frame)


def test_jacobian_matches_mujoco(kinematics, scene):
    positions = random_positions(scene.geometry, 20, seed=1)
    data = mujoco.MjData(scene.model)
    linear, angular = np.zeros((3, scene.model.nv)), np.zeros((3, scene.model.nv))
    mirror = scene.model.joint(PREFIX + 'gripper_mirror').dofadr[0]
    multiplier = scene.geometry.joints['gripper_mirror'].multiplier
    for frame in ('tool0', 'right_finger', 'left_finger', 'forearm', 'base_link'):
        jacobian = kinematics.jacobian(positions, frame)
        assert jacobian.shape == (20, 6, 5)
        for q, found in zip(positions, jacobian, strict=True):
            scene.set_positions(data, q)
            body = scene.model.body(PREFIX + frame).id
            mujoco.mj_jacBody(scene.model, data, linear, angular, body)
            whole = np.concatenate([linear, angular])
            expected = whole[:, scene.dof]
            expected[:, JOINTS.index('gripper')] += multiplier * whole[:, mirror]
            np.testing.assert_allclose(found, expected, atol=1e-8, err_msg=frame)


def test_unknown_frame_or_wrong_shape_is_refused():
    kinematics = Kinematics(load())
    for function in (kinematics.pose, kinematics.jacobian):
        with pytest.raises(KeyError, match='elbow_link: no such frame; there are base_link'):
            function(np.zeros(5), 'elbow_link')
        for positions in (np.zeros(4), 0.0, np.zeros((5, 2))):
            with pytest.raises(ValueError, match='5 columns'):
                function(positions)
    with pytest.raises(ValueError, match='5 columns'):
        kinematics.poses(np.zeros(6))
