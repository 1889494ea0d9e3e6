"""The node arm_controller: what it refuses, and what switches its motors off."""

import itertools
import time
from functools import partial

import pytest
from arm_messages import joints_now, trajectory_after
from builtin_interfaces.msg import Time
from rclpy.clock import ClockType
from sensor_msgs.msg import JointState
from standstill import standing_still
from std_msgs.msg import Empty, Header

from vdl_ros.arm.geometry import load
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.msg import EmergencyStopState, MotorCommand
from vdl_ros.nodes.arm_controller import RATE_HZ, ArmControllerNode
from vdl_ros.ros import qos
from vdl_ros.ros.messages.joint_messages import seconds


class Controlled:
    """A running arm_controller, the messages that it publishes, and joints that stand at 0."""

    def __init__(self, peer, running):
        self.peer, self.running = peer, running
        self.motors, self.status = map(peer.listen, ('arm/motors', 'arm/trajectory_status'))
        self.trajectories = peer.talk('arm/joint_trajectory')
        self._states = qos.pub(peer.node, 'arm/joint_states')
        peer.until(lambda: self.status, 'its status')

    def measure(self):
        self._states.publish(joints_now(self.peer.node))

    def until(self, condition, what, say=lambda: None, every=0.02):
        """Wait while joint states arrive."""
        self.peer.until(condition, what, say=lambda: (say(), self.measure()), every=every)

    def move(self, names=('base',), points=((1.0,),), times=(1.0,), after=0.0):
        """Send a trajectory that starts in ``after`` s."""
        message = trajectory_after(after, self.peer.node, names, points, times)
        self.trajectories.publish(message)
        return message

    def asking(self, **trajectory):
        """Return a function that sends a trajectory, and again if it was given up, once each."""
        seen = 0

        def ask():
            nonlocal seen
            if (self.status[-1].state not in ('running', 'waiting') and len(self.status) > seen):
                seen = len(self.status)
                return self.move(**trajectory)
            return None
        return ask

    def turn(self):
        """Let the base turn; again, if a machine that stood still ended its trajectory."""
        count = len(self.motors)
        self.until(lambda: len(self.motors) > count and self.motors[-1].base == 1
                   and self.status[-1].state == 'running', 'the base turns', self.asking())

    def turn_until(self, reason, act, every=0.1):
        """Let the base turn, and ``act`` until it is aborted so; return the motors before that."""
        while True:  # a machine that stands still aborts it too
            self.turn()
            begun = len(self.motors)
            self.until(lambda: self.status[-1].state == 'aborted', reason, act, every)
            if reason in self.status[-1].reason:
                return begun

    def until_off(self):
        self.until(lambda: self.motors[-1].base == 0, 'motors off')

    def until_aborted(self, reason, say=lambda: None):
        self.until(lambda: self.status[-1].state == 'aborted'
                   and reason in self.status[-1].reason, reason, say)


@pytest.fixture
def controller(node_here, peer):
    return lambda *parameters: Controlled(peer, node_here(ArmControllerNode, *parameters))


def test_invalid_trajectories_are_refused_as_a_whole_and_stop_the_arm(peer, controller):
    arm = controller()
    for names, points, times, reason in (
            (['thumb'], [[0.1]], [1.0], "'thumb': no such joint; there are base, shoulder"),
            (['base'], [], [], 'trajectory: no point')):
        arm.turn_until(reason, partial(arm.move, names, points, times))
        arm.until_off()
        assert f'trajectory refused: {reason}' in arm.running.output
    states = peer.talk('arm/joint_states')
    peer.until(lambda: '1 names but 0 positions' in arm.running.output, 'a line',
               say=lambda: states.publish(JointState(name=['base'])))
    arm.turn()


def test_missing_measurements_stop_motors_and_abort_the_trajectory(peer, controller):
    arm = controller('goal_timeout:=0.5', 'stale_after:=0.1')
    ask, begun = arm.asking(), 0

    def say():
        # Measurements come until it turns. One that is held up meanwhile is given up as stuck,
        # or turns late: then once more.
        nonlocal begun
        if ask():
            begun = len(arm.motors)
        if not any(message.base for message in arm.motors[begun:]):
            arm.measure()

    peer.until(lambda: any(message.base for message in arm.motors)
               and arm.status[-1].reason == 'no measurement of the joints for 0.5 s',
               'the reason', say=say)
    peer.until(lambda: arm.motors[-1].base == 0, 'motors off')


def test_the_emergency_stop_ends_a_trajectory_and_refuses_the_next(peer, controller):
    arm = controller()
    stop = peer.talk('arm/emergency_stop_state')
    stop.publish(EmergencyStopState())
    while True:
        arm.turn_until('', lambda: stop.publish(EmergencyStopState(engaged=True)))
        if arm.status[-1].reason == 'emergency stop':
            break
        stop.publish(EmergencyStopState())
    arm.until_off()
    count = len(arm.motors)
    arm.until(lambda: 'trajectory refused: emergency stop' in arm.running.output, 'a line',
              arm.move, every=1.0)
    assert not any(message.base for message in arm.motors[count:])
    count = len(arm.motors)
    stop.publish(EmergencyStopState(neutral_required=True))
    arm.until(lambda: len(arm.motors) > count + 3, 'neutral commands', arm.asking(), every=0.05)
    # Until the driver has taken one.
    assert not any(message.base for message in arm.motors[count:])
    stop.publish(EmergencyStopState())
    # A stop that was released before the controller looked: only the stamp tells.
    stamps = itertools.count(1)
    arm.turn_until('the robot was stopped meanwhile', lambda: stop.publish(EmergencyStopState(
        header=Header(stamp=Time(sec=next(stamps))))))
    arm.turn()


