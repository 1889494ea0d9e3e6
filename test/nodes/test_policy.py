"""The node policy: targets in, motors out, and who else may command."""

import math
import threading

import msgspec.structs
import psutil
import pytest
import reach_checkpoint
from builtin_interfaces.msg import Time
from geometry_msgs.msg import PointStamped
from sensor_msgs.msg import JointState
from tf2_msgs.msg import TFMessage

from vdl_ros.arm.geometry import load
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig, EnvModulesConfig
from vdl_ros.msg import ArmPose, EmergencyStopState, MotorCommand
from vdl_ros.nodes import policy as policy_node
from vdl_ros.nodes.policy import ArmPolicy
from vdl_ros.play.onnx_export import export_policy
from vdl_ros.play.onnx_policy import ActionError
from vdl_ros.rl.runs.checkpoint import load_checkpoint
from vdl_ros.robots.contract import find_contract
from vdl_ros.robots.task import task_of
from vdl_ros.ros import qos
from vdl_ros.ros.arm.arm_topics import moves
from vdl_ros.ros.messages.joint_messages import ArmFrames
from vdl_ros.ros.robots.robot_env import register

GEOMETRY = load()
REACHABLE = (0.15, 0.1, 0.2)


@pytest.fixture(scope='module')
def turning(tmp_path_factory):
    """Return a checkpoint whose policy always turns the base."""
    return reach_checkpoint.write(tmp_path_factory.mktemp('run') / 'checkpoint.pt', turning=True)


class Running:
    """A running policy node and what it publishes."""

    def __init__(self, peer, running):
        self.peer, self.running = peer, running
        self.motors = peer.listen('arm/motors')
        self.status = peer.listen('arm/target_status')
        self.targets = peer.talk('arm/target')
        self._states = qos.pub(peer.node, 'arm/joint_states')
        peer.until(lambda: self.status, 'its status')

    def ask(self, place=REACHABLE, frame='base_link'):
        message = PointStamped()
        message.header.frame_id = frame
        message.point.x, message.point.y, message.point.z = map(float, place)
        self.targets.publish(message)

    def measure(self, **positions):
        message = JointState(name=list(JOINTS), position=[
            float(positions.get(name, 0.0)) for name in JOINTS])
        message.header.stamp = self.peer.node.get_clock().now().to_msg()
        self._states.publish(message)

    @property
    def own(self):
        return [each for each in self.motors if each.sender == '/policy']

    def until(self, condition, what, say=None):
        """Wait while joint states arrive."""
        self.peer.until(condition, what, say=lambda: (self.measure(), say and say()))

    def until_turning(self):
        """Ask for a target until the base turns; asked anew if it was given up meanwhile."""
        begun = len(self.own)

        def ask():
            if self.status[-1].state == 'idle':
                self.ask()
        self.until(lambda: any(each.base == 1 for each in self.own[begun:])
                   and self.status[-1].state == 'running', 'the base turns', say=ask)

    def until_reason(self, state, reason, say=None):
        """Wait for it; a target that a machine that stood still has ended is asked for anew."""
        def again():
            if self.status[-1].state == 'idle' and self.status[-1].reason != reason:
                self.measure()
                self.ask()
        self.peer.until(lambda: (self.status[-1].state, self.status[-1].reason) == (
            state, reason), reason, say=lambda: (again(), say and say()))

    def turn_until(self, reason, act, before=lambda: None):
        """Let the base turn and ``act``, until the target is given up for this reason."""
        while True:
            before()
            self.until_turning()
            begun = len(self.status)
            act()
            self.until(lambda: self.status[-1].state == 'idle', reason)
            if self.status[-1].reason == reason:
                return [each.state for each in self.status[begun:]]

    def until_off(self):
        """Wait for a command that may arrive after the status."""
        self.peer.until(lambda: not moves(self.own[-1]), 'motors off')


@pytest.fixture
def start(node_here, peer, turning):
    return lambda *parameters, checkpoint=turning: Running(
        peer, node_here(policy_node.PolicyNode, f'policy:={checkpoint}', *parameters))


