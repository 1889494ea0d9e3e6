"""`ros2 launch vdl_ros arm.launch.py`: the whole graph moves an arm, and stops it."""

import importlib
import itertools
import math
import runpy
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from ament_index_python.packages import PackageNotFoundError
from launch.event_handlers import OnProcessExit
from processes import has_ended
from rcl_interfaces.srv import GetParameters
from rclpy.qos import DurabilityPolicy
from sensor_msgs.msg import JointState

from vdl_ros.arm.geometry import load
from vdl_ros.arm.joints import JOINTS
from vdl_ros.bags.reader import BagReader
from vdl_ros.common.settings import SettingError
from vdl_ros.msg import MotorCommand
from vdl_ros.pose.estimator import save_model
from vdl_ros.pose.networks import make_model
from vdl_ros.ros import launch_nodes, qos
from vdl_ros.ros.messages.joint_messages import trajectory_message

REAL = ('arm:=real', 'usb_backend:=fake_owi535:make')
# What is killed, and the arguments that start no more than it, a driver and robot_state.
VICTIMS = {
    'arm_driver': {'black_box': 'black'},
    # The launch itself, with all nodes.
    'launch': {'controller': 'true', 'camera': 'sim', 'view': 'true', 'record': 'bag'}}
LEAST = {'controller': 'false', 'camera': 'none', 'view': 'false', 'view_port': '0',
         'black_box': 'none'}
# What each node says once it is at work.
AT_WORK = {'arm_driver': '', 'robot_state': '', 'arm_controller': '', 'viewer': 'view: http',
           'recorder': 'recording to', 'camera': 'waiting for'}
LAUNCH = Path(__file__).resolve().parents[2] / 'launch' / 'arm.launch.py'


def nanoseconds(message):
    return message.header.stamp.sec * 10**9 + message.header.stamp.nanosec


def test_a_trajectory_moves_the_simulated_arm_and_stops_while_the_viewer_hangs(
        launch, peer):
    lengths = {'forearm_length': '0.2', 'hand_length': '0.13'}
    process = launch.file('arm', 'view_port:=0', 'rate:=5', 'black_box:=none',
                          'camera_distance:=1.1', 'xacro_args:=' + ' '.join(
                              f'{name}={value}' for name, value in lengths.items()))
    states, images, infos, status, sent, frames, description = map(peer.listen, (
        'arm/joint_states', 'camera/image_raw', 'camera/camera_info', 'arm/trajectory_status',
        'arm/motors_sent', '/tf', 'robot_description'))
    talk = peer.talk('arm/joint_trajectory')
    peer.until(lambda: states and images and infos and frames and description and status,
               'every topic')
    process.wait_for(lambda: 'view: http://127.0.0.1:' in process.output
                     and 'simulated arm ready' in process.output, "twin and the view's address")
    assert description[-1].data == load({**lengths, 'camera_distance': 1.1}).urdf
    assert (images[-1].width, images[-1].height, images[-1].encoding) == (320, 240, 'rgb8')

    def asking(names, points, times):
        """Return a function that asks for a trajectory unless one runs."""
        def ask():
            if status[-1].state != 'running':
                talk.publish(trajectory_message(names, points, times))
        return ask

    points = [[0.3, 0.2, -0.3, 0.2, 0.1], [-0.2, 0.3, 0.3, -0.2, 0.3], [0.2, -0.2, 0.4, 0.1, 0.2]]
    # Again if nodes have not found each other, or the machine stood still.
    peer.until(lambda: status[-1].state == 'done' and len(status[-1].name) == len(JOINTS),
               'a trajectory of three points', every=1.0, say=asking(JOINTS, points, [2, 4.5, 7]))
    assert status[-1].reason == ''
    # States may arrive later than the status.
    peer.until(lambda: nanoseconds(states[-1]) > nanoseconds(status[-1])
               and np.abs(states[-1].velocity).max() < 1e-3, 'rest')
    assert np.abs(np.array(states[-1].position) - points[-1]).max() < math.radians(3.0)

    ask = asking(['base'], [[2.0]], [60.0])
    sent.clear()
    peer.until(lambda: any(each.base for each in sent), 'the base turns', every=1.0, say=ask)
    viewer, before = process.nodes('viewer')[0], len(status)
    viewer.send_signal(signal.SIGSTOP)
    try:
        # A machine that stands still for a second aborts a trajectory too.
        peer.until(lambda: any('no sign of life of the viewer' in each.reason
                               for each in status[before:]), 'the end', every=1.0, say=ask)
        peer.until(lambda: not sent[-1].base, 'motors off')
    finally:
        viewer.send_signal(signal.SIGCONT)
    peer.until(lambda: status[-1].state == 'running' and sent[-1].base, 'it turns again',
               every=1.0, say=ask)
    process.stop()


