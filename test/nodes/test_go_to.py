"""The command go_to with twin and controller: it gets there, is refused, interrupted, stopped."""

import re

import numpy as np
from geometry_msgs.msg import PointStamped
from sensor_msgs.msg import JointState
from std_msgs.msg import Empty
from trajectory_msgs.msg import JointTrajectory

from vdl_ros.arm.model.geometry import load
from vdl_ros.arm.model.kinematics import Kinematics
from vdl_ros.msg import (
    EmergencyStop,
    EmergencyStopState,
    JointTrajectoryStatus,
    MotorCommand,
    TargetStatus,
)
from vdl_ros.ros import qos
from vdl_ros.ros.arm.arm_topics import moves
from vdl_ros.ros.messages.joint_messages import trajectory_message


def test_it_gets_there_unless_it_cannot_or_must_not(launch, peer):
    for name in ('robot_state', 'sim_arm'):
        launch('ros2', 'run', 'vdl_ros', name)
    # On a busy machine the twin may stand still for a while.
    launch('ros2', 'run', 'vdl_ros', 'arm_controller', '--ros-args', '-p', 'goal_timeout:=60.0')

    def listen(kind, topic):
        return peer.listen(kind, topic, qos.TOPICS[topic])

    def go_to(*place):
        return launch('ros2', 'run', 'vdl_ros', 'go_to', *place)

    def distance():
        tool = Kinematics(load()).pose(states[-1].position)[:3, 3]
        return np.linalg.norm(tool - [0.15, -0.1, 0.15])

    states = listen(JointState, 'arm/joint_states')
    status = listen(JointTrajectoryStatus, 'arm/trajectory_status')
    stopped = listen(EmergencyStopState, 'arm/emergency_stop_state')

    peer.until(lambda: states and status and stopped, 'the arm')
    move = go_to('0.15', '-0.1', '0.15')
    peer.until(lambda: move.process.poll() is not None, 'the end')
    assert move.wait() == 0, move.output
    away = re.search(r'tool0 is (\d+) mm from \(0.15, -0.1, 0.15\) m', move.output)
    assert away is not None
    assert int(away[1]) < 30
    # On a busy machine its end may be seen here before the last messages.
    peer.until(lambda: status[-1].state == 'done' and distance() < 0.03, 'the arm there')

    far = go_to('0.9', '0', '0.1')
    assert far.wait() == 2
    assert 'go_to: (0.9, 0, 0.1) m is out of reach: tool0 comes to ' in far.output

    back = go_to('-0.1', '0.15', '0.15')
    peer.until(lambda: status[-1].state == 'running', 'it moves')
    back.interrupt()
    assert back.wait() == 1
    assert 'interrupted: the arm was stopped' in back.output
    peer.until(lambda: status[-1].state == 'aborted', 'it stops')

    back = go_to('-0.1', '0.15', '0.15')
    peer.until(lambda: status[-1].state == 'running', 'it moves')
    trajectories = peer.talk(
        JointTrajectory, 'arm/joint_trajectory', qos.TOPICS['arm/joint_trajectory'])
    trajectories.publish(trajectory_message(['base'], [[0.1]], [0.1]))
    assert back.wait() == 1
    assert 'the trajectory was replaced by another one' in back.output

    stop = peer.talk(EmergencyStop, 'arm/emergency_stop', qos.TOPICS['arm/emergency_stop'])
    stop.publish(EmergencyStop(engage=True))
    peer.until(lambda: stopped[-1].engaged, 'the emergency stop')
    refused = go_to('0.1', '0.15', '0.15')
    assert refused.wait() == 1
    assert 'emergency stop: release it first' in refused.output


