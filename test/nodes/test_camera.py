"""The camera as a process: images of the simulated arm, of a device, of files."""

import math
import os
import sys
import textwrap
import time
from fractions import Fraction

import av
import numpy as np
import pytest
import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.time import Time
from sensor_msgs.msg import CameraInfo, CompressedImage, Image, JointState
from statistics_msgs.msg import MetricsMessage, StatisticDataType
from std_msgs.msg import Header

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.msg import MotorCommand
from vdl_ros.ros import qos
from vdl_ros.ros.messages.images import from_image


def nanoseconds(message):
    return Time.from_msg(message.header.stamp).nanoseconds


class Watcher:
    """Publishes an arm's topics and keeps the camera's."""

    def __init__(self):
        self.context = rclpy.Context()
        rclpy.init(context=self.context)
        self.node = Node('watcher', context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.images: list[Image] = []
        self.infos: list[CameraInfo] = []
        self.statistics: list[MetricsMessage] = []
        self.health: list[DiagnosticStatus] = []
        self.sent: set[int] = set()
        self.states = self.node.create_publisher(
            JointState, 'arm/joint_states', qos.TOPICS['arm/joint_states'])
        self.motors = self.node.create_publisher(
            MotorCommand, 'arm/motors_sent', qos.TOPICS['arm/motors_sent'])
        # Reliably, so that none is missing in what is counted.
        self.node.create_subscription(
            Image, 'camera/image_raw', self.images.append, qos.TOPICS['camera/image_raw'])
        self.node.create_subscription(
            CameraInfo, 'camera/camera_info', self.infos.append,
            qos.TOPICS['camera/camera_info'])
        self.node.create_subscription(
            MetricsMessage, '/statistics', self.statistics.append, qos.TOPICS['/statistics'])
        self.node.create_subscription(
            DiagnosticArray, '/diagnostics', lambda message: self.health.extend(message.status),
            qos.TOPICS['/diagnostics'])

    def spin(self):
        self.executor.spin_once(timeout_sec=0.005)

    def state(self, positions=(0.0,) * 5, stamp=None, names=JOINTS):
        """Publish joint positions, now; return the stamp in ns."""
        stamp = self.node.get_clock().now().nanoseconds if stamp is None else stamp
        self.states.publish(JointState(
            header=Header(stamp=Time(nanoseconds=stamp).to_msg()), name=list(names),
            position=list(map(float, positions))))
        self.sent.add(stamp)
        return stamp

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

    def refused(self):
        """Return how many joint states the camera has refused, by its diagnostics."""
        return max((int(value.value) for status in self.health for value in status.values
                    if value.key == 'joint states refused'), default=0)

    def close(self):
        self.executor.remove_node(self.node)
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)


@pytest.fixture
def watcher():
    found = Watcher()
    yield found
    found.close()


def start(launch, watcher, *parameters, command=('ros2', 'run', 'vdl_ros', 'camera')):
    """Start a camera and wait until it and the watcher are connected."""
    words = [word for each in parameters for word in ('-p', each)]
    camera = launch(*command, '--ros-args', *words)
    camera.wait_for(lambda: (watcher.spin(), watcher.node.count_publishers('camera/image_raw'))[1],
                    'the camera')
    return camera


def spin_until(camera, watcher, condition, what):
    return camera.wait_for(lambda: ([watcher.spin() for _ in range(10)], condition())[1], what)


def wait_for_arm(camera, watcher):
    """Wait until the watcher has received an image and its camera info."""
    spin_until(camera, watcher, lambda: (watcher.state(), watcher.pairs())[1], 'a image')


def end(camera):
    camera.interrupt()
    assert camera.wait(timeout=10.0) == 0, camera.output
    assert 'Traceback' not in camera.output


def fullest(images, seconds=1.0):
    """
    Return how many images there are in the fullest stretch of so long, by their stamps.

    A machine that is held up for a moment leaves gaps; a second without one has them all.
    """
    stamps = np.array([nanoseconds(image) for image in images]) * 1e-9
    return int((np.searchsorted(stamps, stamps + seconds) - np.arange(len(stamps))).max(initial=0))


def point(message, name):
    kind = getattr(StatisticDataType, f'STATISTICS_DATA_TYPE_{name}')
    return next(each.data for each in message.statistics if each.data_type == kind)


