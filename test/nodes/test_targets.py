"""The node play with targets: targets in, motors out, and who else may command."""

import math

import msgspec.structs
import pytest
import reach_checkpoint
from arm_messages import joints_now, target_at
from builtin_interfaces.msg import Time
from tf2_msgs.msg import TFMessage

from vdl_ros.arm.geometry import load
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.common.consent import ROBOT_ENVIRONMENT
from vdl_ros.msg import EmergencyStopState, MotorCommand
from vdl_ros.nodes import play
from vdl_ros.play.onnx_export import export_policy
from vdl_ros.robots.contract_files import find_contract
from vdl_ros.robots.task import task_of
from vdl_ros.ros import qos
from vdl_ros.ros.arm.arm_topics import moves
from vdl_ros.ros.messages.joint_messages import ArmFrames

GEOMETRY = load()
REACHABLE = (0.15, 0.1, 0.2)
FOLLOW = 'robot:=owi535', 'targets:=true'


@pytest.fixture(scope='module')
def turning(tmp_path_factory):
    """Return a checkpoint whose policy always turns the base."""
    return reach_checkpoint.write(tmp_path_factory.mktemp('run') / 'checkpoint.pt', turning=True)


class Running:
    """A running node, an arm whose joints never move, and what the node publishes."""

    def __init__(self, peer, running):
        self.peer, self.running = peer, running
        self.motors = peer.listen('arm/motors')
        self.status = peer.listen('arm/target_status')
        self.targets = peer.talk('arm/target')
        self.stop = peer.talk('arm/emergency_stop_state')
        self.stop.publish(EmergencyStopState())
        self._states = qos.pub(peer.node, 'arm/joint_states')
        peer.until(lambda: self.status, 'its status')

    def ask(self, place=REACHABLE, frame='base_link'):
        self.targets.publish(target_at(place, frame))

    def measure(self):
        self._states.publish(joints_now(self.peer.node))

    @property
    def own(self):
        return [each for each in self.motors if ROBOT_ENVIRONMENT in each.sender]

    def until(self, condition, what, say=None):
        """Wait while joint states arrive."""
        self.peer.until(condition, what, say=lambda: (self.measure(), say and say()))

    def until_turning(self):
        """Ask for a target until the base turns; asked anew if it was given up meanwhile."""
        begun = len(self.own)
        self.until(lambda: any(each.base == 1 for each in self.own[begun:])
                   and self.status[-1].state == 'running', 'the base turns',
                   say=lambda: self.status[-1].state == 'idle' and self.ask())

    def until_refused(self, reason, *place):
        self.until(lambda: self.status[-1].reason.startswith(f'target refused: {reason}'), reason,
                   say=lambda: self.ask(*place))
        assert self.status[-1].state == 'idle'
        self.until_off()

    def until_off(self):
        """Wait for a command that may arrive after the status."""
        self.peer.until(lambda: not moves(self.own[-1]), 'motors off')


