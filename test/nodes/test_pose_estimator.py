"""The node pose_estimator: a pose with the stamp of the newest picture."""

import numpy as np
import pytest
import torch
from builtin_interfaces.msg import Time
from sensor_msgs.msg import Image
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
    return saved(tmp_path_factory.mktemp('model') / 'model.pt', 0.05)


def saved(path, scale):
    torch.manual_seed(0)
    save_model(path, 'resnet', make_model('resnet').state_dict(),
               {'scale': [scale] * 6, 'threshold': 100.0}, {})
    return path


class Estimator:
    """A running pose_estimator and the camera's side of it."""

    def __init__(self, peer, running):
        self.peer, self.running = peer, running
        self.poses, self.states = map(peer.listen, ('arm/pose', 'arm/joint_states'))
        self._images = peer.talk('camera/image_raw')
        self._stamp = 0

    def show(self, pixels, encoding='rgb8'):
        self._stamp += 1
        message = Image(
            height=pixels.shape[0], width=pixels.shape[1], encoding=encoding,
            step=pixels.shape[1] * 3, data=pixels.tobytes())
        message.header.stamp.sec = self._stamp
        self._images.publish(message)

    def until(self, condition, what, *picture):
        self.peer.until(condition, what, every=0.1, say=lambda: self.show(*picture or [NOISE]))


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


def test_motor_commands_move_the_tracked_joints(estimator, peer, tmp_path):
    # Certain estimates would show that the joint is held.
    node = estimator('joint_states:=true', 'joint_std:=3.0',
                     f'model:={saved(tmp_path / "uncertain.pt", 1.0)}')
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


def test_a_picture_without_content_is_not_confident_and_moves_no_joint(estimator):
    node = estimator('joint_states:=true')
    dull = np.zeros((128, 128, 3), np.uint8)
    node.until(lambda: node.poses and not node.poses[-1].confident, 'a pose', dull)
    count = len(node.poses)
    # Another pose may have been on its way.
    node.until(lambda: len(node.poses) > count + 3, 'more', dull)
    assert not node.poses[-1].confident
    states = len(node.states)
    node.until(lambda: node.poses[-1].confident and len(node.states) > states,
               'a picture that shows something')


def test_compressed_pictures_have_poses(start, peer):
    start('image_transport:=compressed')
    poses = peer.listen('arm/pose')
    images = peer.talk('camera/image_raw/compressed')
    picture = to_compressed_image(NOISE, Time(sec=7))
    peer.until(lambda: poses, 'a pose', every=0.1, say=lambda: images.publish(picture))
    assert {pose.header.stamp.sec for pose in poses} == {7}


def test_pictures_that_cannot_be_used_are_refused_and_wide_ones_cropped(estimator, peer):
    node = estimator()
    health = peer.listen('/diagnostics')
    for picture, reason in (((NOISE, 'nonsense'), 'nonsense'),
                            ((NOISE[:32, :32],), '32 x 32 is not allowed'),
                            ((NOISE[:, :64],), 'higher than wide')):
        node.until(lambda reason=reason: any(
            'refused' in line and reason in line for line in node.running.output.splitlines()),
            reason, *picture)
    wide = np.concatenate([np.zeros((128, 20, 3), np.uint8), NOISE], 1)
    node.until(lambda: node.poses, 'a pose', wide)
    node.until(lambda: any(int(value.value) >= 3 for each in health
                           for value in each.status[0].values
                           if value.key == 'messages refused'), 'diagnostics')