def test_a_target_moves_the_arm_until_a_reason_stops_it(launch, peer, turning):
    """One process for all: each reason switches the motors off by a command."""
    arm = Running(peer, launch.node('policy', f'policy:={turning}'))
    health = peer.listen('/diagnostics')
    stop = peer.talk('arm/emergency_stop_state')
    others = peer.talk('arm/motors')
    peer.until(lambda: others.get_subscription_count() > 1, 'the policy')
    frames = ArmFrames(GEOMETRY)
    # Before a target it commands nothing.
    assert arm.status[-1].state == 'idle'
    assert not arm.own
    arm.until_turning()
    status = arm.status[-1]
    assert list(status.target) == pytest.approx(REACHABLE)
    tool = Kinematics(GEOMETRY).pose([0.0] * 5)[:3, 3]
    assert status.distance == pytest.approx(math.dist(tool, REACHABLE), abs=1e-4)
    assert not status.success
    # Measurements end: off, with the reason, and on again with them.
    arm.until_reason('paused', 'the joint states are too old')
    arm.until_off()
    peer.until(lambda: any(
        (each.name, each.message) == ('/policy', 'the joint states are too old')
        for array in health for each in array.status), 'the reason on /diagnostics')
    arm.until_turning()
    # The camera sees the arm, but its estimates are withheld.
    poses = peer.talk('arm/pose')
    arm.until_reason('paused', 'the pose by camera is too uncertain',
                     say=lambda: poses.publish(ArmPose()))
    # Out of reach, and a frame that nobody knows.
    arm.until_turning()
    arm.until(lambda: 'no pose without a collision' in arm.status[-1].reason, 'out of reach',
              say=lambda: arm.ask((0.0, 0.0, 2.0)))
    assert arm.status[-1].state == 'idle'
    arm.until_off()
    arm.until(lambda: (arm.status[-1].state, arm.status[-1].reason) == (
        'paused', "no transform from 'tool0' to 'base_link' on /tf"), 'the missing frame',
        say=lambda: arm.status[-1].state == 'idle' and arm.ask((0.0, 0.0, 0.02), 'tool0'))
    arm.until_off()
    moving = peer.talk('/tf')
    moving.publish(TFMessage(transforms=[
        *frames.fixed(Time()), *frames.moving([0.0] * 5, Time())]))
    arm.until(lambda: arm.status[-1].target[2] == pytest.approx(tool[2] + 0.02),
              'the place of a target in another frame', say=lambda: (
                  arm.status[-1].state == 'idle' and arm.ask((0.0, 0.0, 0.02), 'tool0')))
    # The emergency stop needs a new target, which is refused while it is engaged.
    arm.turn_until('emergency stop', before=lambda: stop.publish(EmergencyStopState()),
                   act=lambda: stop.publish(EmergencyStopState(engaged=True)))
    arm.until_off()
    arm.until_reason('idle', 'target refused: emergency stop')
    stop.publish(EmergencyStopState(neutral_required=True))
    arm.until(lambda: arm.status[-1].reason == 'the emergency stop was released',
              'commands of all motors off', say=arm.ask)
    arm.until_off()
    stop.publish(EmergencyStopState())
    # A person moves the arm: not a word any more, not even off, and a new target is refused.
    states = arm.turn_until('/viewer moves the robot', act=lambda: others.publish(
        MotorCommand(sender='/viewer', elbow=1)))
    # Off before that if measurements were held up.
    assert arm.own[-1].base == 1 or 'paused' in states
    arm.until_reason('idle', 'target refused: /viewer moves the robot', say=lambda: (
        others.publish(MotorCommand(sender='/viewer', elbow=1)), arm.ask()))
    arm.until_turning()
    # A lamp is nobody's move; all motors off is for those of the policy too.
    others.publish(MotorCommand(sender='/viewer', lamp=1))
    others.publish(MotorCommand(sender='/arm_controller'))
    turned = len([each for each in arm.own if each.base])
    arm.until(lambda: len([each for each in arm.own if each.base]) > turned + 5,
              'more commands', say=lambda: arm.status[-1].state == 'idle' and arm.ask())
    arm.turn_until('/teleop switched the motors off', act=lambda: others.publish(
        MotorCommand(sender='/teleop')))
    arm.until_off()
    # What waits for a process that stands still must not move the arm when it goes on.
    arm.until_turning()
    node = psutil.Process(arm.running.process.pid)
    node.suspend()
    arm.ask()
    begin = peer.node.get_clock().now().nanoseconds
    peer.until(lambda: peer.node.get_clock().now().nanoseconds > begin + 1.5e9, 'the gap',
               say=arm.measure)
    node.resume()
    arm.until(lambda: arm.status[-1].reason == 'target refused: the process stood still',
              'the end')
    arm.until_off()
    assert arm.status[-1].state == 'idle'
    arm.until_turning()
    arm.running.interrupt()
    arm.until_off()
    assert arm.running.wait() == 0


