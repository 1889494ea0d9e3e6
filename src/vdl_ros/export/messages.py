"""What a bag says about images, joints, motors and camera, one message at a time, in its order."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zstandard
from mcap.exceptions import McapError
from mcap.reader import NonSeekingReader
from numpy.typing import NDArray

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.camera.image_encodings import ENCODINGS, channels_of, to_rgb
from vdl_ros.pose.data.cdr import CdrError, Image, read_image, read_joints, read_scene

__all__ = ['Bag', 'Entry', 'ExportError', 'Picture', 'Value']

# A damaged length must not make the reader ask for all memory.
_LARGEST_RECORD = 1 << 30
#: Topics by their last names, with their types.
_TOPICS = {
    'camera/image_raw': 'sensor_msgs/msg/Image',
    'arm/joint_states': 'sensor_msgs/msg/JointState',
    'arm/motors_sent': 'vdl_ros/msg/MotorCommand',
    'capture/scene': 'vdl_ros/msg/CaptureScene',
}
_BROKEN = (McapError, EOFError, ValueError, RuntimeError, struct.error, zstandard.ZstdError)


class ExportError(ValueError):
    """What cannot be exported; one line that says why."""


@dataclass(frozen=True)
class Picture:
    """An image message; ``data`` is None where only its size is of interest."""

    header: Image
    data: bytes | None

    @property
    def size(self) -> tuple[int, int]:
        """Return width and height."""
        return self.header.width, self.header.height

    def pixels(self) -> NDArray[np.uint8]:
        """
        Return the picture, RGB, uint8 [height, width, 3].

        Raises:
            CdrError: it has no pixels, or its number of bytes is wrong.
            ExportError: an encoding that cannot be read here.
        """
        header = self.header
        self.check()
        if self.data is None:
            raise CdrError('its bytes were not kept')
        rows = np.frombuffer(self.data, np.uint8, header.length, header.offset)
        return to_rgb(rows.reshape(header.height, header.step), header.width, header.encoding)

    def check(self) -> None:
        """
        Compare sizes.

        Raises:
            CdrError, ExportError: as of :meth:`pixels`.
        """
        header = self.header
        if header.encoding not in ENCODINGS:
            raise ExportError(f'images of encoding {header.encoding[:40]!r} cannot be exported: '
                              f'{", ".join(ENCODINGS)}')
        if not header.width or not header.height:
            raise CdrError('an image without pixels')
        if (header.length != header.step * header.height
                or header.step < header.width * channels_of(header.encoding)):
            raise CdrError('an image with a wrong number of bytes')


#: A picture; positions by joint; commands by motor; distance (m), elevation, azimuth (rad).
Value = Picture | dict[str, float] | tuple[float, ...]


@dataclass(frozen=True)
class Entry:
    """A message: the last names of its topic, its own stamp and when it was recorded, ns."""

    topic: str
    stamp_ns: int
    logged_ns: int
    value: Value


class Bag:
    """
    A bag, read from its beginning as often as wanted.

    Attributes:
        path: the folder or file.
        cut_off: why the last reading ended early, '' if it did not.
        refused: what was left out in the last reading, with how often.
    """

    def __init__(self, path: Path, namespace: str = '') -> None:
        """
        Find the files.

        Args:
            path: the bag's folder, or one ``.mcap`` file.
            namespace: of the topics, where a bag holds several arms.

        Raises:
            ExportError: there is no bag.
        """
        self.path, self._namespace = path, namespace.strip('/')
        self.cut_off = ''
        self.refused: Counter[str] = Counter()
        self._files = sorted(path.glob('*.mcap'), key=_order) if path.is_dir() else [path]
        if not self._files or not all(file.is_file() for file in self._files):
            raise ExportError(f'{path}: no bag is there: a folder with a .mcap file, or the file')

    def read(self, *, pixels: bool) -> Iterator[Entry]:
        """
        Yield the messages that matter, in the order in which they were recorded.

        Args:
            pixels: keep the images' bytes.

        Raises:
            ExportError: no MCAP file, nothing in it, or topics of two arms.
        """
        self.cut_off, self.refused = '', Counter()
        names: dict[str, str] = {}
        total = 0
        for file in self._files:
            count = 0
            with file.open('rb') as stream:
                # Not by the index: a bag that was cut off has none.
                messages = NonSeekingReader(
                    stream, validate_crcs=True, record_size_limit=_LARGEST_RECORD,
                ).iter_messages(log_time_order=False)
                while True:
                    try:
                        schema, channel, message = next(messages)
                    except StopIteration:
                        break
                    except _BROKEN as error:
                        if not total:
                            raise ExportError(
                                f'{file}: not a bag, or no whole message is in it') from error
                        self.cut_off = f'{file} is cut off or damaged after {count} messages'
                        break
                    count, total = count + 1, total + 1
                    topic = self._topic(channel.topic, schema.name if schema else '', names)
                    if topic:
                        try:
                            yield _entry(topic, message.log_time, message.data, pixels)
                        except CdrError as error:
                            self.refused[f'{topic}: {error}'] += 1

    def _topic(self, name: str, kind: str, names: dict[str, str]) -> str:
        """Return the last names of a topic that matters, '' of another."""
        for topic, expected in _TOPICS.items():
            if not name.endswith(f'/{topic}') or kind != expected:
                continue
            if self._namespace and name != f'/{self._namespace}/{topic}':
                continue
            if names.setdefault(topic, name) != name:
                raise ExportError(f'{self.path}: {names[topic]} and {name}: choose one with '
                                  '--namespace')
            return topic
        return ''


def _order(file: Path) -> tuple[int, str]:
    """Return what sorts the parts of a bag by their numbers."""
    number = re.search(r'_(\d+)$', file.stem)
    return int(number.group(1)) if number else -1, file.name


def _entry(topic: str, logged_ns: int, data: bytes, pixels: bool) -> Entry:
    if topic == 'camera/image_raw':
        header = read_image(data)
        picture = Picture(header, data if pixels else None)
        picture.check()
        return Entry(topic, header.stamp_ns, logged_ns, picture)
    if topic == 'arm/joint_states':
        joints = read_joints(data)
        return Entry(topic, joints.stamp_ns, logged_ns, joints.positions)
    if topic == 'capture/scene':
        scene = read_scene(data)
        return Entry(topic, scene.stamp_ns, logged_ns, scene.camera)
    stamp, motors = _read_motors(data)
    return Entry(topic, stamp, logged_ns, motors)


def _read_motors(data: bytes) -> tuple[int, tuple[float, ...]]:
    """
    Return stamp, ns, and what each motor does, of a ``vdl_ros/MotorCommand``.

    Raises:
        CdrError: the message is broken.
    """
    order = '<' if data[1:2] == b'\1' else '>'
    try:
        seconds, nanoseconds, length = struct.unpack_from(f'{order}iII', data, 4)
        position = 16 + length
        position += -position % 4
        length, = struct.unpack_from(f'{order}I', data, position)
        values = struct.unpack_from(f'{len(JOINTS)}b', data, position + 4 + length)
    except struct.error:
        raise CdrError('cut short') from None
    if any(abs(value) > 1 for value in values):
        raise CdrError('a motor is commanded something other than -1, 0, 1')
    return seconds * 10**9 + nanoseconds, tuple(float(value) for value in values)
