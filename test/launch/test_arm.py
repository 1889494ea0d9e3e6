"""`ros2 launch vdl_ros arm.launch.py`: the whole graph moves an arm, and stops it."""

import math
import os
import re
import runpy
import signal
import time
from pathlib import Path

import browser as browsers
import fake_owi535 as fake
import numpy as np
import psutil
import pytest
import torch
import yaml
from ament_index_python.packages import PackageNotFoundError
from rcl_interfaces.srv import GetParameters
from rclpy.qos import DurabilityPolicy
from sensor_msgs.msg import CameraInfo, Image, JointState
from std_msgs.msg import String
from tf2_msgs.msg import TFMessage
from trajectory_msgs.msg import JointTrajectory

from vdl_ros.arm.model.geometry import load
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.common.settings import SettingError
from vdl_ros.msg import ArmPose, JointTrajectoryStatus, MotorCommand
from vdl_ros.pose.model_file import save_model
from vdl_ros.pose.networks import make_model
from vdl_ros.ros import qos
from vdl_ros.ros.messages.joint_messages import trajectory_message

# How long the motors may go on after any process of the graph was killed, s.
STOPPED_WITHIN = 0.6
REAL = ('arm:=real', 'usb_backend:=fake_owi535:make', 'camera:=sim', 'port:=0')
NODES = ('arm_driver', 'arm_controller', 'camera', 'viewer', 'robot_state', 'recorder')


@pytest.fixture
def arm_launch(launch):
    def start(*arguments):
        return launch('ros2', 'launch', 'vdl_ros', 'arm.launch.py', *arguments)
    return start


@pytest.fixture
def bench(monkeypatch):
    with fake.plugged_in() as bench:
        for name, value in bench.env.items():
            monkeypatch.setenv(name, value)
        yield bench


def test_launch_starts_the_simulated_arm_and_a_trajectory_moves_it(arm_launch, peer, tmp_path):
    process = arm_launch('port:=0', 'sim_seed:=5', f'record:={tmp_path / "bag"}')
    states = peer.listen(JointState, 'arm/joint_states', qos.TOPICS['arm/joint_states'])
    images = peer.listen(Image, 'camera/image_raw', qos.TOPICS['camera/image_raw'])
    infos = peer.listen(CameraInfo, 'camera/camera_info', qos.TOPICS['camera/camera_info'])
    status = peer.listen(
        JointTrajectoryStatus, 'arm/trajectory_status', qos.TOPICS['arm/trajectory_status'])
    frames = peer.listen(TFMessage, '/tf', qos.TOPICS['/tf'])
    description = peer.listen(String, 'robot_description', qos.TOPICS['robot_description'])
    talk = peer.talk(JointTrajectory, 'arm/joint_trajectory', qos.TOPICS['arm/joint_trajectory'])
    peer.until(lambda: states and images and infos and frames and description and status,
               'every topic')
    process.wait_for(lambda: 'view: http://127.0.0.1:' in process.output, "the view's address")
    # The recorder listens to every topic, so that one listener may not be the controller.
    peer.until(lambda: talk.get_subscription_count() == 2, 'controller and recorder')
    points = [[0.3, 0.2, -0.3, 0.2, 0.1], [-0.2, 0.3, 0.3, -0.2, 0.3], [0.2, -0.2, 0.4, 0.1, 0.2]]

    def go(names, points, times):
        """Return how the trajectory ended, and why; ask again if the machine stood still."""
        status.clear()
        talk.publish(trajectory_message(names, points, times))
        peer.until(lambda: status and status[-1].state != 'running', 'the end')
        if 'stood still' in status[-1].reason or 'no update for' in status[-1].reason:
            return go(names, points, times)
        return status[-1].state, status[-1].reason

    # Given up as long as controller and twin have not found each other.
    peer.until(lambda: go(['base'], [[0.1]], [0.5]) == ('done', ''), 'a first trajectory')
    assert go(JOINTS, points, [2.0, 4.5, 7.0]) == ('done', '')
    peer.until(lambda: np.abs(states[-1].velocity).max() < 1e-3, 'rest')
    assert np.abs(np.array(states[-1].position) - points[-1]).max() < math.radians(3.0)
    assert (images[-1].width, images[-1].height, images[-1].encoding) == (320, 240, 'rgb8')
    process.interrupt()
    assert process.wait() == 0
    assert not process.family()


