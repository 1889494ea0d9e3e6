"""The node pose_estimator: a pose with the stamp of the newest picture."""

import numpy as np
import pytest
import torch
from builtin_interfaces.msg import Time
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Header

from vdl_ros.arm.geometry import load
from vdl_ros.msg import MotorCommand
from vdl_ros.nodes import pose_estimator
from vdl_ros.pose.estimator import save_model
from vdl_ros.pose.networks import make_model
from vdl_ros.ros.messages.images import to_compressed_image

RANDOM = np.random.default_rng(0)
NOISE = RANDOM.integers(0, 256, (128, 128, 3), np.uint8)


@pytest.fixture(scope='module')
def model(tmp_path_factory):
    """Return the model file of an untrained network, which is enough to test topics."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp('model') / 'model.pt'
    save_model(path, 'resnet', make_model('resnet').state_dict(),
               {'scale': [0.05] * 6, 'threshold': 100.0}, {})
    return path


class Estimator:
    """A running pose_estimator and the camera's side of it."""

    def __init__(self, peer, running):
        self.peer, self.running = peer, running
        self.poses = peer.listen('arm/pose')
        self.states = peer.listen('arm/joint_states')
        self._images = peer.talk('camera/image_raw')
        self._stamp = 0

    def show(self, pixels, encoding='rgb8', **change):
        self._stamp += 1
        message = Image(
            height=pixels.shape[0], width=pixels.shape[1], encoding=encoding,
            step=pixels.shape[1] * 3, data=pixels.tobytes())
        message.header.stamp.sec = self._stamp
        for name, value in change.items():
            setattr(message, name, value)
        self._images.publish(message)

    def until(self, condition, what, pixels=NOISE, **change):
        return self.peer.until(condition, what, every=0.1,
                               say=lambda: self.show(pixels, **change))


@pytest.fixture
def start(node_here, model):
    return lambda *parameters: node_here(
        pose_estimator.PoseEstimatorNode, f'model:={model}', *parameters)


@pytest.fixture
def estimator(start, peer):
    return lambda *parameters: Estimator(peer, start(*parameters))


def test_a_pose_has_the_stamp_of_its_picture_and_variances(estimator, peer):
    node = estimator('joint_states:=true')
    statistics = peer.listen('/statistics')
    node.until(lambda: len(node.poses) > 3 and len(node.states) > 3, 'poses')
    stamps = [pose.header.stamp.sec for pose in node.poses]
    assert stamps == sorted(set(stamps))
    assert set(stamps) <= set(range(1, node._stamp + 1))
    pose = node.poses[-1]
    assert list(pose.name) == ['base', 'shoulder', 'elbow']
    assert len(pose.position) == len(pose.variance) == 3
    assert all(each > 0 for each in (*pose.variance, *pose.camera_variance))
    assert pose.confident
    # Without commands, the same picture again and again gives the estimate, within the limits of
    # the joints; other joints are not published.
    state = node.states[-1]
    assert state.header.stamp in [each.header.stamp for each in node.poses]
    assert list(state.name) == list(pose.name)
    limits = load()
    assert list(state.position) == pytest.approx(
        np.clip(pose.position, limits.lower[:3], limits.upper[:3]).tolist(), abs=0.2)
    node.until(lambda: any('arm/pose' in each.measurement_source_name for each in statistics),
               'the latency')


def test_motor_commands_move_the_tracked_joints(estimator, peer):
    node = estimator('joint_states:=true', 'joint_std:=3.0')
    commands = peer.talk('arm/motors_sent')
    node.until(lambda: node.states and commands.get_subscription_count(), 'joint states')
    before = node.states[-1]

    def turn():
        commands.publish(MotorCommand(
            header=Header(stamp=Time(sec=node._stamp)), sender='/arm_driver', base=1))
        node.show(NOISE)

    peer.until(lambda: node.states[-1].position[0] > before.position[0] + 0.05, 'a turn',
               every=0.1, say=turn)
    commands.publish(MotorCommand(base=7))
    node.until(lambda: 'arm/motors_sent refused: motor base: 7' in node.running.output, 'refusal')
    count = len(node.states)
    node.until(lambda: len(node.states) > count, 'more joint states')


def test_pictures_without_content_are_not_confident_and_others_are_cropped(estimator):
    node = estimator('joint_states:=true')
    for level in (0, 255):
        dull = np.full((128, 128, 3), level, np.uint8)
        node.until(lambda: node.poses and not node.poses[-1].confident, 'a pose', dull)
        count = len(node.poses)
        # Another pose may have been on its way.
        node.until(lambda count=count: len(node.poses) > count + 3, 'more', dull)
        assert not node.poses[-1].confident, level
        states = len(node.states)
        node.until(lambda: node.poses[-1].confident and len(node.states) > states,  # noqa: B023
                   'a picture that shows something')
    wide = np.repeat(np.repeat(NOISE, 2, 0), 2, 1)
    edge = np.zeros((256, 40, 3), np.uint8)
    begin = node._stamp
    node.until(lambda: node.poses[-1].header.stamp.sec > begin, 'a pose of another size',
               np.concatenate([edge, wide, edge], 1))


def test_compressed_pictures_have_poses_and_damaged_ones_are_rejected(start, peer):
    running = start('image_transport:=compressed')
    poses = peer.listen('arm/pose')
    images = peer.talk('camera/image_raw/compressed')
    whole = to_compressed_image(NOISE, Time(sec=7), 95)
    damaged = CompressedImage(format='jpeg', data=bytes(whole.data[:2000]))
    peer.until(lambda: 'compressed image: damaged' in running.output, 'a refusal',
               every=0.1, say=lambda: images.publish(damaged))
    peer.until(lambda: poses, 'a pose', every=0.1, say=lambda: images.publish(whole))
    assert {pose.header.stamp.sec for pose in poses} == {7}


def test_invalid_messages_are_rejected_and_the_node_survives(estimator, peer):
    node = estimator()
    health = peer.listen('/diagnostics')
    for change, reason in (
            ({'encoding': 'nonsense'}, 'nonsense'),
            ({'height': 127}, '48768 of 127 rows'),
            ({'pixels': np.zeros((32, 32, 3), np.uint8)}, '32 x 32 is not allowed'),
            ({'pixels': np.zeros((128, 64, 3), np.uint8)}, 'higher than wide')):
        node.until(lambda reason=reason: any(
            'refused' in line and reason in line for line in node.running.output.splitlines()),
            reason, **change)
    node.until(lambda: node.poses, 'a pose')

    def counted():
        return max((int(value.value) for each in health for value in each.status[0].values
                    if value.key == 'messages refused'), default=0)

    node.until(lambda: counted() >= 4, 'diagnostics')


def test_invalid_models_are_errors_of_one_line(run_here, tmp_path):
    path = tmp_path / 'model.pt'
    for content in (None, b'', b'not a model'):
        if content is not None:
            path.write_bytes(content)
        status, said = run_here(pose_estimator.main, f'model:={path}')
        assert status == 2, content
        lines = said.strip().splitlines()
        assert len(lines) == 1, content
        assert str(path) in lines[0]
