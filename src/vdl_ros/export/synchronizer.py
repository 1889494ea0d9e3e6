"""Images with the joints, motors and camera of their moment, in bounded memory."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.export.messages import Entry, Picture

__all__ = ['Frame', 'join']

# Topics have no common order: an image waits so long for messages that belong to its moment and
# were recorded after it.
_WAIT_NS = 250_000_000
# Nor longer than pictures of so many bytes wait in all.
_WAITING_BYTES = 64 << 20
# Joints that were heard so long before an image do not tell where the arm is on it.
_STALE_NS = 500_000_000
# How long what was recorded is kept for images that come later.
_KEEP_NS = 2_000_000_000
_KEEP = 10_000
T = TypeVar('T')


@dataclass(frozen=True)
class Frame:
    """
    One image and what belongs to it.

    Attributes:
        picture: the image.
        stamp_ns: its stamp.
        joints: position of each joint of the arm that is told, rad; None if none is.
        motors: what each motor was commanded; zeros before the first command.
        camera: distance (m), elevation, azimuth (rad) of a captured frame.
    """

    picture: Picture
    stamp_ns: int
    joints: dict[str, float] | None
    motors: tuple[float, ...]
    camera: tuple[float, ...] | None


class _History(Generic[T]):
    """What was said lately, by stamp."""

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
        """Return stamp and value of the newest at or before a stamp."""
        found: tuple[int, T] | None = None
        for _, stamp, value in self._entries:
            if stamp <= stamp_ns and (found is None or stamp >= found[0]):
                found = stamp, value
        return found


def join(entries: Iterable[Entry]) -> Iterator[Frame]:
    """
    Yield a frame for each image, in their order.

    An image gets the newest joint state at or before its stamp, the newest command likewise, and
    the scene of the very same stamp.
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
            size -= len(waiting[0][1].data or b'')
            yield frame()
        value = entry.value
        if isinstance(value, Picture):
            waiting.append((entry, value))
            size += len(value.data or b'')
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