def test_trajectory_stops_while_the_viewer_hangs(arm_launch, peer):
    process = arm_launch('port:=0', 'camera:=none', 'goal_timeout:=5.0')
    status = peer.listen(
        JointTrajectoryStatus, 'arm/trajectory_status', qos.TOPICS['arm/trajectory_status'])
    sent = peer.listen(MotorCommand, 'arm/motors_sent', qos.TOPICS['arm/motors_sent'])
    talk = peer.talk(JointTrajectory, 'arm/joint_trajectory', qos.TOPICS['arm/joint_trajectory'])
    process.wait_for(lambda: process.nodes('viewer'), 'the viewer')

    def ask():
        if status and status[-1].state != 'running':
            talk.publish(trajectory_message(['base'], [[2.0]], [60.0]))

    peer.until(lambda: any(each.base for each in sent), 'the base turns', every=1.0, say=ask)
    viewer, before = process.nodes('viewer')[0], len(status)
    viewer.send_signal(signal.SIGSTOP)
    try:
        # A machine that stands still for a second aborts a trajectory too.
        peer.until(lambda: 'no sign of life of the viewer for 5 s' in (
            each.reason for each in status[before:]), 'the end', every=1.0, say=ask)
        peer.until(lambda: not sent[-1].base, 'motors off')
    finally:
        viewer.send_signal(signal.SIGCONT)
    peer.until(lambda: status[-1].state == 'running' and sent[-1].base, 'it turns again',
               every=1.0, say=ask)


def test_recorded_bag_plays_back_into_the_view(arm_launch, launch, peer, tmp_path):
    bag = tmp_path / 'bag'
    run = arm_launch('view:=false', f'record:={bag}',
                     'start_pose:=shoulder=0.5 elbow=-0.7 wrist=0.3')
    images = peer.listen(Image, 'camera/image_raw', qos.TOPICS['camera/image_raw'])
    topics = ('/camera/image_raw', '/arm/joint_states', '/robot_description')
    run.wait_for(lambda: all(f'recording {topic}' in run.output for topic in topics),
                 'the recorder')
    count = len(images)
    peer.until(lambda: len(images) > count + 15, 'some pictures')
    run.interrupt()
    assert run.wait() == 0
    # The same view, and nobody but the bag to fill it.
    view = arm_launch('arm:=none', 'port:=0')
    found = view.wait_for(lambda: re.search(r'view: (http://\S+)', view.output), 'the address')
    player = launch('ros2', 'run', 'vdl_ros', 'player', '--ros-args', '-p', f'bag:={bag}',
                    '-p', 'loop:=true')
    browser = browsers.Browser(tmp_path / 'chromedriver.txt')
    try:
        browser.open(found[1])
        for angle in ('28.6°', '-40.1°', '17.2°'):
            peer.until(lambda angle=angle: angle in browser.text,
                       f'{angle}: {player.output}{view.output}')
        view.wait_for(lambda: browser.run('return document.querySelectorAll("img").length'),
                      'the picture of the camera')
        assert browser.errors() == []
    finally:
        browser.close()


def has_ended(pid):
    try:
        process = psutil.Process(pid)
        return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize('victim', [*NODES, 'launch'])