def test_it_waits_for_the_viewer_of_a_launch(launch, peer):
    for name in ('robot_state', 'sim_arm'):
        launch('ros2', 'run', 'vdl_ros', name)
    launch('ros2', 'run', 'vdl_ros', 'arm_controller', '--ros-args',
           '-p', 'viewer_timeout:=10.0', '-p', 'goal_timeout:=60.0')
    motors = peer.listen(MotorCommand, 'arm/motors_sent', qos.TOPICS['arm/motors_sent'])
    status = peer.listen(JointTrajectoryStatus, 'arm/trajectory_status',
                         qos.TOPICS['arm/trajectory_status'])
    peer.until(lambda: status and status[-1].reason == 'no sign of life of the viewer',
               'the arm without a viewer')
    move = launch('ros2', 'run', 'vdl_ros', 'go_to', '0.15', '-0.1', '0.15')
    # Other parts of the arm may be missing when it logs this.
    move.wait_for(lambda: re.search('waiting for .*sign of life of the viewer', move.output),
                  'it waits', 60.0)
    assert not any(moves(message) for message in motors)
    alive = peer.talk(Empty, 'arm/viewer_alive', qos.TOPICS['arm/viewer_alive'])
    peer.until(lambda: move.process.poll() is not None, 'the end',
               say=lambda: alive.publish(Empty()))
    assert move.wait() == 0, move.output
    assert any(moves(message) for message in motors)


def test_the_policy_brings_it_there_until_it_cannot_or_is_interrupted(launch, peer):
    for name in ('robot_state', 'sim_arm'):
        launch('ros2', 'run', 'vdl_ros', name)

    def go_to(*place):
        return launch('ros2', 'run', 'vdl_ros', 'go_to', *place, '--policy')

    def distance():
        tool = Kinematics(load()).pose(states[-1].position)[:3, 3]
        return np.linalg.norm(tool - [0.12, 0.1, 0.2])

    # It waits for a policy that starts later.
    move = go_to('0.12', '0.1', '0.2')
    move.wait_for(lambda: 'waiting for a policy, such as that of arm.launch.py policy:=reach'
                  in move.output, 'it waits', 60.0)
    launch('ros2', 'run', 'vdl_ros', 'policy', '--ros-args', '-p', 'policy:=reach')
    states = peer.listen(JointState, 'arm/joint_states', qos.TOPICS['arm/joint_states'])
    status = peer.listen(TargetStatus, 'arm/target_status', qos.TOPICS['arm/target_status'])
    peer.until(lambda: move.process.poll() is not None, 'the end')
    assert move.wait() == 0, move.output
    away = re.search(r'tool0 is (\d+) mm from \(0.12, 0.1, 0.2\) m, after ', move.output)
    assert away is not None
    assert int(away[1]) <= 20
    peer.until(lambda: states and distance() < 0.02, 'the arm there')

    far = go_to('1', '1', '1')
    assert far.wait() == 1
    assert 'motors off: no pose without a collision comes nearer' in far.output
    # The target is given up: nothing moves when the reason has passed.
    peer.until(lambda: status and status[-1].state == 'idle', 'no target')

    # Another target replaces its own, and is reached although the command ends.
    other = PointStamped()
    other.header.frame_id = 'base_link'
    other.point.x, other.point.y, other.point.z = 0.12, 0.1, 0.2
    targets = peer.talk(PointStamped, 'arm/target', qos.TOPICS['arm/target'])
    replaced = go_to('-0.1', '0.15', '0.15')
    peer.until(lambda: status and status[-1].state == 'running', 'it moves')
    targets.publish(other)
    peer.until(lambda: status[-1].success and status[-1].target[0] > 0.0, 'the arm there')
    assert replaced.wait() == 1
    assert 'another target has replaced this one' in replaced.output

    back = go_to('-0.1', '0.15', '0.15')
    peer.until(lambda: status[-1].state == 'running' and not status[-1].success, 'it moves',
               of=back)
    back.interrupt()
    assert back.wait() == 1
    assert 'interrupted: motors off' in back.output
    peer.until(lambda: status and status[-1].state == 'idle', 'it stops')
    assert 'switched the motors off' in status[-1].reason
