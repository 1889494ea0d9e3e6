"""Bags as the recorder writes them, of any messages, and of a moving arm; exports of them."""

import av
import numpy as np
import pyarrow.parquet as pq
from builtin_interfaces.msg import Time
from rclpy.serialization import serialize_message
from sensor_msgs.msg import JointState
from std_msgs.msg import Header

from vdl_ros.arm.joints import JOINTS
from vdl_ros.msg import MotorCommand
from vdl_ros.ros import qos
from vdl_ros.ros.bags.bag_writer import BagWriter
from vdl_ros.ros.messages.images import to_compressed_image, to_image

START_NS = 1_700_000_000 * 10**9
MS = 10**6


def write_bag(path, messages, labels=None, **options):
    """Write time, topic, and message or its type and bytes, of each; return the folder."""
    handles = {}
    with BagWriter(path, **options) as bag:
        for ns, topic, message in messages:
            kind, data = message if isinstance(message, tuple) else (
                f'{type(message).__module__.split(".")[0]}/msg/{type(message).__name__}',
                serialize_message(message))
            if topic not in handles:
                handles[topic] = bag.add_topic(topic, kind, [qos.REPORT])
            bag.write(handles[topic], ns, data)
        if labels is not None:
            bag.labels = labels.texts()
    return path


def stamp(ns):
    return Time(sec=ns // 10**9, nanosec=ns % 10**9)


def picture(number, size=(32, 48)):
    """Return a picture that identifies its number: a ramp of its own brightness and slope."""
    rows, columns = np.mgrid[:size[0], :size[1]]
    levels = [(number * 7) % 200 + rows, (number * 13) % 180 + columns, rows + columns]
    return np.stack(levels, axis=2).astype(np.uint8)


class BagBuilder:
    """Collects messages and writes them to a bag in the order of their recording times."""

    def __init__(self, path, prefix=''):
        self.path, self.prefix, self.messages = path, prefix, []

    def add(self, topic, ns, message, late_ns=0):
        self.messages.append((ns + late_ns, f'{self.prefix}/{topic}', message))

    def image(self, ns, pixels, encoding='rgb8', late_ns=0):
        message = to_image(pixels, stamp(ns))
        message.encoding = encoding
        self.add('camera/image_raw', ns, message, late_ns)

    def compressed_image(self, ns, pixels):
        self.add('camera/image_raw/compressed', ns, to_compressed_image(pixels, stamp(ns)))

    def joints(self, ns, positions, late_ns=0):
        self.add('arm/joint_states', ns, JointState(
            header=Header(stamp=stamp(ns)), name=list(JOINTS),
            position=[float(each) for each in positions]), late_ns)

    def motors(self, ns, values, late_ns=0):
        self.add('arm/motors_sent', ns, MotorCommand(
            header=Header(stamp=stamp(ns)), sender='/teleop',
            **dict(zip(JOINTS, values, strict=True))), late_ns)

    def write(self, labels=None):
        return write_bag(self.path, sorted(self.messages, key=lambda each: each[0]), labels)


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


def rows_of(folder):
    """Return the rows of a small data set, a dictionary each."""
    return pq.read_table(folder / 'data/chunk-000/file-000.parquet').to_pylist()


def check_pictures(folder, numbers):
    """Compare the pictures of a small data set with those of :func:`picture`."""
    path = folder / 'videos/observation.images.camera/chunk-000/file-000.mp4'
    with av.open(str(path)) as container:
        found = [each.to_ndarray(format='rgb24').astype(int) for each in container.decode(video=0)]
    assert len(found) == len(numbers)
    # Compressed, but each still its own and not its neighbour's.
    for shown, number in zip(found, numbers, strict=True):
        assert abs(shown - picture(number)).mean() < 4.0