class TestSimulated:
    @pytest.mark.alone
    def test_images_have_the_stamp_of_their_joint_states_at_the_rate(self, launch, watcher):
        camera = start(launch, watcher, 'rate:=20.0', 'image_width:=160', 'image_height:=120')
        assert watcher.images == [], 'no images before joint states'
        wait_for_arm(camera, watcher)
        # What the camera itself measured.
        def windows(metric):
            return [each for each in watcher.statistics if each.metrics_source == metric
                    and each.measurement_source_name == '/camera:camera/image_raw'
                    and point(each, 'SAMPLE_COUNT') >= 18]

        def usual():
            """Return whether it had a second in which it was not held up."""
            return any(point(each, 'AVERAGE') == pytest.approx(50.0, rel=0.5)
                       and point(each, 'SAMPLE_COUNT') == pytest.approx(20, abs=10)
                       for each in windows('message_period'))

        base = {}  # by the stamp
        watcher.images.clear()
        began, sent = time.monotonic(), 0
        while (now := time.monotonic() - began) < 3.0 or fullest(watcher.images) < 18 or not (
                usual() and windows('message_age')):
            assert now < 240.0, f'{fullest(watcher.images)} images in a second'
            if now > sent / 100.0:
                sent = int(now * 100.0) + 1
                turn = 0.8 * math.sin(now)
                base[watcher.state((turn, 0.5, 0.0, 0.0, 0.0))] = turn
            watcher.spin()
        stamps = [nanoseconds(image) for image in watcher.images]
        assert set(stamps) <= watcher.sent, 'every image shows one joint state'
        assert stamps == sorted(set(stamps))
        assert fullest(watcher.images) <= 22
        shown = [pair for pair in watcher.pairs() if nanoseconds(pair[0]) in base]
        assert len(shown) >= 18
        # It moves.
        shown.sort(key=lambda pair: base[nanoseconds(pair[0])])
        first, other = shown[0][0], shown[-1][0]
        difference = np.abs(from_image(first).astype(int) - from_image(other)).max(axis=2)
        assert (difference > 30).mean() > 0.01
        info = shown[0][1]
        focal = 60.0 / math.tan(0.75 / 2)
        np.testing.assert_allclose(
            np.reshape(info.k, (3, 3)), [[focal, 0, 79.5], [0, focal, 59.5], [0, 0, 1]])
        assert any(0.0 < point(each, 'AVERAGE') < 500.0 for each in windows('message_age'))
        end(camera)

    def test_compressed_images_are_published_while_somebody_subscribes(self, launch, watcher):
        camera = start(launch, watcher, 'image_width:=160', 'image_height:=120')
        wait_for_arm(camera, watcher)
        found = []
        subscription = watcher.node.create_subscription(
            CompressedImage, 'camera/image_raw/compressed', found.append,
            qos.TOPICS['camera/image_raw/compressed'])
        spin_until(camera, watcher, lambda: (watcher.state(), found)[1], 'a compressed image')
        compressed = found[-1]
        spin_until(camera, watcher, lambda: any(
            each.header.stamp == compressed.header.stamp for each in watcher.images), 'its image')
        image = next(each for each in watcher.images
                     if each.header.stamp == compressed.header.stamp)
        difference = from_image(compressed).astype(int) - from_image(image)
        assert np.abs(difference).mean() < 3.0
        watcher.node.destroy_subscription(subscription)
        end(camera)

    def test_only_new_states_are_rendered_and_the_lamp_is_visible(self, launch, watcher):
        camera = start(launch, watcher, 'image_width:=64', 'image_height:=48', 'rate:=200.0')
        wait_for_arm(camera, watcher)
        pose = (0.0, 1.0, 0.6, 0.0, 0.5)
        stamp = watcher.state(pose, stamp=10**9)
        spin_until(camera, watcher, lambda: nanoseconds(watcher.images[-1]) == stamp,
                   'the image of a time that has jumped back')
        dark = from_image(watcher.images[-1])
        count = len(watcher.images)
        for _ in range(20):
            watcher.state(pose, stamp=10**9)
            watcher.spin()
        watcher.motors.publish(MotorCommand(lamp=1))
        watcher.health.clear()
        spin_until(camera, watcher, lambda: any(
            value.key == 'lamp' and value.value == 'True'
            for status in watcher.health for value in status.values), 'the lamp')
        assert len(watcher.images) == count, 'what was shown is not drawn again'
        stamp = watcher.state(pose, stamp=2 * 10**9)
        spin_until(camera, watcher, lambda: nanoseconds(watcher.images[-1]) == stamp, 'light')
        difference = from_image(watcher.images[-1]).astype(int) - dark
        assert difference.max() > 30
        # Another place at the same time, as after a reset: shown, though it was not due.
        count = len(watcher.images)
        watcher.state((0.0,) * 5, stamp=2 * 10**9)
        spin_until(camera, watcher, lambda: len(watcher.images) > count, 'the reset')
        end(camera)

    def test_invalid_joint_states_are_refused_once_and_the_camera_survives(self, launch, watcher):
        camera = start(launch, watcher, 'image_width:=64', 'image_height:=48')
        wait_for_arm(camera, watcher)
        invalid = {
            '5 names but 4 positions': {'positions': (0.0,) * 4},
            'shoulder: nan is not a finite number': {'positions': (0.0, math.nan, 0.0, 0.0, 0.0)},
            'none of gripper': {'positions': (0.0,) * 4, 'names': JOINTS[:4]},
            'none of base, shoulder': {'positions': (), 'names': ()}}
        for reason, state in invalid.items():
            # One at a time: a busy camera receives only the last message.
            refused = watcher.refused()
            spin_until(camera, watcher, lambda state=state, refused=refused: (
                watcher.state(**state), watcher.refused() >= refused + 4)[-1], reason)
        for reason in invalid:
            assert camera.output.count(reason) == 1
        # Names count, not their order; what the arm does not have is left out.
        names = (*reversed(JOINTS), 'gripper_mirror')
        stamp = watcher.state((0.1,) * 6, names=names)
        spin_until(camera, watcher, lambda: nanoseconds(watcher.images[-1]) >= stamp, 'a image')
        end(camera)


