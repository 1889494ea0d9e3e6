"""Bags as the recorder writes them: a moving arm, and captured frames."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from rclpy.serialization import serialize_message
from sensor_msgs.msg import JointState
from std_msgs.msg import Header

from vdl_ros.arm.joints import JOINTS
from vdl_ros.msg import CaptureScene, MotorCommand
from vdl_ros.ros import qos
from vdl_ros.ros.bags.bag_writer import BagWriter
from vdl_ros.ros.messages.images import to_compressed_image, to_image

KINDS = {
    'camera/image_raw': 'sensor_msgs/msg/Image',
    'camera/image_raw/compressed': 'sensor_msgs/msg/CompressedImage',
    'arm/joint_states': 'sensor_msgs/msg/JointState',
    'arm/motors_sent': 'vdl_ros/msg/MotorCommand', 'capture/scene': 'vdl_ros/msg/CaptureScene'}
START_NS = 1_700_000_000 * 10**9
MS = 10**6


def stamp(ns):
    return Time(sec=ns // 10**9, nanosec=ns % 10**9)


def picture(number, size=(32, 48)):
    """Return a picture that identifies its number: a ramp of its own brightness and slope."""
    rows, columns = np.mgrid[:size[0], :size[1]]
    levels = [(number * 7) % 200 + rows, (number * 13) % 180 + columns, rows + columns]
    return np.stack(levels, axis=2).astype(np.uint8)


@dataclass
class BagBuilder:
    """Collects messages and writes them to a bag in the order of their recording times."""

    path: Path
    prefix: str = ''
    messages: list = field(default_factory=list)

    def add(self, topic, ns, message, late_ns=0):
        self.messages.append((ns + late_ns, f'{self.prefix}/{topic}', KINDS[topic],
                              serialize_message(message)))

    def image(self, ns, pixels, encoding='rgb8', late_ns=0):
        self.add('camera/image_raw', ns, to_image(pixels, stamp(ns), encoding=encoding), late_ns)

    def compressed_image(self, ns, pixels):
        self.add('camera/image_raw/compressed', ns, to_compressed_image(pixels, stamp(ns), 95))

    def joints(self, ns, positions, late_ns=0, names=JOINTS):
        self.add('arm/joint_states', ns, JointState(
            header=Header(stamp=stamp(ns)), name=list(names),
            position=[float(each) for each in positions]), late_ns)

    def motors(self, ns, values, sender='/teleop'):
        self.add('arm/motors_sent', ns, MotorCommand(
            header=Header(stamp=stamp(ns)), sender=sender,
            **dict(zip(JOINTS, values, strict=True))))

    def scene(self, ns, index, camera):
        self.add('capture/scene', ns, CaptureScene(
            header=Header(stamp=stamp(ns)), index=index, split='train', domain='basic',
            camera_distance=camera[0], camera_elevation=camera[1], camera_azimuth=camera[2]))

    def write(self):
        """Write the bag; return its folder."""
        handles = {}
        with BagWriter(self.path) as bag:
            for logged, topic, kind, data in sorted(self.messages, key=lambda each: each[0]):
                if topic not in handles:
                    handles[topic] = bag.add_topic(topic, kind, [qos.REPORT])
                bag.write(handles[topic], logged, data)
        return self.path


def positions(ns):
    """Return the joint positions at a time."""
    seconds = (ns - START_NS) * 1e-9
    return [0.1 * (joint + 1) * seconds for joint in range(5)]


def command(ns):
    """Return the motor commands at a time; they change each half second."""
    half = (ns - START_NS) // (500 * MS)
    return [(half + joint) % 3 - 1 for joint in range(5)]


def add_scenario(builder, images, fps=20, begin_ns=START_NS, size=(32, 48)):
    """Add images with joint states of the same stamps; return the stamps."""
    period = 10**9 // fps
    stamps = [begin_ns + number * period for number in range(images)]
    for number, ns in enumerate(stamps):
        # Joint states are recorded after the image of their stamp, and once in between.
        builder.image(ns, picture(number, size), late_ns=2 * MS)
        builder.joints(ns, positions(ns), late_ns=9 * MS)
        builder.joints(ns + period // 2, positions(ns + period // 2))
        if ns == begin_ns or command(ns) != command(ns - period):
            builder.motors(ns, command(ns))
    return stamps


@pytest.fixture
def builder(tmp_path):
    return BagBuilder(tmp_path / 'bag')


@pytest.fixture
def teleop(builder):
    """Return a bag of two sequences, of 40 and 25 images at 20 Hz, and the images' stamps."""
    first = add_scenario(builder, 40)
    second = add_scenario(builder, 25, begin_ns=START_NS + 10 * 10**9)
    return builder.write(), [first, second]


@pytest.fixture
def captured(builder):
    """Return a bag of 12 captured frames at uneven times, with the camera of each."""
    cameras = [(0.6 + 0.01 * number, 0.1 * number, -3.0 + 0.5 * number) for number in range(12)]
    for number, camera in enumerate(cameras):
        ns = START_NS + number * number * 700 * MS
        builder.image(ns, picture(number))
        builder.joints(ns, [0.1 * number, -0.2, 0.3, 0.0, 0.1], late_ns=1 * MS)
        builder.scene(ns, number, camera)
        builder.joints(ns + 1, [9.0] * 5, late_ns=2 * MS)
    return builder.write(), cameras


@pytest.fixture
def helpers():
    """Return the content of the bags, to compare with."""
    return SimpleNamespace(positions=positions, command=command, picture=picture, MS=MS,
                           START_NS=START_NS, add_scenario=add_scenario, BagBuilder=BagBuilder,
                           stamp=stamp)