def test_a_target_moves_the_arm_until_a_person_ends_it(node_here, peer, turning):
    arm = Running(peer, node_here(play.PlayNode, *FOLLOW, f'policy:={turning}'))
    others, moving = peer.talk('arm/motors'), peer.talk('/tf')
    # Before a target it commands nothing.
    assert arm.status[-1].state == 'idle'
    assert not arm.own
    arm.until_turning()
    status = arm.status[-1]
    assert list(status.target) == pytest.approx(REACHABLE)
    tool = Kinematics(GEOMETRY).pose([0.0] * 5)[:3, 3]
    arm.until(lambda: arm.status[-1].distance == pytest.approx(
        math.dist(tool, REACHABLE), abs=1e-4), 'the distance')
    assert not status.success
    # Measurements end: off, with the reason, and on again with them.
    peer.until(lambda: arm.status[-1].state == 'paused', 'a pause')
    assert arm.status[-1].reason == 'arm/joint_states: nothing newer than 0.5 s'
    arm.until_off()
    arm.until_turning()
    # Out of reach, no number, and a frame that nobody knows.
    for reason, *place in (
            ('no pose without a collision', (0.0, 0.0, 2.0)),
            ('point: not finite', (math.inf,) * 3),
            ('frame_id: empty, base_link for example', REACHABLE, ''),
            ("no transform from 'tool0' to 'base_link' on /tf", (0.0, 0.0, 0.02), 'tool0')):
        arm.until_turning()
        arm.until_refused(reason, *place)
    moving.publish(TFMessage(transforms=[
        *(frames := ArmFrames(GEOMETRY)).fixed(Time()), *frames.moving([0.0] * 5, Time())]))
    arm.until(lambda: arm.status[-1].target[2] == pytest.approx(tool[2] + 0.02),
              'the place of a target in another frame', say=lambda: (
                  arm.status[-1].state == 'idle' and arm.ask((0.0, 0.0, 0.02), 'tool0')))
    arm.until_turning()
    arm.until(lambda: arm.status[-1].reason == 'the target is withdrawn', 'it is given up',
              say=lambda: arm.ask((math.nan,) * 3))
    arm.until_off()
    # A person ends it, not by a lamp; nothing moves before it is asked again.
    arm.until_turning()
    others.publish(MotorCommand(sender='/viewer', lamp=1))
    turned = len([each for each in arm.own if each.base])
    arm.until(lambda: len([each for each in arm.own if each.base]) > turned + 5, 'more commands',
              say=lambda: arm.status[-1].state == 'idle' and arm.ask())
    arm.until(lambda: arm.status[-1].reason == '/teleop switched the motors off', 'a person',
              say=lambda: others.publish(MotorCommand(sender='/teleop')))
    arm.until_off()
    # So does one whom only the driver hears.
    arm.until_turning()
    arm.stop.publish(EmergencyStopState(commanded=Time(sec=5)))
    arm.until(lambda: arm.status[-1].reason == 'a person commands the robot', 'the news')
    arm.until_off()
    arm.stop.publish(EmergencyStopState(engaged=True))
    arm.until_refused('emergency stop')
    arm.stop.publish(EmergencyStopState())
    arm.until_turning()
    arm.running.interrupt()
    arm.until_off()
    assert arm.running.end() == 0


def of_robot(path, **changed):
    """Write a policy that a training on the topics of the arm has made."""
    contract = msgspec.structs.replace(find_contract('owi535_sim'), **changed)
    return reach_checkpoint.write(
        path, turning=True, env_id='robot/owi535_sim',
        described=task_of(contract).description(contract))


def test_a_policy_that_learned_on_the_topics_of_the_arm_is_played(node_here, peer, tmp_path):
    path = of_robot(tmp_path / 'checkpoint.pt')
    Running(peer, node_here(play.PlayNode, *FOLLOW, f'policy:={path}')).until_turning()


def test_checkpoints_that_do_not_fit_are_refused_in_one_line(refused, tmp_path, turning):
    path = tmp_path / 'a.pt'

    def write(**options):
        return reach_checkpoint.write(path, **options)

    def of_onnx(**options):
        export_policy(write(**options), tmp_path / 'a.onnx')
        return tmp_path / 'a.onnx'

    for make, reason in (
            (lambda: write(described={}), 'the checkpoint does not describe its environment'),
            (lambda: write(described={'task': 'x'}), "task: 'x' is not 'vdl_ros/OWI535Reach-v0'"),
            (lambda: write(env_wrappers='FlattenObservation'),
             "env_wrappers: 'FlattenObservation' is not allowed: a robot has no wrappers"),
            (lambda: of_robot(path, rate=20.0), 'rate: 20.0 is not 10.0'),
            (lambda: of_onnx(env_kwargs='{"rate": 20}'),
             'a.onnx: rate: 20 is not 10.0'),
            (lambda: reach_checkpoint.write(tmp_path / 'a.onnx'), 'a.onnx: not an ONNX file'),
            (lambda: write(bias=math.nan), 'a.pt: not all weights are finite')):
        assert reason in refused(play.main, *FOLLOW, f'policy:={make()}')
    assert 'lengths: tool0 is up to' in refused(
        play.main, *FOLLOW, f'policy:={turning}',
        '''task_arguments:='{"xacro_args": "forearm_length=0.2"}' ''')
    assert 'targets: true is not allowed: diff_drive takes no targets' in refused(
        play.main, 'robot:=examples/diff_drive/diff_drive.yaml', 'targets:=true',
        f'policy:={turning}')