def write_video(path, count, size=(64, 48)):
    with av.open(str(path), 'w') as container:
        stream = container.add_stream('libx264', rate=Fraction(25))
        stream.width, stream.height, stream.pix_fmt = *size, 'yuv420p'
        for index in range(count):
            grey = np.full((size[1], size[0], 3), 20 + 10 * index, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(grey, format='rgb24')))
        container.mux(stream.encode(None))


def write_image(path, grey, size=(40, 30)):
    with av.open(str(path), 'w', format='image2', options={'update': '1'}) as container:
        stream = container.add_stream('png', rate=1)
        stream.width, stream.height, stream.pix_fmt = *size, 'rgb24'
        pixels = np.full((size[1], size[0], 3), grey, np.uint8)
        frame = av.VideoFrame.from_ndarray(pixels, format='rgb24')
        container.mux(stream.encode(frame) + stream.encode(None))


CALIBRATION = """
image_width: 64
image_height: 48
camera_matrix: {data: [70.5, 0, 32, 0, 71, 24, 0, 0, 1]}
distortion_model: plumb_bob
distortion_coefficients: {data: [0.1, 0, 0, 0, 0]}
rectification_matrix: {data: [1, 0, 0, 0, 1, 0, 0, 0, 1]}
projection_matrix: {data: [70, 0, 32, 0, 0, 70, 24, 0, 0, 0, 1, 0]}
"""


