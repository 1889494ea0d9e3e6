"""
The four messages of a capture bag, taken apart by hand: only what is needed, every size checked.

ROS 2 stores messages as CDR: four bytes that name the byte order, then the fields, each aligned to
its size counted from behind those four.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    'CameraInfo', 'CdrError', 'Image', 'Joints', 'Scene', 'read_camera_info', 'read_image',
    'read_joints', 'read_scene',
]

Array = NDArray[np.float64]
Buffer = memoryview | bytes


class CdrError(ValueError):
    """A message that is cut short or contradicts itself; the text says how, without numbers."""


@dataclass(frozen=True)
class Image:
    """``sensor_msgs/Image``; its pixels are ``length`` bytes from ``offset`` in the message."""

    stamp_ns: int
    height: int
    width: int
    encoding: str
    step: int
    offset: int
    length: int


@dataclass(frozen=True)
class CameraInfo:
    """``sensor_msgs/CameraInfo``; ``matrix`` is K, float64 [3, 3], pixels."""

    stamp_ns: int
    height: int
    width: int
    matrix: Array


@dataclass(frozen=True)
class Joints:
    """``sensor_msgs/JointState``; rad."""

    stamp_ns: int
    positions: dict[str, float]


@dataclass(frozen=True)
class Scene:
    """``vdl_ros/CaptureScene``; ``camera`` is distance (m), elevation and azimuth (rad)."""

    stamp_ns: int
    index: int
    seed: int
    split: str
    domain: str
    camera: tuple[float, float, float]
    parameters: dict[str, float]


class _Reader:
    """Reads fields one after the other."""

    def __init__(self, data: Buffer):
        if len(data) < 4 or data[0] != 0 or data[1] not in (0, 1):
            raise CdrError('not a message')
        self._data = data
        self._order = '<' if data[1] else '>'
        self.position = 4

    def numbers(self, kind: str, size: int, count: int = 1) -> tuple[int | float, ...]:
        """Return ``count`` numbers of one format letter and size."""
        self.position += -(self.position - 4) % size
        end = self.position + size * count
        if end > len(self._data):
            raise CdrError('cut short')
        found: tuple[int | float, ...] = struct.unpack_from(
            f'{self._order}{count}{kind}', self._data, self.position)
        self.position = end
        return found

    def count(self, size: int) -> int:
        """Return a sequence's length, of which each element takes at least ``size`` bytes."""
        length = int(self.numbers('I', 4)[0])
        if length * size > len(self._data) - self.position:
            raise CdrError('cut short')
        return length

    def text(self) -> str:
        """Return a string."""
        length = self.count(1)
        raw = bytes(self._data[self.position:self.position + length])
        self.position += length
        try:
            return raw.rstrip(b'\0').decode()
        except UnicodeDecodeError:
            raise CdrError('a text that is none') from None

    def doubles(self) -> tuple[float, ...]:
        """Return a sequence of float64."""
        length = self.count(8)
        return tuple(float(each) for each in self.numbers('d', 8, length)) if length else ()

    def texts(self) -> list[str]:
        """Return a sequence of strings."""
        return [self.text() for _ in range(self.count(4))]

    def stamp(self) -> int:
        """Return a header's stamp, ns, and pass its frame."""
        seconds, = self.numbers('i', 4)
        nanoseconds, = self.numbers('I', 4)
        self.text()
        return int(seconds) * 10**9 + int(nanoseconds)


def read_image(data: Buffer) -> Image:
    """
    Return where the pixels are.

    Raises:
        CdrError: the message is broken.
    """
    reader = _Reader(data)
    stamp = reader.stamp()
    height, width = (int(each) for each in reader.numbers('I', 4, 2))
    encoding = reader.text()
    reader.numbers('B', 1)
    step = int(reader.numbers('I', 4)[0])
    length = reader.count(1)
    return Image(stamp, height, width, encoding, step, reader.position, length)


def read_camera_info(data: Buffer) -> CameraInfo:
    """
    Return size and matrix.

    Raises:
        CdrError: the message is broken.
    """
    reader = _Reader(data)
    stamp = reader.stamp()
    height, width = (int(each) for each in reader.numbers('I', 4, 2))
    reader.text()
    reader.doubles()
    matrix = np.array(reader.numbers('d', 8, 9), np.float64).reshape(3, 3)
    return CameraInfo(stamp, height, width, matrix)


def read_joints(data: Buffer) -> Joints:
    """
    Return positions by name.

    Raises:
        CdrError: the message is broken, or names and positions are not as many.
    """
    reader = _Reader(data)
    stamp = reader.stamp()
    return Joints(stamp, _pairs(reader.texts(), reader.doubles()))


def read_scene(data: Buffer) -> Scene:
    """
    Return the truth about the camera and what was randomised.

    Raises:
        CdrError: the message is broken, or names and values are not as many.
    """
    reader = _Reader(data)
    stamp = reader.stamp()
    index, seed = (int(each) for each in reader.numbers('Q', 8, 2))
    split, domain = reader.text(), reader.text()
    distance, elevation, azimuth = (float(each) for each in reader.numbers('d', 8, 3))
    return Scene(stamp, index, seed, split, domain, (distance, elevation, azimuth),
                 _pairs(reader.texts(), reader.doubles()))


def _pairs(names: list[str], values: tuple[float, ...]) -> dict[str, float]:
    """Return values by name."""
    if len(names) != len(values):
        raise CdrError('names and values are not as many')
    return dict(zip(names, values, strict=True))