def test_killing_any_process_stops_the_motors_in_time(
        arm_launch, peer, bench, took, tmp_path, victim):
    process = arm_launch(*REAL, f'record:={tmp_path / "bag"}')
    motors = peer.talk(MotorCommand, 'arm/motors', qos.TOPICS['arm/motors'])

    def command():
        motors.publish(MotorCommand(sender='/test', base=1, shoulder=-1))

    process.wait_for(lambda: all(process.nodes(name) for name in NODES), 'every node')
    process.wait_for(lambda: 'view: http' in process.output and 'recording to' in process.output
                     and 'waiting for' in process.output, 'every node at work')
    peer.until(lambda: bench.data[-3:] == ['400200'] * 3, 'the arm moves', every=0.05, say=command)
    target = process.process if victim == 'launch' else process.nodes(victim)[0]
    target.send_signal(signal.SIGKILL)
    # A process may outlive its SIGKILL while the kernel writes to a disk for it.
    peer.until(lambda: has_ended(target.pid), 'its end', every=0.05, say=command)
    killed = time.monotonic()
    # Another node continues to send commands.
    peer.until(lambda: process.process.poll() is not None and not process.family(), 'the end',
               every=0.05, say=command)
    peer.until(lambda: bench.data[-1] == '000000', 'motors off')
    moving = [each.time for each in bench.transfers if each.data != '000000']
    stopped = min(each.time for each in bench.transfers
                  if each.data == '000000' and each.time > moving[-1])
    print(f'{victim} killed: motors off after {(stopped - killed) * 1e3:.0f} ms')
    assert took(killed, stopped) <= STOPPED_WITHIN
    if victim != 'launch':
        assert process.process.returncode == 1
        assert f'{victim}-' in process.output


def test_camera_feedback_gives_the_controller_only_estimates(arm_launch, peer, tmp_path):
    torch.manual_seed(0)
    model = tmp_path / 'model.pt'
    # Untrained: wrong estimates with high confidence; the controller has nothing else.
    save_model(model, 'resnet', make_model('resnet').state_dict(),
               {'scale': [0.02] * 6, 'threshold': 100.0}, {})
    process = arm_launch(
        'feedback:=camera', f'model:={model}', 'view:=false', 'stop_band:=0.01')
    states = peer.listen(JointState, 'arm/joint_states', qos.TOPICS['arm/joint_states'])
    truth = peer.listen(JointState, 'arm/joint_truth', qos.TOPICS['arm/joint_states'])
    poses = peer.listen(ArmPose, 'arm/pose', qos.TOPICS['arm/pose'])
    frames = peer.listen(TFMessage, '/tf', qos.TOPICS['/tf'])
    peer.until(lambda: len(states) > 5 and truth and poses and frames, 'poses')
    assert all(list(each.name) == ['base', 'shoulder', 'elbow'] for each in states)
    assert list(truth[-1].name) == list(JOINTS)
    peer.until(lambda: any(transform.child_frame_id == 'estimated/forearm'
                           for message in frames for transform in message.transforms), 'the ghost')
    # Parameters come from camera_feedback.yaml, or from the user.
    names = ['start_band', 'stop_band', 'goal_timeout', 'response_time']
    found = peer.call(GetParameters, 'arm_controller/get_parameters',
                      GetParameters.Request(names=names)).values
    assert [each.double_value for each in found] == [0.06, 0.01, 5.0, 0.06]
    # A label and its image have one stamp, to the nanosecond.
    stamps = {(each.header.stamp.sec, each.header.stamp.nanosec) for each in truth}
    peer.until(lambda: (poses[-1].header.stamp.sec, poses[-1].header.stamp.nanosec) in stamps
               or stamps.update((each.header.stamp.sec, each.header.stamp.nanosec)
                                for each in truth), 'the same stamp')
    process.interrupt()
    assert process.wait() == 0


def test_rviz_subscribes_to_existing_topics():
    text = (Path(__file__).resolve().parents[2] / 'config' / 'rviz' / 'arm.rviz').read_text()
    displays = yaml.safe_load(text)['Visualization Manager']['Displays']
    found = {}
    for each in displays:
        for key in ('Topic', 'Description Topic'):
            if key in each:
                found[each['Name']] = each[key]['Value'], each[key]['Durability Policy']
    assert {name: topic for name, (topic, _) in found.items()} == {
        'Arm': '/robot_description', 'Estimated pose': '/robot_description',
        'Target': '/arm/trajectory_markers', 'Policy target': '/arm/target',
        'Emergency stop': '/arm/emergency_stop_marker',
        'Camera': '/camera/image_raw'}
    for topic, durability in found.values():
        latched = qos.TOPICS[topic.lstrip('/')].durability == DurabilityPolicy.TRANSIENT_LOCAL
        assert latched == (durability == 'Transient Local')


