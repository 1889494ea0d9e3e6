"""An attack between camera and pose estimator: who gets which image; what stops the motors."""

import signal

import numpy as np
import pytest
from arm_messages import target_at
from diagnostic_msgs.msg import DiagnosticStatus

from vdl_ros.arm.geometry import load
from vdl_ros.nodes import attacker
from vdl_ros.pose.estimator import PoseEstimator, crop_square, model_path
from vdl_ros.pose.networks import JOINT_OUTPUTS
from vdl_ros.ros.arm.arm_topics import moves
from vdl_ros.ros.messages.images import from_image

MODE = ('adversarial_mode:=fgsm', 'adversarial_epsilon:=0.01')
# In simulated time, slow enough that on a busy machine no image is too old when it arrives.
SLOW = ('publish_clock:=true', 'real_time_factor:=0.1', 'rate:=10', 'image_width:=160',
        'image_height:=128')
PLACES = ((0.2, 0.1, 0.2), (0.15, -0.2, 0.25))


def by_stamp(messages):
    return {(each.header.stamp.sec, each.header.stamp.nanosec): each for each in messages}


@pytest.mark.slow
def test_the_estimator_gets_attacked_images_and_without_the_attacker_motors_stop(launch, peer):
    process = launch.file('arm', 'view:=false', 'policy:=reach', 'feedback:=camera', *MODE, *SLOW)
    clean, attacked, poses, states, health, status, sent = map(peer.listen, (
        'camera/image_raw', 'camera/image_attacked', 'arm/pose', 'arm/joint_states',
        '/diagnostics', 'arm/target_status', 'arm/motors_sent'))

    def common():
        return {*by_stamp(clean)} & {*by_stamp(attacked)} & {*by_stamp(poses)}

    stamp = sorted(peer.until(common, 'an image, its attacked one and its pose'))[-1]
    image, shown, pose = (by_stamp(each)[stamp] for each in (clean, attacked, poses))
    change = from_image(shown).astype(int) - from_image(image)
    assert np.abs(change).max() == 2
    assert shown.header == image.header
    # The pose is that of the attacked image, and not that of the camera's.
    estimator = PoseEstimator.load(model_path())
    expected, other = (estimator.estimate(crop_square(from_image(each))).values[0, JOINT_OUTPUTS]
                       for each in (shown, image))
    assert list(pose.position) == pytest.approx(expected.tolist(), abs=1e-3)
    assert np.abs(expected - other).max() > 0.005

    def told():
        """Return what /diagnostics has of the attack, once it says that images were attacked."""
        for each in (each for array in health for each in array.status):
            values = {pair.key: pair.value for pair in each.values}
            if each.name == '/attacker' and int(values['images attacked']) > 0:
                return each.level, each.message, values['mode'], values['epsilon']
        return None

    assert peer.until(told, 'attacked images on /diagnostics') == (
        DiagnosticStatus.WARN, 'attacks the images of the camera: fgsm, epsilon 0.01', 'fgsm',
        '0.01')

    # The estimator's limits hold: what it publishes as joints is within those of the arm.
    limits = load()
    peer.until(lambda: states, 'joint states')
    for each in states:
        assert (np.array(each.position) >= limits.lower[:3]).all()
        assert (np.array(each.position) <= limits.upper[:3]).all()

    # So does the age: images that are held back stop the motors.
    targets = peer.talk('arm/target')
    asked = []

    def ask():
        if status and status[-1].state == 'idle':
            asked.append(PLACES[len(asked) % 2])
            targets.publish(target_at(asked[-1]))

    peer.until(lambda: sent and moves(sent[-1]), 'the arm moves', every=1.0, say=ask)
    node, = process.nodes('attacker')
    node.send_signal(signal.SIGSTOP)
    try:
        peer.until(lambda: status[-1].state == 'paused' and not moves(sent[-1])
                   and status[-1].reason == 'the joint states are too old', 'motors off',
                   every=1.0, say=ask)
    finally:
        node.send_signal(signal.SIGCONT)
    peer.until(lambda: moves(sent[-1]), 'it goes on', every=1.0, say=ask)


def test_an_attacker_without_an_attack_is_refused_in_one_line(refused):
    assert "adversarial_mode: 'none' is not allowed here" in refused(attacker.main)
