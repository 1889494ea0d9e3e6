"""The trajectory controller as a process, closing its loop on the simulated arm."""

import math
import time

import numpy as np
import psutil
import pytest
import rclpy
from builtin_interfaces.msg import Time
from rclpy.clock import ClockType
from sensor_msgs.msg import JointState
from std_msgs.msg import Empty
from trajectory_msgs.msg import JointTrajectory
from visualization_msgs.msg import MarkerArray

from vdl_ros.arm.model.geometry import load
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.kinematics import Kinematics
from vdl_ros.msg import EmergencyStopState, JointTrajectoryStatus, MotorCommand
from vdl_ros.nodes.arm_controller import RATE_HZ, ArmControllerNode
from vdl_ros.ros import qos
from vdl_ros.ros.messages.joint_messages import trajectory_message

THREE_DEGREES = math.radians(3.0)


class Controlled:
    """A running arm_controller and the messages it publishes."""

    def __init__(self, peer, process):
        self.peer, self.process = peer, process
        self.motors = peer.listen(MotorCommand, 'arm/motors', qos.TOPICS['arm/motors'])
        self.status = peer.listen(
            JointTrajectoryStatus, 'arm/trajectory_status', qos.TOPICS['arm/trajectory_status'])
        self.trajectories = peer.talk(
            JointTrajectory, 'arm/joint_trajectory', qos.TOPICS['arm/joint_trajectory'])
        peer.until(lambda: self.status, 'its status')

    def move(self, names, points, times):
        self.trajectories.publish(trajectory_message(names, points, times))

    def asking(self, names, points, times):
        """Return a function that sends a trajectory, and again if it was given up, once each."""
        seen = 0

        def ask():
            nonlocal seen
            if self.status[-1].state != 'running' and len(self.status) > seen:
                seen = len(self.status)
                self.move(names, points, times)
                return True
            return False
        return ask

    def turn(self, say):
        """Let the base turn; again, if a machine that stood still ended its trajectory."""
        ask, count = self.asking(['base'], [[1.0]], [1.0]), len(self.motors)
        self.peer.until(lambda: len(self.motors) > count and self.motors[-1].base == 1,
                        'the base turns', say=lambda: (ask(), say()))

    def until_aborted(self, reason, say=None):
        self.peer.until(lambda: self.status[-1].state == 'aborted'
                        and reason in self.status[-1].reason, reason, say=say)

    def until_state(self, state, say=None):
        self.peer.until(lambda: self.status[-1].state == state, state, say=say)
        return self.status[-1].reason


@pytest.fixture
def controller(launch, peer):
    def start(*parameters):
        process = launch('ros2', 'run', 'vdl_ros', 'arm_controller', '--ros-args', *(
            word for each in parameters for word in ('-p', each)))
        return Controlled(peer, process)
    return start


@pytest.fixture
def still(peer):
    """Return a function that publishes joint states with all joints at 0."""
    publisher = peer.node.create_publisher(
        JointState, 'arm/joint_states', qos.TOPICS['arm/joint_states'])

    def say(**positions):
        message = JointState(name=list(JOINTS), position=[
            float(positions.get(name, 0.0)) for name in JOINTS])
        message.header.stamp = peer.node.get_clock().now().to_msg()
        publisher.publish(message)
    return say


def test_trajectory_of_three_points_ends_within_three_degrees(launch, peer, controller):
    launch('ros2', 'run', 'vdl_ros', 'sim_arm', '--ros-args', '-p', 'sim_seed:=3')
    states = peer.listen(JointState, 'arm/joint_states', qos.TOPICS['arm/joint_states'])
    arm = controller()
    # Given up as long as controller and twin have not found each other.
    arm.until_state('done', say=arm.asking(['base'], [[0.1]], [0.5]))
    peer.until(lambda: states, 'joint states')
    points = [[0.4, 0.3, -0.5, 0.3, 0.2], [-0.3, 0.1, 0.4, -0.3, 0.05],
              [0.1, -0.2, 0.6, 0.2, 0.3]]
    # Given up if the machine stood still meanwhile.
    ask = arm.asking(JOINTS, points, [2.0, 5.0, 8.0])
    peer.until(lambda: arm.status[-1].state == 'done' and len(arm.status[-1].name) == len(JOINTS),
               'done', say=ask)
    assert arm.status[-1].reason == ''
    peer.until(lambda: np.abs(states[-1].velocity).max() < 1e-3, 'rest')
    assert np.abs(np.array(states[-1].position) - points[-1]).max() < THREE_DEGREES
    # It went by the points, not straight to the end.
    passed = np.array([state.position for state in states])
    for point in points:
        assert np.abs(passed - point).max(axis=1).min() < math.radians(8.0)
    peer.until(lambda: arm.motors[-1] == MotorCommand(
        header=arm.motors[-1].header, sender='/arm_controller'), 'motors off')
    # An idle controller sends no commands.
    count = len(arm.motors)
    before = len(states)
    peer.until(lambda: len(states) > before + 25, 'half a second')
    assert len(arm.motors) == count


