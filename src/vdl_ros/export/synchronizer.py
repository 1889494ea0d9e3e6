"""Synchronise images with joint states, motor commands and camera poses, in bounded memory."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from vdl_ros.export.bag_topics import BagTopics
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
    One image, or message of the state of a robot without a camera, with the messages of its time.

    Attributes:
        picture: the image; None of a robot without a camera.
        stamp_ns: its stamp.
        joints: numbers of the state that are known, by name; None if none is.
        motors: command of each motor; zeros before the first command.
        camera: distance (m), elevation, azimuth (rad) of a captured frame.
    """

    picture: Picture | None
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


def synchronize(entries: Iterable[Entry], topics: BagTopics) -> Iterator[Frame]:
    """
    Yield a frame for each message of ``topics.rows``, in their order.

    It gets the newest state at or before its stamp, of each topic, the newest command likewise,
    and the scene of the same stamp.
    """
    states: dict[str, _History[dict[str, float]]] = {
        name: _History() for name in topics.states}
    motors: _History[tuple[float, ...]] = _History(keep_last=True)
    scenes: _History[tuple[float, ...]] = _History()
    waiting: deque[tuple[Entry, Picture | None]] = deque()
    size = 0

    def frame() -> Frame:
        entry, picture = waiting.popleft()
        stamp = entry.stamp_ns
        command, scene = motors.newest(stamp), scenes.newest(stamp)
        known: dict[str, float] = {}
        for each in states.values():
            state = each.newest(stamp)
            if state and stamp - state[0] <= _STALE_NS:
                known |= state[1]
        return Frame(
            picture, stamp, known or None,
            command[1] if command else (0.0,) * len(topics.motors),
            scene[1] if scene and scene[0] == stamp else None)

    for entry in entries:
        while waiting and (abs(entry.logged_ns - waiting[0][0].logged_ns) >= _WAIT_NS
                           or size > _WAITING_BYTES):
            size -= _bytes_of(waiting[0][1])
            yield frame()
        value = entry.value
        if isinstance(value, dict):
            known = {name: value[name] for name in topics.names
                     if math.isfinite(value.get(name, math.nan))}
            if known:
                states[entry.topic].add(entry, known)
        elif entry.topic == topics.command and not isinstance(value, Picture):
            motors.add(entry, value)
        elif not isinstance(value, Picture) and all(math.isfinite(each) for each in value):
            scenes.add(entry, value)
        if entry.topic == topics.rows:
            picture = value if isinstance(value, Picture) else None
            waiting.append((entry, picture))
            size += _bytes_of(picture)
    while waiting:
        yield frame()


def _bytes_of(picture: Picture | None) -> int:
    return 0 if picture is None or picture.data is None else picture.format.length