def test_missing_rviz_is_refused_in_one_line(monkeypatch):
    path = Path(__file__).resolve().parents[2] / 'launch' / 'arm.launch.py'
    rviz = runpy.run_path(str(path))['rviz']

    def missing(package):
        raise PackageNotFoundError(package)

    # It may be installed here.
    monkeypatch.setitem(rviz.__globals__, 'get_package_prefix', missing)
    with pytest.raises(SettingError, match='rviz: rviz2 is not installed'):
        rviz(None)


def test_missing_arm_is_waited_for(arm_launch, peer, bench):
    bench.fail('unplugged')
    process = arm_launch(*REAL, 'view:=false', 'camera:=none')
    process.wait_for(lambda: 'no such USB device is connected' in process.output, 'the reason')
    assert '99-owi535.rules' in process.output
    bench.fail('')
    process.wait_for(lambda: 'the arm follows arm/motors' in process.output, 'the arm')
    process.interrupt()
    assert process.wait() == 0


def test_xacro_arguments_reach_the_description(arm_launch, peer):
    arm_launch('view:=false', 'camera:=none', 'xacro_args:=forearm_length=0.2 hand_length=0.13',
               'camera_distance:=1.1')
    description = peer.listen(String, 'robot_description', qos.TOPICS['robot_description'])
    peer.until(lambda: description, 'the description')
    assert description[-1].data == load({
        'forearm_length': '0.2', 'hand_length': '0.13', 'camera_distance': 1.1}).urdf


@pytest.mark.parametrize(('argument', 'reason'), [
    ('arm:=robot', "arm: 'robot' is not allowed: one of 'sim', 'real', 'none'"),
    ('arn:=real', "arn: no such argument of arm.launch.py; did you mean 'arm'?"),
    ('command_timeout:=soon', "command_timeout: 'soon' is not allowed"),
    ('xacro_args:=forearm_length=long', 'owi535.urdf.xacro'),
    ('urdf:=/nowhere/arm.urdf', '/nowhere/arm.urdf'),
    ('camera:=/nowhere/video.mp4', '/nowhere/video.mp4'),
    ('policy:=nowhere', "policy: 'nowhere' is not allowed: a checkpoint, an .onnx file"),
])
def test_invalid_arguments_are_refused_and_no_process_remains(arm_launch, argument, reason):
    process = arm_launch('view:=false', argument)
    assert process.wait() == 1
    assert reason in process.output
    assert not process.family()


@pytest.fixture
def no_opengl(monkeypatch, tmp_path):
    """Let libraries of OpenGL be found that cannot be loaded, in every process started now."""
    (tmp_path / 'libEGL.so.1').write_text('no library')
    monkeypatch.setenv('LD_LIBRARY_PATH', f'{tmp_path}:{os.environ.get("LD_LIBRARY_PATH", "")}')
    monkeypatch.delenv('MUJOCO_GL', raising=False)


def test_arm_runs_without_a_camera_if_opengl_is_missing(no_opengl, arm_launch, peer):
    process = arm_launch('view:=false')
    states = peer.listen(JointState, 'arm/joint_states', qos.TOPICS['arm/joint_states'])
    peer.until(lambda: states, 'joint states')
    said = [line for line in process.output.splitlines() if 'OpenGL' in line]
    assert len(said) == 1
    assert 'starting without a camera' in said[0]
    assert 'apt install libegl1 libgl1' in said[0]
    assert not process.nodes('camera')
    process.interrupt()
    assert process.wait() == 0


@pytest.mark.parametrize('command', [
    ('arm.launch.py', 'view:=false', 'camera:=sim'),
    ('arm.launch.py', 'view:=false', 'pose:=true'),
    ('capture.launch.py', 'output:=data'),
])
def test_camera_users_are_refused_without_opengl(no_opengl, launch, command):
    process = launch('ros2', 'launch', 'vdl_ros', *command)
    assert process.wait() == 1
    assert 'apt install libegl1 libgl1' in process.output
    assert 'Traceback' not in process.output
    assert not process.family()
