"""The node sim_arm: topics of the real arm, joint states, services."""

import itertools
import json
import math
import os
import signal
from pathlib import Path

import pytest
from visualization_msgs.msg import Marker

from vdl_ros.arm.geometry import load
from vdl_ros.arm.joints import JOINTS
from vdl_ros.msg import EmergencyStop, EmergencyStopState, MotorCommand
from vdl_ros.nodes import sim_arm
from vdl_ros.nodes.stop import StopNode
from vdl_ros.ros import qos
from vdl_ros.ros.arm.arm_topics import release_request, stop_request
from vdl_ros.ros.messages.joint_messages import pose_of, seconds
from vdl_ros.srv import SetJointPositions, StepSimulation

SPEED = float(load().velocity[1])


class Twin:
    """A running sim_arm, as its peer sees it."""

    def __init__(self, peer, running):
        self.peer, self.running = peer, running
        self.states, self.sent, self.stops = map(peer.listen, (
            'arm/joint_states', 'arm/motors_sent', 'arm/emergency_stop_state'))
        self.motors = peer.talk('arm/motors')
        self._releases = qos.pub(peer.node, 'arm/emergency_stop_release')

    def angle(self, joint):
        return self.states[-1].position[JOINTS.index(joint)]

    def stamp(self):
        return seconds(self.states[-1].header.stamp)

    def command(self, **motors):
        self.motors.publish(MotorCommand(sender='/test', **motors))

    def release(self, sender='/test', state=None):
        """Release a ``state``, by default the one that arrived last."""
        self._releases.publish(
            release_request(sender, 'the test is over', state or self.stops[-1]))

    def sent_since(self, state):
        """Return what was sent after a state of the emergency stop."""
        return [each for each in self.sent
                if seconds(each.header.stamp) > seconds(state.header.stamp)]

    def let_go(self):
        """Switch motors off, and the lamp on, until it is on."""
        self.keep(lambda: self.sent and self.sent[-1].lamp == 1, 'the lamp', lamp=1)

    def keep(self, condition, what, also=lambda: None, **motors):
        """Repeat a command until something is true."""
        self.peer.until(condition, what, every=0.05, say=lambda: (also(), self.command(**motors)))


def known_stops():
    """Return the number of stops in the files of the drivers."""
    files = Path(os.environ['ROS_HOME']).rglob('emergency_stop/*.json')
    return sum(len(json.loads(each.read_text())['known']) for each in files)


@pytest.fixture
def twin(node_here, peer):
    return lambda *parameters: Twin(peer, node_here(sim_arm.SimArmNode, *parameters))


def test_who_holds_a_key_while_a_fast_twin_starts_has_to_let_go(twin):
    arm = twin('real_time_factor:=100.0', 'publish_clock:=true')
    arm.peer.until(lambda: arm.states and arm.stamp() > 10.0, 'ten seconds of its time')
    arm.keep(lambda: '/test: motors off until it lets go' in arm.running.output, 'a line',
             base=1)


def test_motors_move_joints_only_while_commanded(twin, peer):
    arm = twin('speed_variation:=0.0')
    peer.until(lambda: arm.states, 'a joint state')
    assert list(arm.states[-1].name) == list(JOINTS)
    assert arm.angle('shoulder') == pytest.approx(0.0, abs=0.02)
    arm.keep(lambda: '/test: motors off until it lets go' in arm.running.output, 'a line',
             shoulder=1)
    arm.let_go()
    assert not any(each.shoulder for each in arm.sent)
    arm.keep(lambda: arm.angle('shoulder') > 0.3, 'the shoulder bends', shoulder=1)
    # Without a stop command the watchdog stops.
    peer.until(lambda: arm.sent[-1].shoulder == 0, 'the watchdog')
    peer.until(lambda: abs(arm.states[-1].velocity[1]) < 1e-3, 'the shoulder rests')
    assert arm.angle('base') == pytest.approx(0.0, abs=0.02)
    assert {sent.sender for sent in arm.sent} == {'/sim_arm'}