@pytest.mark.parametrize(('names', 'points', 'times', 'reason'), [
    (['thumb'], [[0.1]], [1.0], "'thumb': no such joint; there are base, shoulder"),
    (['base'], [[math.nan]], [1.0], 'point 0: base: nan is not a finite number'),
    (['base'], [[0.1], [0.2]], [2.0, 1.0], 'point 1: time 1 s is not after 2 s'),
    (['base'], [[9.0]], [1.0], 'point 0: base: 9 rad is not allowed: from -2.094 to 2.094'),
    (['base'], [], [], 'trajectory: no point'),
    ([], [[]], [1.0], 'trajectory: no joint'),
    (['base', 'wrist'], [[0.1]], [1.0], 'point 0: 1 positions for 2 joints'),
    (['base'], [[0.1]], [-1.0], 'point 0: time -1 s is not allowed'),
], ids=['joint', 'nan', 'backward', 'limit', 'empty', 'nameless', 'width', 'negative'])
def test_invalid_trajectory_is_refused_as_a_whole_and_stops_the_arm(
        peer, controller, still, names, points, times, reason):
    arm = controller()
    arm.turn(still)
    ask = arm.asking(names, points, times)
    arm.move(names, points, times)
    arm.until_aborted(reason, say=lambda: (ask(), still()))
    peer.until(lambda: arm.motors[-1].base == 0, 'motors off', say=still)
    arm.process.wait_for(lambda: f'trajectory refused: {reason}' in arm.process.output, 'a line')
    # It lives.
    arm.turn(still)


def test_missing_measurements_stop_motors_and_abort_the_trajectory(
        peer, controller, still):
    arm = controller('goal_timeout:=0.5', 'stale_after:=0.1')
    ask, begun = arm.asking(['base'], [[1.0]], [1.0]), 0

    def say():
        # Measurements come until it turns. One that is held up meanwhile is given up as stuck,
        # or turns late: then once more.
        nonlocal begun
        if ask():
            begun = len(arm.motors)
        if not any(message.base for message in arm.motors[begun:]):
            still()

    peer.until(lambda: any(message.base for message in arm.motors)
               and arm.status[-1].reason == 'no measurement of the joints for 0.5 s',
               'the reason', say=say)
    peer.until(lambda: arm.motors[-1].base == 0, 'motors off')


def test_a_joint_that_is_stuck_is_named(peer, controller, still):
    arm = controller('goal_timeout:=0.5')
    ask = arm.asking(['wrist'], [[0.5]], [0.1])
    # On a busy machine measurements may be missing for too long, which is another reason: repeat.
    peer.until(lambda: arm.status[-1].reason.startswith('wrist: '), 'the reason',
               say=lambda: (ask(), still()))
    assert 'no progress for 0.5 s' in arm.status[-1].reason
    peer.until(lambda: arm.motors[-1].wrist == 0, 'motors off')


@pytest.mark.alone  # a machine that stands still ends a trajectory too
def test_the_emergency_stop_ends_a_trajectory_and_refuses_the_next(peer, controller, still):
    arm = controller()
    topic = 'arm/emergency_stop_state'
    stop = peer.talk(EmergencyStopState, topic, qos.TOPICS[topic])
    arm.turn(still)
    stop.publish(EmergencyStopState(engaged=True))
    arm.until_aborted('emergency stop', say=still)
    count = len(arm.motors)
    arm.move(['base'], [[1.0]], [1.0])
    arm.process.wait_for(
        lambda: 'trajectory refused: emergency stop' in arm.process.output, 'a line')
    assert not any(message.base for message in arm.motors[count:])
    count = len(arm.motors)
    stop.publish(EmergencyStopState(neutral_required=True))
    ask = arm.asking(['base'], [[1.0]], [1.0])
    peer.until(lambda: len(arm.motors) > count + 3, 'neutral commands', every=0.05,
               say=lambda: (still(), ask()))
    # Until the driver has taken one.
    assert not any(message.base for message in arm.motors[count:])
    stop.publish(EmergencyStopState())
    peer.until(lambda: arm.motors[-1].base == 1, 'the base turns', every=0.05,
               say=lambda: (still(), ask()))


def test_a_person_who_moves_the_arm_ends_a_trajectory(peer, controller, still):
    # Measurements that are held up do not switch the motors off.
    arm = controller('stale_after:=5.0')
    others = peer.talk(MotorCommand, 'arm/motors', qos.TOPICS['arm/motors'])
    peer.until(lambda: others.get_subscription_count() > 1, 'the controller')
    ask = arm.asking(['base'], [[1.0]], [1.0])

    def turning():
        return [each for each in arm.motors if each.base and each.sender == '/arm_controller']

    def until_turning(more):
        count = len(turning())
        peer.until(lambda: len(turning()) > count + more and arm.status[-1].state == 'running',
                   'the base turns', say=lambda: (ask(), still()))

    def until_reason(reason, **motors):
        peer.until(lambda: arm.status[-1].reason == reason, reason, every=0.1, say=lambda: (
            others.publish(MotorCommand(sender=reason.split()[0], **motors)), still()))
        assert arm.status[-1].state == 'aborted'

    until_turning(0)
    # A policy gives way itself, and a lamp moves nothing.
    others.publish(MotorCommand(sender='/policy', elbow=1))
    others.publish(MotorCommand(sender='/policy'))
    others.publish(MotorCommand(sender='/viewer', lamp=1))
    until_turning(5)
    begun = len(arm.motors)
    until_reason('/viewer moves the arm', elbow=1)
    # It does not say off: that would stop the person's motor.
    said = []
    peer.until(lambda: len(said) > 10, 'silence', say=lambda: said.append(still()))
    assert all(each.base for each in arm.motors[begun:] if each.sender == '/arm_controller')
    # All motors off is for a program's motors too.
    until_turning(0)
    until_reason('/teleop switched the motors off')


