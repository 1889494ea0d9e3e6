"""The node robot_state: description, frames, and refusal of invalid descriptions."""

import math

import numpy as np
import pytest
from sensor_msgs.msg import JointState

from vdl_ros.arm.geometry import expand, load
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.msg import ArmPose
from vdl_ros.nodes.robot_state import RobotStateNode, main
from vdl_ros.ros.messages.joint_messages import FrameTree

POSE = [0.4, 0.3, -0.7, 0.2, 0.25]
POINTS = [[0.0, 0.0, 0.0], [0.1, 0.2, 0.3]]


def places(*messages):
    """Return a function from a frame to the places in base_link of two points of it."""
    tree = FrameTree()
    for each in messages:
        tree.add(each)
    return lambda frame: [tree.point(point, frame, 'base_link') for point in POINTS]


def expected(pose):
    return [pose[:3, :3] @ point + pose[:3, 3] for point in POINTS]


@pytest.fixture
def received(peer):
    """Return the received descriptions, moving and fixed transforms."""
    return [*map(peer.listen, ('robot_description', '/tf', '/tf_static'))]


def test_frames_match_the_kinematics_and_unmeasured_joints_are_left_out(node_here, peer, received):
    descriptions, moving, fixed = received
    node = node_here(RobotStateNode)
    states = peer.talk('arm/joint_states')
    message = JointState(name=list(reversed(JOINTS)), position=list(reversed(POSE)))
    message.header.stamp.sec = 7
    peer.until(lambda: moving, '/tf', say=lambda: states.publish(message))
    peer.until(lambda: descriptions and fixed, 'what is latched')
    assert descriptions[-1].data == expand()
    assert {each.header.stamp.sec for each in moving[-1].transforms} == {7}
    found = places(moving[-1], fixed[-1])
    for frame, pose in Kinematics(load()).poses(POSE).items():
        np.testing.assert_allclose(found(frame), expected(pose), atol=1e-9, err_msg=frame)

    peer.until(lambda: {each.child_frame_id for each in moving[-1].transforms} == {
        'turntable', 'left_finger', 'right_finger'}, 'the frames of what was measured',
        say=lambda: states.publish(
            JointState(name=['base', 'gripper', 'thumb'], position=[0.1, 0.2, 0.3])))
    peer.until(lambda: 'arm/joint_states refused: positions: base: nan' in node.output, 'a line',
               say=lambda: states.publish(JointState(name=['base'], position=[math.nan])))


def test_estimated_pose_is_published_as_a_second_arm(node_here, peer, received):
    descriptions, moving, fixed = received
    node_here(RobotStateNode, 'source:=pose', 'frame_prefix:=estimated/')
    poses = peer.talk('arm/pose')
    peer.until(lambda: moving and fixed, 'the frames', say=lambda: poses.publish(
        ArmPose(name=list(JOINTS), position=POSE)))
    np.testing.assert_allclose(places(moving[-1], fixed[-1])('estimated/tool0'),
                               expected(Kinematics(load()).pose(POSE)), atol=1e-9)
    assert not descriptions


def test_a_description_that_is_no_arm_is_refused(refused):
    assert refused(main, 'robot_description:=<robot name="table"/>') == (
        'robot_state: URDF: the links are no tree: no link without a parent')