def test_nothing_moves_while_a_viewer_is_needed_and_missing(start, peer):
    arm = start('policy_viewer_timeout:=0.5', 'policy_give_up_after:=0.3')
    arm.until(lambda: arm.status[-1].reason == 'no sign of life of the viewer, for 0.3 s',
              'the viewer', say=lambda: arm.status[-1].state == 'idle' and arm.ask())
    assert not any(each.base for each in arm.own)


def of_robot(path, **changed):
    """Write a policy that a training on the topics of the arm has made."""
    contract = msgspec.structs.replace(find_contract('owi535_sim'), **changed)
    return reach_checkpoint.write(
        path, turning=True, env_id='robot/owi535_sim',
        described=task_of(contract).description(contract))


def test_a_policy_that_learned_on_the_topics_of_the_arm_is_played(start, peer, tmp_path):
    path = of_robot(tmp_path / 'checkpoint.pt')
    register(EnvModulesConfig(), peer.node.get_namespace(), threading.Event())
    # What a training writes.
    assert factory.describe(EnvConfig(env_id='robot/owi535_sim')) == {
        'environment': load_checkpoint(path)['config']['environment']}
    start(checkpoint=path).until_turning()


def test_an_action_that_is_none_switches_the_motors_off(start, monkeypatch):
    def refuse(observation, starts):
        raise ActionError('values: not all are finite')

    monkeypatch.setattr(
        policy_node, 'open_policy', lambda path, geometry: ArmPolicy(refuse, 'ppo', 0))
    arm = start()
    arm.until(lambda: arm.status[-1].reason == 'policy: values: not all are finite', 'the reason',
              say=lambda: arm.status[-1].state == 'idle' and arm.ask())
    arm.until_off()
    assert not any(moves(each) for each in arm.own)


def test_checkpoints_that_do_not_fit_are_refused_in_one_line(refused, tmp_path, turning):
    path = tmp_path / 'a.pt'

    def write(**options):
        return reach_checkpoint.write(path, **options)

    def of_onnx(**options):
        export_policy(write(**options), tmp_path / 'a.onnx')
        return tmp_path / 'a.onnx'

    for make, reason in (
            (lambda: tmp_path / 'none.pt',
             'is not allowed: a checkpoint, an .onnx file, or the name'),
            (lambda: write(described={}), 'the checkpoint does not describe its environment'),
            (lambda: write(described={'task': 'x'}), "task: 'x' is not 'vdl_ros/OWI535Reach-v0'"),
            (lambda: write(lstm_size=2, last_action_reward=True),
             'last_action_reward: true is not allowed'),
            (lambda: write(env_wrappers='FlattenObservation'),
             "env_wrappers: 'FlattenObservation' is not allowed: the arm has no wrappers"),
            (lambda: of_robot(path, rate=20.0), 'rate: 20.0 is not 10.0'),
            (lambda: write(described={}, env_id='robot/diff_drive'),
             "env_id is 'robot/diff_drive', not 'vdl_ros/OWI535Reach-v0'"),
            (lambda: of_onnx(env_kwargs='{"rate": 20}'),
             'a.onnx: rate: 20 is not 10.0'),
            (lambda: reach_checkpoint.write(tmp_path / 'a.onnx'), 'a.onnx: not an ONNX file'),
            (lambda: write(bias=math.nan), 'a.pt: not all weights are finite')):
        assert reason in refused(policy_node.main, f'policy:={make()}')
    assert 'lengths: tool0 is up to' in refused(
        policy_node.main, f'policy:={turning}', 'xacro_args:=forearm_length=0.2')