def test_trajectory_does_not_resume_after_a_gap(peer, controller, still):
    arm = controller()
    arm.turn(still)
    found = arm.process.nodes('arm_controller')
    node = found[0] if found else psutil.Process(arm.process.process.pid)
    node.suspend()
    # What waits for the process when it goes on must not move the arm either.
    arm.move(['base'], [[1.0]], [1.0])
    begin = time.monotonic()
    peer.until(lambda: time.monotonic() > begin + 1.5, 'the gap', say=still)
    node.resume()
    arm.until_aborted('the process stood still', say=still)
    peer.until(lambda: arm.motors[-1].base == 0, 'motors off', say=still)
    assert arm.status[-1].state == 'aborted'
    arm.turn(still)


def test_controller_updates_do_not_depend_on_the_system_clock(ros_domain):
    rclpy.init()
    try:
        node = ArmControllerNode()
        period = round(1e9 / RATE_HZ)
        assert [each.clock.clock_type for each in node.timers if each.timer_period_ns == period] \
            == [ClockType.STEADY_TIME]
        node.destroy_node()
    finally:
        rclpy.shutdown()


def test_invalid_joint_states_are_refused(peer, controller, still):
    arm = controller()
    publisher = peer.talk(JointState, 'arm/joint_states', qos.TOPICS['arm/joint_states'])
    for message, reason in (
            (JointState(name=['base'], position=[]), '1 names but 0 positions'),
            (JointState(name=['base'], position=[math.nan]), 'base: nan is not a finite number'),
            (JointState(name=['base', 'base'], position=[0.0, 1.0]), 'base is named twice')):
        peer.until(lambda reason=reason: reason in arm.process.output, reason, every=0.1,
                   say=lambda message=message: publisher.publish(message))
    arm.turn(still)


@pytest.mark.alone  # a machine that stands still ends the trajectory
def test_trajectory_with_future_stamp_starts_later_and_has_markers(peer, controller, still):
    arm = controller()
    topic = 'arm/trajectory_markers'
    shown = peer.listen(MarkerArray, topic, qos.TOPICS[topic])
    message = trajectory_message(['base', 'shoulder'], [[0.5, 0.5]], [1.0])
    now = peer.node.get_clock().now().nanoseconds * 1e-9
    start = now + 0.5
    message.header.stamp = Time(sec=int(start), nanosec=int(start % 1 * 1e9))
    arm.trajectories.publish(message)
    peer.until(lambda: arm.motors and arm.motors[-1].base == 1, 'the base turns', say=still)
    first = arm.motors[0].header.stamp
    assert first.sec + first.nanosec * 1e-9 >= start
    peer.until(lambda: shown and len(shown[-1].markers) > 1, 'the target')
    end = shown[-1].markers[1].pose.position
    expected = Kinematics(load()).pose([0.5, 0.5, 0.0, 0.0, 0.0])[:3, 3]
    assert [end.x, end.y, end.z] == pytest.approx(expected.tolist())
    assert shown[-1].markers[1].header.frame_id == 'base_link'


def test_interrupted_controller_leaves_motors_off(peer, controller, still):
    arm = controller()
    arm.turn(still)
    arm.process.interrupt()
    peer.until(lambda: arm.motors[-1].base == 0, 'motors off')
    assert arm.process.wait() == 0


def test_trajectory_moves_only_while_its_viewer_is_alive(peer, controller, still):
    arm = controller('viewer_timeout:=0.5', 'goal_timeout:=2.0')
    alive = peer.talk(Empty, 'arm/viewer_alive', qos.TOPICS['arm/viewer_alive'])
    ask = arm.asking(['base'], [[1.0]], [1.0])
    # Not before the viewer's first sign of life.
    arm.until_aborted('no sign of life of the viewer for 2 s', say=lambda: (ask(), still()))
    assert not any(message.base for message in arm.motors)
    # From then on, and until the last.
    peer.until(lambda: any(message.base for message in arm.motors), 'the base turns',
               say=lambda: (ask(), alive.publish(Empty()), still()))
    peer.until(lambda: arm.motors[-1].base == 0, 'motors off', say=still)
    arm.until_aborted('no sign of life of the viewer for 2 s', say=lambda: (ask(), still()))
