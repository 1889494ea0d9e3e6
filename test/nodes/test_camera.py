"""The node camera: images of the simulated arm, of a device, of files."""

import math
from fractions import Fraction

import av
import numpy as np
import pytest
from geometry_msgs.msg import PoseStamped
from rclpy.time import Time
from sensor_msgs.msg import JointState
from std_msgs.msg import Header

from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.simulation.scene import cube_pose
from vdl_ros.msg import MotorCommand
from vdl_ros.nodes import camera
from vdl_ros.ros import qos
from vdl_ros.ros.messages.images import from_image
from vdl_ros.ros.messages.joint_messages import pose_message

SMALL = ('image_width:=64', 'image_height:=48')


def nanoseconds(message):
    return Time.from_msg(message.header.stamp).nanoseconds


class Watcher:
    """Publishes an arm's topics and keeps the camera's."""

    def __init__(self, peer):
        self.peer, self.until = peer, peer.until
        self.images = peer.listen('camera/image_raw')
        self.infos = peer.listen('camera/camera_info')
        self._health = peer.listen('/diagnostics')
        self.sent: set[int] = set()
        self.states = qos.pub(peer.node, 'arm/joint_states')
        self.motors = qos.pub(peer.node, 'arm/motors_sent')

    def state(self, positions=(0.0,) * 5, stamp=None, names=JOINTS):
        """Publish joint positions, now; return the stamp in ns."""
        stamp = self.peer.node.get_clock().now().nanoseconds if stamp is None else stamp
        self.states.publish(JointState(
            header=Header(stamp=Time(nanoseconds=stamp).to_msg()), name=list(names),
            position=list(map(float, positions))))
        self.sent.add(stamp)
        return stamp

    def until_arm(self):
        """Wait for an image and its camera info."""
        self.until(self.pairs, 'an image', say=self.state)

    def pairs(self):
        """Return images with the information of the same stamp, checked."""
        infos = {nanoseconds(info): info for info in self.infos}
        found = [(image, infos[nanoseconds(image)]) for image in self.images
                 if nanoseconds(image) in infos]
        for image, info in found:
            assert (image.width, image.height) == (info.width, info.height)
            assert image.header.frame_id == info.header.frame_id == 'camera_optical_frame'
            assert image.encoding == 'rgb8'
        return found

    @property
    def health(self):
        """The latest text and values of the camera."""
        if not self._health:
            return '', {}
        status = self._health[-1].status[0]
        return status.message, {each.key: each.value for each in status.values}


@pytest.fixture
def watcher(peer):
    return Watcher(peer)


@pytest.fixture
def start(node_here):
    return lambda *parameters: node_here(camera.CameraNode, *parameters)


def fullest(images, seconds=1.0):
    """Return how many images there are in the fullest stretch of so long, by their stamps.

    A machine that is held up for a moment leaves gaps; a second without one has them all.
    """
    stamps = np.array([nanoseconds(image) for image in images]) * 1e-9
    return int((np.searchsorted(stamps, stamps + seconds) - np.arange(len(stamps))).max(initial=0))


def test_images_of_the_simulated_arm_have_the_stamp_of_its_joint_states_at_the_rate(
        start, watcher, peer):
    running = start('rate:=10.0', 'image_width:=160', 'image_height:=120')
    statistics = peer.listen('/statistics')
    peer.until(lambda: peer.node.count_publishers('camera/image_raw')
               and peer.node.count_subscribers('arm/joint_states'), 'the camera')
    assert watcher.images == [], 'no images before joint states'
    watcher.until_arm()
    watcher.images.clear()
    base = {}  # by the stamp

    def turn():
        angle = 0.8 * math.sin(0.01 * len(base))
        base[watcher.state((angle, 0.5, 0.0, 0.0, 0.0))] = angle

    # What the camera itself measures comes as well.
    peer.until(lambda: fullest(watcher.images) >= 9 and len(base) > 200 and {
        'message_age', 'message_period'} <= {
        each.metrics_source for each in statistics
        if each.measurement_source_name == '/camera:camera/image_raw'}, 'a full second',
        say=turn, every=0.01)
    stamps = [nanoseconds(image) for image in watcher.images]
    assert set(stamps) <= watcher.sent, 'every image shows one joint state'
    assert stamps == sorted(set(stamps))
    assert fullest(watcher.images) <= 12
    # It moves.
    shown = [pair for pair in watcher.pairs() if nanoseconds(pair[0]) in base]
    shown.sort(key=lambda pair: base[nanoseconds(pair[0])])
    first, other = shown[0][0], shown[-1][0]
    difference = np.abs(from_image(first).astype(int) - from_image(other)).max(axis=2)
    assert (difference > 30).mean() > 0.01
    focal = 60.0 / math.tan(0.75 / 2)
    np.testing.assert_allclose(
        np.reshape(shown[0][1].k, (3, 3)), [[focal, 0, 79.5], [0, focal, 59.5], [0, 0, 1]])
    # Compressed ones while somebody subscribes.
    found = peer.listen('camera/image_raw/compressed')

    def both():
        stamps = {nanoseconds(each): each for each in watcher.images}
        return next(((each, stamps[nanoseconds(each)]) for each in found
                     if nanoseconds(each) in stamps), None)

    compressed, image = peer.until(both, 'a compressed image and its original', say=watcher.state)
    assert np.abs(from_image(compressed).astype(int) - from_image(image)).mean() < 3.0
    assert running.end() == 0
    assert 'Traceback' not in running.output


