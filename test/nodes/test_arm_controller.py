"""The node arm_controller, closing its loop on the simulated arm."""

import math
import time

import numpy as np
import psutil
import pytest
from builtin_interfaces.msg import Time
from rclpy.clock import ClockType
from sensor_msgs.msg import JointState
from std_msgs.msg import Empty

from vdl_ros.arm.geometry import load
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.msg import EmergencyStopState, MotorCommand
from vdl_ros.nodes.arm_controller import RATE_HZ, ArmControllerNode
from vdl_ros.nodes.sim_arm import SimArmNode
from vdl_ros.ros import qos
from vdl_ros.ros.messages.joint_messages import seconds, trajectory_message

THREE_DEGREES = math.radians(3.0)


class Controlled:
    """A running arm_controller and the messages it publishes."""

    def __init__(self, peer, running):
        self.peer, self.running = peer, running
        self.motors = peer.listen('arm/motors')
        self.status = peer.listen('arm/trajectory_status')
        self.trajectories = peer.talk('arm/joint_trajectory')
        peer.until(lambda: self.status, 'its status')

    def move(self, names, points, times, after=0.0):
        """Send a trajectory that starts in ``after`` s."""
        message = trajectory_message(names, points, times)
        if after:
            start = self.peer.node.get_clock().now().nanoseconds + int(after * 1e9)
            message.header.stamp = Time(sec=start // 10**9, nanosec=start % 10**9)
        self.trajectories.publish(message)
        return message

    def asking(self, names, points, times, after=0.0):
        """Return a function that sends a trajectory, and again if it was given up, once each."""
        seen = 0

        def ask():
            nonlocal seen
            if self.status[-1].state != 'running' and len(self.status) > seen:
                seen = len(self.status)
                return self.move(names, points, times, after)
            return None
        return ask

    def turn(self, say):
        """Let the base turn; again, if a machine that stood still ended its trajectory."""
        ask, count = self.asking(['base'], [[1.0]], [1.0]), len(self.motors)
        self.peer.until(lambda: len(self.motors) > count and self.motors[-1].base == 1
                        and self.status[-1].state == 'running',
                        'the base turns', say=lambda: (ask(), say()))

    def turn_until(self, reason, say, act):
        """
        Let the base turn, and ``act`` until it is aborted with this reason.

        Again if a machine that stood still aborted it before. Returns how many commands of motors
        there were when it turned.
        """
        while True:
            self.turn(say)
            begun = len(self.motors)
            self.peer.until(lambda: self.status[-1].state == 'aborted', reason, every=0.1,
                            say=lambda: (act(), say()))
            if reason in self.status[-1].reason:
                return begun

    def until_off(self, say=None):
        self.peer.until(lambda: self.motors[-1].base == 0, 'motors off', say=say)

    def until_aborted(self, reason, say=None):
        self.peer.until(lambda: self.status[-1].state == 'aborted'
                        and reason in self.status[-1].reason, reason, say=say)


@pytest.fixture
def controller(node_here, peer):
    return lambda *parameters: Controlled(peer, node_here(ArmControllerNode, *parameters))


@pytest.fixture
def still(peer):
    """Return a function that publishes joint states with all joints at 0."""
    publisher = qos.pub(peer.node, 'arm/joint_states')

    def say():
        message = JointState(name=list(JOINTS), position=[0.0] * len(JOINTS))
        message.header.stamp = peer.node.get_clock().now().to_msg()
        publisher.publish(message)
    return say


def test_trajectory_of_three_points_ends_within_three_degrees(node_here, peer, controller):
    node_here(SimArmNode, 'sim_seed:=3')
    states = peer.listen('arm/joint_states')
    arm = controller()
    points = [[0.4, 0.3, -0.5, 0.3, 0.2], [-0.3, 0.1, 0.4, -0.3, 0.05],
              [0.1, -0.2, 0.6, 0.2, 0.3]]
    # Given up as long as both have not found each other, and if the machine stood still.
    peer.until(lambda: arm.status[-1].state == 'done', 'done',
               say=arm.asking(JOINTS, points, [2.0, 5.0, 8.0]))
    assert arm.status[-1].reason == ''
    peer.until(lambda: states and np.abs(states[-1].velocity).max() < 1e-3, 'rest')
    assert np.abs(np.array(states[-1].position) - points[-1]).max() < THREE_DEGREES
    # It went by the points, not straight to the end.
    passed = np.array([state.position for state in states])
    for point in points:
        assert np.abs(passed - point).max(axis=1).min() < math.radians(8.0), point
    peer.until(lambda: arm.motors[-1] == MotorCommand(
        header=arm.motors[-1].header, sender='/arm_controller'), 'motors off')
    # An idle controller sends no commands.
    count, before = len(arm.motors), len(states)
    peer.until(lambda: len(states) > before + 25, 'half a second')
    assert len(arm.motors) == count


def test_invalid_trajectories_are_refused_as_a_whole_and_stop_the_arm(peer, controller, still):
    arm = controller()
    for names, points, times, reason in (
            (['thumb'], [[0.1]], [1.0], "'thumb': no such joint; there are base, shoulder"),
            (['base'], [[math.nan]], [1.0], 'point 0: base: nan is not a finite number'),
            (['base'], [], [], 'trajectory: no point')):
        arm.turn_until(reason, still, act=lambda names=names, points=points, times=times: (
            arm.move(names, points, times)))
        arm.until_off(still)
        assert f'trajectory refused: {reason}' in arm.running.output
    publisher = peer.talk('arm/joint_states')
    message, reason = JointState(name=['base'], position=[]), '1 names but 0 positions'
    peer.until(lambda: reason in arm.running.output, reason,
               every=0.1, say=lambda: publisher.publish(message))
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
    arm.until_off()


def test_the_emergency_stop_ends_a_trajectory_and_refuses_the_next(peer, controller, still):
    arm = controller()
    stop = peer.talk('arm/emergency_stop_state')

    def turn():
        stop.publish(EmergencyStopState())
        arm.turn(still)
        stop.publish(EmergencyStopState(engaged=True))
        peer.until(lambda: arm.status[-1].state == 'aborted', 'the end', say=still)
        return arm.status[-1].reason == 'emergency stop'

    # Again if a machine that stood still ended it before.
    while not turn():
        pass
    arm.until_off()
    count = len(arm.motors)
    peer.until(lambda: 'trajectory refused: emergency stop' in arm.running.output, 'a line',
               say=lambda: arm.move(['base'], [[1.0]], [1.0]), every=1.0)
    assert not any(message.base for message in arm.motors[count:])
    count = len(arm.motors)
    stop.publish(EmergencyStopState(neutral_required=True))
    ask = arm.asking(['base'], [[1.0]], [1.0])
    peer.until(lambda: len(arm.motors) > count + 3, 'neutral commands', every=0.05,
               say=lambda: (still(), ask()))
    # Until the driver has taken one.
    assert not any(message.base for message in arm.motors[count:])
    stop.publish(EmergencyStopState())
    arm.turn(still)


def test_a_person_who_moves_the_arm_ends_a_trajectory(peer, controller, still):
    # Measurements that are held up do not switch the motors off.
    arm = controller('stale_after:=5.0')
    others = peer.talk('arm/motors')
    peer.until(lambda: others.get_subscription_count() > 1, 'the controller')
    ask = arm.asking(['base'], [[1.0]], [1.0])

    def turning():
        return [each for each in arm.motors if each.base and each.sender == '/arm_controller']

    arm.turn(still)
    # A policy gives way itself, and a lamp moves nothing.
    others.publish(MotorCommand(sender='/policy', elbow=1))
    others.publish(MotorCommand(sender='/policy'))
    others.publish(MotorCommand(sender='/viewer', lamp=1))
    count = len(turning())
    peer.until(lambda: len(turning()) > count + 5, 'the base turns',
               say=lambda: (ask(), still()))
    begun = arm.turn_until('/viewer moves the arm', still, act=lambda: others.publish(
        MotorCommand(sender='/viewer', elbow=1)))
    # It does not say off: that would stop the person's motor.
    said = []
    peer.until(lambda: len(said) > 10, 'silence', say=lambda: said.append(still()))
    assert all(each.base for each in arm.motors[begun:] if each.sender == '/arm_controller')
    # All motors off is for a program's motors too.
    arm.turn_until('/teleop switched the motors off', still, act=lambda: others.publish(
        MotorCommand(sender='/teleop')))


def test_a_process_that_stood_still_or_is_interrupted_leaves_motors_off(launch, peer, still):
    arm = Controlled(peer, launch.node('arm_controller'))
    arm.turn(still)
    node = psutil.Process(arm.running.process.pid)
    node.suspend()
    # What waits for the process when it goes on must not move the arm either.
    arm.move(['base'], [[1.0]], [1.0])
    begin = time.monotonic()
    peer.until(lambda: time.monotonic() > begin + 1.5, 'the gap', say=still)
    node.resume()
    arm.until_aborted('the process stood still', say=still)
    arm.until_off(still)
    assert arm.status[-1].state == 'aborted'
    arm.turn(still)
    arm.running.interrupt()
    arm.until_off()
    assert arm.running.wait() == 0


def test_trajectory_with_future_stamp_starts_later_and_has_markers(peer, controller, still):
    arm, starts = controller(), []
    shown = peer.listen('arm/trajectory_markers')
    # Again, if a machine that stood still ends it.
    ask = arm.asking(['base', 'shoulder'], [[0.5, 0.5]], [1.0], after=0.5)

    def say():
        still()
        if message := ask():
            starts.append(seconds(message.header.stamp))

    peer.until(lambda: shown and len(shown[-1].markers) > 1
               and arm.motors and arm.motors[-1].base == 1, 'the base turns', say=say)
    assert seconds(arm.motors[0].header.stamp) >= starts[0]
    marker = shown[-1].markers[1]
    end = marker.pose.position
    expected = Kinematics(load()).pose([0.5, 0.5, 0.0, 0.0, 0.0])[:3, 3]
    assert [end.x, end.y, end.z] == pytest.approx(expected.tolist())
    assert marker.header.frame_id == 'base_link'
    # Updates do not depend on the system's clock, which may be set back.
    period = round(1e9 / RATE_HZ)
    assert [each.clock.clock_type for each in arm.running.node.timers
            if each.timer_period_ns == period] == [ClockType.STEADY_TIME]


def test_trajectory_moves_only_while_its_viewer_is_alive(peer, controller, still):
    arm = controller('viewer_timeout:=0.5', 'goal_timeout:=2.0')
    alive = peer.talk('arm/viewer_alive')
    ask = arm.asking(['base'], [[1.0]], [1.0])
    # Not before the viewer's first sign of life.
    arm.until_aborted('no sign of life of the viewer for 2 s', say=lambda: (ask(), still()))
    assert not any(message.base for message in arm.motors)
    # From then on, and until the last.
    peer.until(lambda: any(message.base for message in arm.motors), 'the base turns',
               say=lambda: (ask(), alive.publish(Empty()), still()))
    peer.until(lambda: arm.motors[-1].base == 0, 'motors off', say=still)
    arm.until_aborted('no sign of life of the viewer for 2 s', say=lambda: (ask(), still()))