class TestFiles:
    @pytest.mark.alone
    def test_video_loops_with_its_calibration(self, launch, watcher, tmp_path):
        write_video(tmp_path / 'a.mp4', 12)
        (tmp_path / 'a.yaml').write_text(CALIBRATION)
        camera = start(launch, watcher, f'source:={tmp_path / "a.mp4"}', 'rate:=40.0',
                       f'calibration:={tmp_path / "a.yaml"}')
        began = time.time()
        spin_until(camera, watcher, lambda: len(watcher.pairs()) > 60 and
                   fullest(watcher.images) >= 36, 'five rounds')
        assert fullest(watcher.images) <= 44
        shown = watcher.pairs()
        stamps = np.array([nanoseconds(image) for image, _ in shown])
        assert (np.diff(stamps) > 0).all()
        stamps = stamps * 1e-9
        assert began - 5.0 < stamps[0] < stamps[-1] <= time.time()
        levels = [float(from_image(image).mean()) for image, _ in shown]
        steps = np.round(np.diff(levels) / 10.0)
        # One level up each time, or from the end to the beginning, but for what came too late.
        early = np.diff(stamps) < 1.5 / 40.0
        assert early.sum() > 30
        assert np.mean((steps[early] == 1) | (steps[early] == -11)) > 0.9
        assert (np.diff(levels) < 0.0).sum() >= 3
        assert shown[0][1].k[0] == 70.5
        assert shown[0][1].d[0] == 0.1
        end(camera)

    def test_node_keeps_running_after_the_end_of_a_folder(self, launch, watcher, tmp_path):
        for index in range(40):
            write_image(tmp_path / f'{index:03d}.png', 5 * index)
        # The second has its content, which is corrupt, once somebody listens: the others wait.
        (tmp_path / '001.png').unlink()
        os.mkfifo(tmp_path / '001.png')
        camera = start(launch, watcher, f'source:={tmp_path}', 'rate:=20.0', 'loop:=false')
        spin_until(camera, watcher, lambda: watcher.health, 'diagnostics')
        (tmp_path / '001.png').write_text('no image')
        spin_until(camera, watcher, lambda: 'end of the source' in camera.output, 'the end')
        spin_until(camera, watcher, lambda: any(
            status.message == 'end of the source' for status in watcher.health), 'diagnostics')
        spin_until(camera, watcher, lambda: watcher.pairs() and int(
            from_image(watcher.pairs()[-1][0]).mean()) == 5 * 39, 'the last')
        levels = [int(from_image(image).mean()) for image, _ in watcher.pairs()]
        # In their order to the last, though some may have gone while nobody looked; the corrupt
        # one never came.
        assert set(levels) <= {5 * index for index in range(40) if index != 1}
        assert levels == sorted(set(levels))
        assert (watcher.images[0].width, watcher.images[0].height) == (40, 30)
        assert not np.any(watcher.infos[0].k), 'nothing is known of this camera'
        assert camera.output.count('001.png') == 1
        def values():
            return {each.key: each.value for each in watcher.health[-1].values}

        spin_until(camera, watcher, lambda: int(values()['images published']) + int(
            values()['images missed']) == 39, 'what was published')
        assert values()['images damaged'] == '1'
        assert camera.process.poll() is None
        end(camera)

    def test_stamp_is_0_before_simulated_time_starts(self, launch, watcher, tmp_path):
        write_image(tmp_path / 'a.png', 50)
        camera = start(launch, watcher, f'source:={tmp_path}', 'use_sim_time:=true')
        spin_until(camera, watcher, lambda: len(watcher.pairs()) > 5, 'images')
        assert {nanoseconds(image) for image in watcher.images} == {0}
        end(camera)

    @pytest.mark.parametrize(('files', 'source', 'reason'), [
        ({'a.mp4': 'words'}, 'a.mp4', 'no video and no image'),
        ({'a.txt': 'words'}, '', 'no image in this folder'),
        ({}, 'b.mp4', 'no such file or folder'),
    ])
    def test_source_without_images_is_refused(self, launch, tmp_path, files, source, reason):
        for name, content in files.items():
            (tmp_path / name).write_text(content)
        camera = launch('ros2', 'run', 'vdl_ros', 'camera', '--ros-args', '-p',
                        f'source:={tmp_path / source}')
        assert camera.wait() == 2
        assert reason in camera.output
        assert str(tmp_path / source) in camera.output
        assert 'Traceback' not in camera.output


def test_device_disconnects_and_reconnects(launch, watcher, tmp_path):
    plugged = tmp_path / 'plugged'
    # The node itself, with a test image in place of the driver.
    program = tmp_path / 'camera.py'
    program.write_text(textwrap.dedent(f"""
        import errno, pathlib, sys
        import av
        from vdl_ros.camera import image_sources
        from vdl_ros.nodes.camera import main

        plugged = pathlib.Path({str(plugged)!r})

        class Device:
            def __init__(self, device, options):
                if not plugged.exists():
                    raise FileNotFoundError(errno.ENOENT, 'No such file or directory', device)
                graph = 'testsrc=size=320x240:rate=' + options['framerate'] + ',realtime'
                self.container = av.open(graph, format='lavfi')
                self.streams, self.close = self.container.streams, self.container.close

            def demux(self, stream):
                for packet in self.container.demux(stream):
                    if not plugged.exists():
                        raise OSError(errno.ENODEV, 'No such device')
                    yield packet

        image_sources.open_container = Device
        sys.exit(main())
    """))
    camera = start(launch, watcher, 'source:=/dev/video9', 'rate:=25.0',
                   command=(sys.executable, str(program)))

    def warned():
        return watcher.health and watcher.health[-1].level == DiagnosticStatus.WARN

    spin_until(camera, watcher, warned, 'a warning that the device is missing')
    assert watcher.images == []
    assert camera.output.count('/dev/video9') >= 2
    for round_ in range(2):
        watcher.images.clear()
        plugged.touch()
        spin_until(camera, watcher, lambda: fullest(watcher.images) >= 20, 'images')
        image = watcher.images[-1]
        assert (image.width, image.height, len(np.unique(from_image(image))) > 10) == (
            320, 240, True)
        stamps = np.array([nanoseconds(each) for each in watcher.images])
        assert np.diff(stamps).min() > 0
        assert fullest(watcher.images) <= 30
        spin_until(camera, watcher, lambda: not warned(), 'health')
        plugged.unlink()
        spin_until(camera, watcher, warned, 'a warning that the device is disconnected')
        assert watcher.health[-1].message
        assert camera.output.count('No such device') == round_ + 1
    end(camera)