def test_only_new_states_are_rendered_and_the_lamp_is_visible(start, watcher):
    start(*SMALL, 'rate:=200.0')
    watcher.until_arm()
    pose = (0.0, 1.0, 0.6, 0.0, 0.5)

    def until_shown(what, positions, stamp):
        watcher.until(lambda: nanoseconds(watcher.images[-1]) == stamp, what,
                      say=lambda: watcher.state(positions, stamp))
        return from_image(watcher.images[-1]).astype(int)

    dark = until_shown('the image of a time that has jumped back', pose, 10**9)
    count = len(watcher.images)
    watcher.until(lambda: watcher.health[1].get('lamp') == 'True', 'the lamp', say=lambda: (
        watcher.state(pose, 10**9), watcher.motors.publish(MotorCommand(lamp=1))))
    assert len(watcher.images) == count, 'what was shown is not drawn again'
    assert (until_shown('light', pose, 2 * 10**9) - dark).max() > 30
    # Another place at the same time, as after a reset: shown, though it was not due.
    count = len(watcher.images)
    watcher.until(lambda: len(watcher.images) > count, 'the reset',
                  say=lambda: watcher.state(stamp=2 * 10**9))


def test_the_cube_is_seen_where_it_is(start, watcher):
    start(*SMALL, 'rate:=200.0')
    cubes = qos.pub(watcher.peer.node, 'cube/pose')

    def red():
        image = from_image(watcher.images[-1]).astype(int)
        return np.argwhere((image[..., 0] > image[..., 1] + 60) & (image[..., 1] < 60))

    watcher.until_arm()
    assert len(red()) < 4
    sides = []
    for y in (0.12, -0.12):
        message = PoseStamped(pose=pose_message(cube_pose(0.2, y, 0.0)))
        count = len(watcher.images)
        watcher.until(
            lambda count=count: len(watcher.images) > count + 2 and len(red()) > 8, 'the cube',
            say=lambda message=message: (cubes.publish(message), watcher.state()))
        sides.append(red()[:, 1].mean())
    assert abs(sides[0] - sides[1]) > 5


def test_invalid_joint_states_are_refused_once_and_the_camera_survives(start, watcher):
    node = start(*SMALL)
    watcher.until_arm()
    watcher.until(lambda: int(watcher.health[1].get('joint states refused', 0)) >= 4, 'refusals',
                  say=lambda: watcher.state((0.0,) * 4, names=JOINTS[:4]))
    assert node.output.count('none of gripper') == 1
    # Names count, not their order; what the arm does not have is left out.
    names, count = (*reversed(JOINTS), 'gripper_mirror'), len(watcher.images)
    watcher.until(lambda: len(watcher.images) > count, 'an image',
                  say=lambda: watcher.state((0.1,) * 6, names=names))


def test_the_node_goes_on_after_the_end_of_a_video(start, watcher, tmp_path):
    with av.open(str(tmp_path / 'a.mp4'), 'w') as container:
        stream = container.add_stream('libx264', rate=Fraction(25))
        stream.width, stream.height, stream.pix_fmt = 64, 48, 'yuv420p'
        for index in range(12):
            grey = np.full((48, 64, 3), 20 + 10 * index, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(grey, format='rgb24')))
        container.mux(stream.encode(None))
    begin = watcher.peer.node.get_clock().now().nanoseconds
    # Slowly: by then the test has discovered the node.
    node = start(f'source:={tmp_path / "a.mp4"}', 'rate:=4.0', 'loop:=false')
    watcher.until(lambda: 'end of the source' in node.output
                  and watcher.health[0] == 'end of the source', 'the end')
    watcher.until(lambda: sum(int(watcher.health[1][f'images {what}']) for what in (
        'published', 'missed')) == 12, 'what was published')
    assert node.is_running
    stamps = [nanoseconds(image) for image, _ in watcher.pairs()]
    assert stamps == sorted(set(stamps))
    assert begin < stamps[0]
    assert stamps[-1] < watcher.peer.node.get_clock().now().nanoseconds
    levels = [float(from_image(image).mean()) for image, _ in watcher.pairs()]
    assert levels == sorted(levels)