@pytest.mark.parametrize('victim', VICTIMS)
def test_killing_a_process_stops_the_motors(launch, peer, bench, tmp_path, monkeypatch, victim):
    monkeypatch.chdir(tmp_path)  # where the bag is written
    arguments = LEAST | VICTIMS[victim]
    process = launch.file('arm', *REAL, *(f'{name}:={value}' for name, value in arguments.items()))
    motors = peer.talk('arm/motors')
    started = set(AT_WORK) if victim == 'launch' else {'arm_driver', 'robot_state'}

    def command(base=1, shoulder=-1):
        motors.publish(MotorCommand(sender='/test', base=base, shoulder=shoulder))

    process.wait_for(lambda: all(process.nodes(name) for name in started)
                     and all(AT_WORK[name] in process.output for name in started),
                     'every node at work')
    assert not any(process.nodes(name) for name in {*AT_WORK} - started)
    def recorders():
        return [each for each in peer.node.get_subscriptions_info_by_topic('/arm/motors_sent')
                if each.node_name == 'black_box']

    peer.until(lambda: victim != 'arm_driver' or recorders(), 'the black box')
    # A driver that was just activated, or stood still, moves nothing for who has not let go.
    turns = itertools.cycle([partial(command, 0, 0)] + [command] * 40)
    peer.until(lambda: bench.data[-3:] == ['400200'] * 3, 'the arm moves', every=0.05,
               say=lambda: next(turns)())
    target = process.process if victim == 'launch' else process.nodes(victim)[0]
    target.send_signal(signal.SIGKILL)
    # A process may outlive its SIGKILL while the kernel writes to a disk for it.
    peer.until(lambda: has_ended(target.pid), 'its end', every=0.05, say=command)
    # Another node continues to send commands.
    peer.until(lambda: process.process.poll() is not None and not process.family(), 'the end',
               every=0.05, say=command)
    peer.until(lambda: bench.data[-1] == '000000', 'motors off')
    if victim == 'arm_driver':
        assert process.process.returncode == 1
        assert f'{victim}-' in process.output
        bag, = Path('black').iterdir()
        assert any(each.topic == '/arm/motors_sent' for each in BagReader(bag))
        assert f'{bag}: ' in process.output
        assert 'a process of the launch failed' in process.output


def test_the_launch_ends_with_any_of_its_nodes(plan, monkeypatch):
    watched = []
    monkeypatch.setattr(launch_nodes, 'OnProcessExit', lambda **options: (
        watched.append(options) or OnProcessExit(**options)))
    for arguments in (['arm:=real', 'camera:=sim', 'record:=bag'],
                      ['policy:=reach', 'feedback:=camera', 'adversarial_mode:=fgsm']):
        watched.clear()
        nodes, _ = plan('arm.launch.py', *arguments)
        assert {each['target_action'].planned for each in watched
                if each['on_exit'] is launch_nodes.end_all} == nodes.keys() - {'black_box'}