def test_a_person_who_moves_the_arm_ends_a_trajectory(peer, controller):
    # Measurements that are held up do not switch the motors off.
    arm = controller('stale_after:=5.0')
    others = peer.talk('arm/motors')
    peer.until(lambda: others.get_subscription_count() > 1, 'the controller')

    def turning():
        return [each for each in arm.motors if each.base and each.sender == '/arm_controller']

    arm.turn()
    # A policy gives way itself, and a lamp moves nothing.
    others.publish(MotorCommand(sender='/robot_environment_1', elbow=1))
    others.publish(MotorCommand(sender='/robot_environment_1'))
    others.publish(MotorCommand(sender='/viewer', lamp=1))
    count = len(turning())
    arm.until(lambda: len(turning()) > count + 5, 'the base turns', arm.asking())
    begun = arm.turn_until('/viewer moves the robot', lambda: others.publish(
        MotorCommand(sender='/viewer', elbow=1)))
    # It does not say off: that would stop the person's motor.
    said = []
    arm.until(lambda: len(said) > 10, 'silence', lambda: said.append(None))
    assert all(each.base for each in arm.motors[begun:] if each.sender == '/arm_controller')
    # All motors off is for a program's motors too, also in a command that the driver refuses.
    for lamp in (0, 7):
        arm.turn_until('/teleop switched the motors off', lambda lamp=lamp: others.publish(
            MotorCommand(sender='/teleop', lamp=lamp)))
    # And for a trajectory that waits for its start.
    arm.move(after=30.0)
    arm.until(lambda: arm.status[-1].state == 'waiting', 'a trajectory that waits')
    arm.until(lambda: arm.status[-1].state == 'aborted', 'its end', lambda: others.publish(
        MotorCommand(sender='/teleop')))
    assert arm.status[-1].reason == '/teleop switched the motors off'
    arm.move(after=30.0)
    arm.until(lambda: arm.status[-1].state == 'waiting', 'a trajectory that waits')
    arm.running.node._followed_at += 100.0  # as if the clock were set back
    arm.until(lambda: arm.status[-1].reason == 'time went backward', 'its end')


def test_a_node_that_stood_still_or_is_interrupted_leaves_motors_off(peer, controller):
    arm = controller()
    arm.turn()
    with standing_still(arm.running.node):
        # What waits for the node when it goes on must not move the arm either.
        arm.move()
        begin = time.monotonic()
        arm.until(lambda: time.monotonic() > begin + 1.5, 'the gap')
    arm.until_aborted('the process stood still')
    arm.until_off()
    assert arm.status[-1].state == 'aborted'
    arm.turn()
    arm.running.interrupt()
    arm.until_off()
    assert arm.running.end() == 0


def test_trajectory_with_future_stamp_starts_later_and_has_markers(peer, controller):
    arm, starts = controller(), []
    shown = peer.listen('arm/trajectory_markers')
    # Again, if a machine that stood still ends it.
    ask = arm.asking(names=['base', 'shoulder'], points=[[0.5, 0.5]], after=0.5)

    def say():
        if message := ask():
            starts.append(seconds(message.header.stamp))

    arm.until(lambda: shown and len(shown[-1].markers) > 1
              and arm.motors and arm.motors[-1].base == 1, 'the base turns', say)
    assert seconds(arm.motors[0].header.stamp) >= starts[0]
    marker = shown[-1].markers[1]
    end = marker.pose.position
    expected = Kinematics(load()).pose([0.5, 0.5, 0.0, 0.0, 0.0])[:3, 3]
    assert [end.x, end.y, end.z] == pytest.approx(expected.tolist())
    assert marker.header.frame_id == 'base_link'
    # Updates do not depend on the system's clock, which may be set back.
    period = round(1e9 / RATE_HZ)
    assert {each.clock.clock_type for each in arm.running.node.timers
            if each.timer_period_ns == period} == {ClockType.STEADY_TIME}


def test_trajectory_moves_only_while_its_viewer_is_alive(peer, controller):
    arm = controller('viewer_timeout:=0.5', 'goal_timeout:=2.0')
    alive = peer.talk('arm/viewer_alive')
    ask, reason = arm.asking(), 'no sign of life of the viewer for 2 s'
    # Not before the viewer's first sign of life.
    arm.until_aborted(reason, ask)
    # One that waits for its start is given up, too.
    arm.until(lambda: arm.status[-1].state == 'waiting', 'it waits', arm.asking(after=30.0))
    arm.until_aborted(reason)
    assert not any(message.base for message in arm.motors)
    # From then on, and until the last.
    arm.until(lambda: any(message.base for message in arm.motors), 'the base turns',
              lambda: (ask(), alive.publish(Empty())))
    arm.until_off()
    arm.until_aborted(reason, ask)