def test_emergency_stop_outranks_all_commands_until_its_newest_state_is_released(twin, peer):
    arm = twin()
    states = arm.stops
    stop = peer.talk('arm/emergency_stop')
    markers = peer.listen('arm/emergency_stop_marker')
    arm.let_go()
    arm.keep(lambda: arm.sent[-1].base == 1, 'the base turns', base=1)
    stop.publish(stop_request('/test', 'a\ntest'))
    arm.keep(lambda: states and states[-1].engaged and len(arm.sent_since(states[-1])) > 3,
             'what is sent is sent again', base=1)
    first = states[-1]
    assert (first.sender, first.reason) == ('/test', "'a\\ntest'")
    peer.until(lambda: "emergency stop: motors off by '/test'" in arm.running.output,
               'who engaged it')
    peer.until(lambda: markers and markers[-1].text == 'EMERGENCY STOP by /test',
               'the text in rviz')
    # Typed by hand: neither stamp nor sender. A release of the first is then too late.
    stop.publish(EmergencyStop())
    peer.until(lambda: states[-1].header.stamp != first.header.stamp, 'the second stop')
    peer.until(lambda: "a release by '/two' is ignored: it does not" in arm.running.output,
               'the refusal', say=lambda: arm.release('/two', first), every=1.0)
    assert (states[-1].engaged, states[-1].sender) == (True, '')
    # What is still commanded does not move the arm.
    arm.keep(lambda: not states[-1].engaged, 'the release', base=1, also=arm.release)
    assert states[-1].neutral_required
    peer.until(lambda: markers[-1].action == Marker.DELETE, 'no text in rviz')
    count = len(arm.sent)
    arm.keep(lambda: len(arm.sent) > count + 3, 'what is sent is sent again', base=1)
    assert not any(each.base for each in arm.sent_since(first))
    arm.keep(lambda: not states[-1].neutral_required, 'a neutral command')
    arm.keep(lambda: arm.sent[-1].base == 1, 'the base turns again', base=1)


def test_the_stop_is_engaged_and_released_from_a_terminal(twin, peer, node_here):
    arm = twin()
    arm.let_go()

    def finished(make):
        running = node_here(make)
        peer.until(lambda: not running.is_running, 'the answer')
        return running.end()

    assert finished(StopNode) == 0
    peer.until(lambda: arm.stops[-1].engaged, 'the stop')
    assert (arm.stops[-1].sender, arm.stops[-1].reason) == ('/stop', 'ros2 run vdl_ros stop')
    assert finished(lambda: StopNode(release=True)) == 0
    peer.until(lambda: not arm.stops[-1].engaged, 'the release')


def test_late_start_finds_the_stop_engaged_despite_an_earlier_release(twin, peer):
    for stop in [qos.pub(peer.node, 'arm/emergency_stop') for _ in range(2)]:
        stop.publish(stop_request('/test', 'before the start'))
    arm = twin()
    states = arm.stops
    arm.release(state=EmergencyStopState())
    arm.keep(lambda: known_stops() == 2, 'both stops', base=1)
    arm.keep(lambda: states and states[-1].engaged and len(arm.sent_since(states[-1])) > 3,
             'commands do nothing', base=1)
    assert not any(each.base for each in arm.sent_since(states[-1]))
    arm.keep(lambda: states and not states[-1].neutral_required and not states[-1].engaged,
             'the release', also=lambda: states and arm.release())
    arm.keep(lambda: arm.sent[-1].base == 1, 'the base turns', base=1)


def test_emergency_stop_survives_its_publisher_and_a_killed_or_interrupted_driver(
        launch, twin, peer):
    arm = Twin(peer, launch.node('sim_arm'))
    stop = peer.talk('arm/emergency_stop')
    request = stop_request('/test', 'a test')
    stop.publish(request)
    peer.until(lambda: arm.stops and arm.stops[-1].engaged, 'the stop')
    stamp = arm.stops[-1].header.stamp
    # Nobody is left who would repeat it.
    peer.node.destroy_publisher(stop)
    os.kill(arm.running.process.pid, signal.SIGKILL)
    arm.running.wait()
    arm = twin()
    peer.until(lambda: arm.stops and arm.sent, 'the state')
    # With another stamp: what was asked before this start does not go on after the release.
    assert arm.stops[-1].engaged
    assert arm.stops[-1].header.stamp != stamp
    arm.running.end()
    arm = twin()
    arm.keep(lambda: arm.stops and len(arm.sent) > 6, 'commands do nothing', base=1)
    state = arm.stops[-1]
    assert (state.engaged, state.sender) == (True, '/test')
    assert not any(sent.base for sent in arm.sent)
    # A new publisher releases it.
    stop = peer.talk('arm/emergency_stop')
    arm.keep(lambda: not arm.stops[-1].engaged and not arm.stops[-1].neutral_required,
             'the release', also=arm.release)
    arm.keep(lambda: arm.sent[-1].base == 1, 'the base turns', base=1)
    # What moves is stopped also by a request that is stamped like one from before the start.
    stop.publish(request)
    peer.until(lambda: arm.stops[-1].engaged, 'the stop')