def test_camera_feedback_under_attack_gives_the_controller_only_estimates(launch, peer, tmp_path):
    torch.manual_seed(0)
    model = tmp_path / 'model.pt'
    # Untrained: wrong estimates with high confidence; the controller has nothing else.
    save_model(model, 'resnet', make_model('resnet').state_dict(),
               {'scale': [0.02] * 6, 'threshold': 100.0}, {})
    process = launch.file('arm', 'feedback:=camera', f'model:={model}', 'view:=false',
                          'stop_band:=0.01', 'adversarial_mode:=fgsm',
                          'adversarial_epsilon:=0.01', 'rate:=5', 'black_box:=none')
    states, poses, frames = map(peer.listen, ('arm/joint_states', 'arm/pose', '/tf'))
    truth = peer.listen(JointState, 'arm/joint_truth', qos.TOPICS['arm/joint_states'])
    peer.until(lambda: len(states) > 5 and truth and poses and frames, 'poses')
    assert all(list(each.name) == ['base', 'shoulder', 'elbow'] for each in states)
    assert list(truth[-1].name) == list(JOINTS)
    peer.until(lambda: any(transform.child_frame_id == 'estimated/forearm'
                           for message in frames for transform in message.transforms), 'the ghost')
    # Parameters come from camera_feedback.yaml, or from the user.
    found = peer.call(GetParameters, 'arm_controller/get_parameters', GetParameters.Request(
        names=['start_band', 'stop_band', 'goal_timeout', 'response_time'])).values
    assert [each.double_value for each in found] == [0.06, 0.01, 5.0, 0.06]
    # A label and its image have one stamp, to the nanosecond.
    stamps = set()
    peer.until(lambda: stamps.update(map(nanoseconds, truth))
               or any(nanoseconds(each) in stamps for each in poses), 'the same stamp')

    def subscribers(topic):
        return {each.node_name for each in peer.node.get_subscriptions_info_by_topic(topic)}

    # Messages can arrive before the graph is complete.
    peer.until(lambda: 'attacker' in subscribers('camera/image_raw')
               and 'pose_estimator' in subscribers('camera/image_attacked'), 'the subscriptions')
    assert 'pose_estimator' not in subscribers('camera/image_raw')
    process.nodes('attacker')[0].kill()
    assert process.wait() == 1
    assert 'attacker-' in process.output
    assert not process.family()


def test_every_setting_of_a_node_reaches_it():
    for name, settings in runpy.run_path(str(LAUNCH))['NODES'].items():
        node = importlib.import_module(f'vdl_ros.nodes.{name}').main.__self__
        # The launch itself chooses the robot, and has the description.
        if name not in ('play', 'robot_state'):
            assert set(node.SETTINGS) <= set(settings), name


def test_rviz_subscribes_to_existing_topics_of_the_namespace():
    text = (LAUNCH.parents[1] / 'config' / 'rviz' / 'arm.rviz').read_text()
    manager = yaml.safe_load(text)['Visualization Manager']
    found = [each[key] for each in (*manager['Displays'], *manager['Tools'])
             for key in ('Topic', 'Description Topic') if key in each]
    assert len(found) == 7
    assert {each['Value'] for each in found} \
        == {f'/{name}' for name in runpy.run_path(str(LAUNCH))['RVIZ']}
    for each in found[:-1]:
        profile = qos.TOPICS[each['Value'].lstrip('/')]
        latched = profile.durability == DurabilityPolicy.TRANSIENT_LOCAL
        assert latched == (each['Durability Policy'] == 'Transient Local'), each['Value']


def test_missing_rviz_is_refused_in_one_line(monkeypatch):
    rviz = runpy.run_path(str(LAUNCH))['rviz']

    def missing(package):
        raise PackageNotFoundError(package)

    # It may be installed here.
    monkeypatch.setitem(rviz.__globals__, 'get_package_prefix', missing)
    with pytest.raises(SettingError, match='rviz: rviz2 is not installed'):
        rviz(None)
