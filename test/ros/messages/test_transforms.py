"""Quaternions and points in frames; the arm's frames are tested with the node robot_state."""

import mujoco
import numpy as np
import pytest
from builtin_interfaces.msg import Time
from geometry_msgs.msg import TransformStamped
from tf2_msgs.msg import TFMessage

from vdl_ros.arm.geometry import load
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.ros.messages.joint_messages import ArmFrames, FrameError, FrameTree, quaternion

POSE = np.array([0.4, -0.3, 0.8, 0.2, 0.1])


def test_quaternions_are_those_of_mujoco():
    random = np.random.default_rng(0)
    for number in range(200):
        wanted = random.normal(size=4)
        if number % 4 == 0:
            wanted[random.integers(4)] = 0.0
        wanted /= np.linalg.norm(wanted)
        rotation = np.zeros(9)
        mujoco.mju_quat2Mat(rotation, wanted)
        x, y, z, w = quaternion(rotation.reshape(3, 3))
        assert w >= 0.0, wanted
        assert abs(np.dot([w, x, y, z], wanted)) == pytest.approx(1.0), wanted
    for axis in np.eye(3):  # where a plain formula divides by 0
        half_turn = 2.0 * np.outer(axis, axis) - np.eye(3)
        assert np.abs(quaternion(half_turn)) == pytest.approx([*axis, 0.0]), axis


def test_points_are_those_of_the_kinematics_at_the_newest_pose():
    tree, model = FrameTree(), load()
    for prefix in ('', 'estimated/'):  # the arm and its ghost
        frames = ArmFrames(model, prefix)
        tree.add(TFMessage(transforms=frames.fixed(Time())))
        tree.add(TFMessage(transforms=frames.moving(POSE, Time())))
    poses = Kinematics(model).poses(POSE)
    for frame, target in (
            ('tool0', 'base_link'), ('base_link', 'tool0'), ('tool0', 'camera_optical_frame'),
            ('forearm', 'forearm'), ('estimated/hand', 'base_link')):
        inside = poses[frame.removeprefix('estimated/')] @ [0.1, -0.2, 0.3, 1.0]
        wanted = np.linalg.solve(poses[target], inside)[:3]
        assert tree.point([0.1, -0.2, 0.3], frame, target) == pytest.approx(wanted), frame
    tree.add(TFMessage(transforms=ArmFrames(model).moving(0.0 * POSE, Time())))
    wanted = Kinematics(model).pose(0.0 * POSE)[:3, 3]
    assert tree.point([0.0, 0.0, 0.0], 'tool0', 'base_link') == pytest.approx(wanted)


def transform(parent, child, **values):
    message = TransformStamped(child_frame_id=child)
    message.header.frame_id = parent
    for name, value in values.items():
        setattr(message.transform.rotation, name, value)
    return message


def test_frames_that_do_not_lead_there_are_refused():
    for message in (
            transform('base_link', 'loose', w=0.0), transform('base_link', 'loose', w=np.nan),
            transform('loose', 'loose'), transform('other', 'loose')):
        tree = FrameTree()
        tree.add(TFMessage(transforms=[message, transform('loose', 'other')]))
        with pytest.raises(FrameError, match="no transform from 'loose' to 'base_link' on /tf"):
            tree.point([0.0, 0.0, 0.0], 'loose', 'base_link')
