"""Read images, joint states, motor commands and camera poses of a bag, one message at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.bags.messages import (
    ImageFormat,
    MessageError,
    decode,
    image_format,
    stamp_of,
    values_by_name,
)
from vdl_ros.bags.reader import BagError, BagReader
from vdl_ros.camera.image_encodings import ENCODINGS, channels_of, to_rgb
from vdl_ros.common.quoting import shown

__all__ = ['ArmBag', 'Entry', 'ExportError', 'Picture', 'Value']

# Topics by their last names, with their types.
_TOPICS = {
    'camera/image_raw': 'sensor_msgs/msg/Image',
    'arm/joint_states': 'sensor_msgs/msg/JointState',
    'arm/motors_sent': 'vdl_ros/msg/MotorCommand',
    'capture/scene': 'vdl_ros/msg/CaptureScene',
}


class ExportError(ValueError):
    """A bag or an output that cannot be exported; the message is one line."""


@dataclass(frozen=True)
class Picture:
    """An image message; ``data``, uint8 [format.length], is None where only its size is read."""

    format: ImageFormat
    data: NDArray[np.uint8] | None

    @property
    def size(self) -> tuple[int, int]:
        """Return width and height."""
        return self.format.width, self.format.height

    def pixels(self) -> NDArray[np.uint8]:
        """
        Return the picture, RGB, uint8 [height, width, 3].

        Raises:
            MessageError: it has no pixels, or its number of bytes is wrong.
            ExportError: an encoding that is not supported.
        """
        self.check()
        if self.data is None:
            raise MessageError('its bytes were not kept')
        rows = self.data.reshape(self.format.height, self.format.step)
        return to_rgb(rows, self.format.width, self.format.encoding)

    def check(self) -> None:
        """
        Compare sizes.

        Raises:
            MessageError, ExportError: as of :meth:`pixels`.
        """
        given = self.format
        if given.encoding not in ENCODINGS:
            raise ExportError(f'images of encoding {given.encoding[:40]!r} cannot be exported: '
                              f'{", ".join(ENCODINGS)}')
        if not given.width or not given.height:
            raise MessageError('an image without pixels')
        if (given.length != given.step * given.height
                or given.step < given.width * channels_of(given.encoding)):
            raise MessageError('an image with a wrong number of bytes')


#: A picture; positions by joint; commands by motor; distance (m), elevation, azimuth (rad).
Value = Picture | dict[str, float] | tuple[float, ...]


@dataclass(frozen=True)
class Entry:
    """A message: the last names of its topic, its own stamp and when it was recorded, ns."""

    topic: str
    stamp_ns: int
    logged_ns: int
    value: Value


class ArmBag:
    """
    A bag of one arm and its camera; it can be read more than once.

    Attributes:
        path: the folder or file.
        refused: how many messages could not be used, by reason.
    """

    def __init__(self, path: Path, namespace: str = '') -> None:
        """
        Find the bag's files.

        Args:
            path: the bag's folder, or one ``.mcap`` file.
            namespace: of the topics, where a bag holds several arms.

        Raises:
            ExportError: there is no bag.
        """
        self.path, self._namespace = path, namespace.strip('/')
        self.refused: Counter[str] = Counter()
        try:
            self._reader = BagReader(path)
        except BagError as error:
            raise ExportError(str(error)) from None

    @property
    def cut_off(self) -> str:
        """Where the bag is cut off or damaged, '' if it is whole; known after reading."""
        return self._reader.cut_off

    def read(self, *, pixels: bool) -> Iterator[Entry]:
        """
        Yield the messages of the topics that are exported, in the order of the recording.

        Args:
            pixels: keep the images' bytes.

        Raises:
            ExportError: not an MCAP file, nothing in it, or topics of two arms.
        """
        self.refused = Counter()
        names: dict[str, str] = {}
        messages = iter(self._reader)
        while True:
            try:
                message = next(messages)
            except StopIteration:
                return
            except BagError as error:
                raise ExportError(str(error)) from error
            topic = self._topic(message.topic, message.type, names)
            if topic:
                try:
                    yield _entry(topic, message.stamp_ns, message.data, pixels)
                except MessageError as error:
                    self.refused[f'{topic}: {error}'] += 1

    def _topic(self, name: str, kind: str, names: dict[str, str]) -> str:
        """Return the last names of a topic that is exported, '' of another."""
        for topic, expected in _TOPICS.items():
            if not name.endswith(f'/{topic}') or kind != expected:
                continue
            if self._namespace and name != f'/{self._namespace}/{topic}':
                continue
            if names.setdefault(topic, name) != name:
                raise ExportError(f'{self.path}: {shown(names[topic])} and {shown(name)}: '
                                  'choose one with --namespace')
            return topic
        return ''


def _entry(topic: str, logged_ns: int, data: bytes, pixels: bool) -> Entry:
    message = decode(data, _TOPICS[topic])
    value: Value
    if topic == 'camera/image_raw':
        value = Picture(image_format(message), message.data if pixels else None)
        value.check()
    elif topic == 'arm/joint_states':
        value = values_by_name(message.name, message.position)
    elif topic == 'capture/scene':
        value = message.camera_distance, message.camera_elevation, message.camera_azimuth
    else:
        value = tuple(float(getattr(message, motor)) for motor in JOINTS)
        if any(abs(each) > 1 for each in value):
            raise MessageError('a motor is commanded something other than -1, 0, 1')
    return Entry(topic, stamp_of(message), logged_ns, value)
