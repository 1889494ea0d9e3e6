"""Synchronise images with joint states, motor commands and camera poses, in bounded memory."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.export.messages import Entry, Picture

__all__ = ['Frame', 'synchronize']

# How long an image waits for messages with its stamp that were recorded after it.
_WAIT_NS = 250_000_000
# Bytes of images that wait at most.
_WAITING_BYTES = 64 << 20
# Joint states older than this are not used for an image.
_STALE_NS = 500_000_000
# How long messages are kept for later images.
_KEEP_NS = 2_000_000_000
_KEEP = 10_000
T = TypeVar('T')


@dataclass(frozen=True)
class Frame:
    """
    One image with the messages of its time.

    Attributes:
        picture: the image.
        stamp_ns: its stamp.
        joints: position of each joint that is known, rad; None if none is.
        motors: command of each motor; zeros before the first command.
        camera: distance (m), elevation, azimuth (rad) of a captured frame.
    """

    picture: Picture
    stamp_ns: int
    joints: dict[str, float] | None
    motors: tuple[float, ...]
    camera: tuple[float, ...] | None


class _History(Generic[T]):
    """Recent messages of a topic, by stamp."""

    def __init__(self, *, keep_last: bool = False) -> None:
        self._entries: deque[tuple[int, int, T]] = deque(maxlen=_KEEP)
        self._keep_last = keep_last

    def add(self, entry: Entry, value: T) -> None:
        self._entries.append((entry.logged_ns, entry.stamp_ns, value))
        while len(self._entries) > 1 and entry.logged_ns - self._entries[0][0] > _KEEP_NS:
            if self._keep_last and self._entries[1][0] > entry.logged_ns - _KEEP_NS:
                break
            self._entries.popleft()

    def newest(self, stamp_ns: int) -> tuple[int, T] | None:
        """Return stamp and value of the newest message at or before a stamp."""
        found: tuple[int, T] | None = None
        for _, stamp, value in self._entries:
            if stamp <= stamp_ns and (found is None or stamp >= found[0]):
                found = stamp, value
        return found


def synchronize(entries: Iterable[Entry]) -> Iterator[Frame]:
    """
    Yield a frame for each image, in their order.

    An image gets the newest joint state at or before its stamp, the newest command likewise, and
    the scene of the same stamp.
    """
    joints: _History[dict[str, float]] = _History()
    motors: _History[tuple[float, ...]] = _History(keep_last=True)
    scenes: _History[tuple[float, ...]] = _History()
    waiting: deque[tuple[Entry, Picture]] = deque()
    size = 0

    def frame() -> Frame:
        entry, picture = waiting.popleft()
        stamp = entry.stamp_ns
        state, command, scene = (joints.newest(stamp), motors.newest(stamp), scenes.newest(stamp))
        return Frame(
            picture, stamp,
            state[1] if state and stamp - state[0] <= _STALE_NS else None,
            command[1] if command else (0.0,) * len(JOINTS),
            scene[1] if scene and scene[0] == stamp else None)

    for entry in entries:
        while waiting and (abs(entry.logged_ns - waiting[0][0].logged_ns) >= _WAIT_NS
                           or size > _WAITING_BYTES):
            size -= _bytes_of(waiting[0][1])
            yield frame()
        value = entry.value
        if isinstance(value, Picture):
            waiting.append((entry, value))
            size += _bytes_of(value)
        elif isinstance(value, dict):
            known = {name: value[name] for name in JOINTS
                     if math.isfinite(value.get(name, math.nan))}
            if known:
                joints.add(entry, known)
        elif entry.topic == 'arm/motors_sent':
            motors.add(entry, value)
        elif all(math.isfinite(each) for each in value):
            scenes.add(entry, value)
    while waiting:
        yield frame()


def _bytes_of(picture: Picture) -> int:
    return 0 if picture.data is None else picture.format.length