def test_two_senders_and_a_second_arm_are_warned_of(twin, peer):
    arm = twin()
    health, other = peer.listen('/diagnostics'), peer.talk('arm/motors')
    # By turns: of two commands at once the later one replaces the other.
    turns = itertools.cycle([
        lambda: arm.command(base=1), lambda: other.publish(MotorCommand(sender='/other'))])
    peer.until(lambda: '2 publishers at once: /other, /test' in arm.running.output,
               'the warning', every=0.05, say=lambda: next(turns)())

    def values():
        return {each.key: each.value for each in health[-1].status[0].values} if health else {}

    peer.until(lambda: (values().get('state'), values().get('motors')) == ('active', 'off'),
               'diagnostics')
    twin()
    peer.until(lambda: '2 arms obey the same commands: /sim_arm, /sim_arm: end one'
               in arm.running.output, 'the warning of a second arm')


def test_set_pose_applies_at_once_and_refuses_invalid_poses(twin, peer):
    arm = twin('start_pose:=shoulder=0.4 elbow=-0.8', 'cube:=true')
    cubes = peer.listen('cube/pose')
    peer.until(lambda: arm.states, 'a joint state')
    assert (arm.angle('shoulder'), arm.angle('elbow')) == pytest.approx((0.4, -0.8), abs=0.02)
    done = peer.call(SetJointPositions, 'sim_arm/set_pose', SetJointPositions.Request(
        name=['base', 'gripper'], position=[0.5, 0.2], cube=[0.18, -0.1, 0.0]))
    assert (done.success, done.message) == (True, '')
    peer.until(lambda: cubes and pose_of(cubes[-1].pose)[:2] == pytest.approx((0.18, -0.1)),
               'the cube')
    peer.until(lambda: abs(arm.angle('base') - 0.5) < 1e-6, 'the pose')
    assert arm.angle('gripper') == pytest.approx(0.2, abs=0.02)
    for names, positions, reason in (
            (['base'], [9.0], 'base: 9 is not allowed: from -2.094 to 2.094'),
            (['base'], [], '1 names and 0 positions'),
            (['base', 'base'], [0.0, 0.1], 'no name twice')):
        done = peer.call(SetJointPositions, 'sim_arm/set_pose', SetJointPositions.Request(
            name=names, position=positions))
        assert not done.success, reason
        assert reason in done.message
    assert arm.angle('base') == pytest.approx(0.5, abs=1e-3)
    done = peer.call(StepSimulation, 'sim_arm/step', StepSimulation.Request(seconds=0.1))
    assert not done.success, 'time is real'
    assert 'stepped:=true' in done.message


def test_stepped_time_passes_only_by_steps_and_is_the_clock(twin, peer):
    arm = twin('stepped:=true', 'publish_clock:=true', 'speed_variation:=0.0',
               'command_delay:=0.0', 'start_delay:=0.0', 'dead_zone:=0.0')
    clock = peer.listen('/clock')

    def step(seconds):
        return peer.call(StepSimulation, 'sim_arm/step', StepSimulation.Request(seconds=seconds))

    done = step(0.1)
    assert (done.success, done.time.sec, done.time.nanosec) == (True, 0, 100_000_000)
    # Without a step the command waits, however long.
    arm.keep(lambda: arm.sent and arm.sent[-1].shoulder == 1, 'the command', shoulder=1)
    for _ in range(4):
        step(0.1)
        arm.command(shoulder=1)
    peer.until(lambda: arm.states and arm.stamp() == pytest.approx(0.5), 'joint states')
    assert arm.angle('shoulder') == pytest.approx(0.4 * SPEED, abs=0.2 * SPEED)
    peer.until(lambda: clock and clock[-1].clock.nanosec == 500_000_000, 'the clock')
    stamps = [seconds(state.header.stamp) for state in arm.states]
    assert stamps == sorted(stamps)
    # Small steps are as long as large ones, though the physics steps by 4 ms.
    for _ in range(50):
        done = step(0.01)
    assert (done.time.sec, done.time.nanosec) == (1, 0)
    assert step(-1.0).message == 'seconds: -1 is not allowed: from 0 to 600'
    assert not step(math.nan).success


def test_invalid_settings_are_refused_in_one_line(refused):
    for parameter, reason in (
            ('start_pose:=shoulder', "start_pose: 'shoulder' is not allowed: joint=rad"),
            ('start_pose:=shoulder=99', 'shoulder: 99 is not allowed'),
            ('urdf:=/nowhere/arm.urdf', '/nowhere/arm.urdf'),
            ('xacro_args:=arm_length=1', "no argument 'arm_length'")):
        assert reason in refused(sim_arm.main, parameter)
