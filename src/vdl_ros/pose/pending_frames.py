"""Collect the messages of captured frames: which frames are requested, and which are complete.

The parts of a frame arrive in any order; complete frames are returned in the order of their
numbers. Few frames are requested at a time, so that no queue overflows; a frame that is lost all
the same is requested again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ['FrameTracker', 'UnsolicitedFrames']


@dataclass
class _Open:
    requested_at: float
    parts: dict[str, bytes] = field(default_factory=dict)


class FrameTracker:
    """Frames ``first`` to ``last - 1``; times are seconds of one clock.

    Args:
        last: number after the last.
        parts: names of the parts of a complete frame.
        patience: time after which an incomplete frame is requested again, s.
    """

    def __init__(
        self, first: int, last: int, parts: tuple[str, ...], *, window: int, patience: float,
    ) -> None:
        self._parts, self._window, self._patience = parts, window, patience
        self._next, self._last = first, last
        self._open: dict[int, _Open] = {}
        #: Number of the next frame to return; those before it are done.
        self.done = first
        #: Requests that were repeated, and parts that were not pending.
        self.repeated = self.unexpected = 0

    @property
    def finished(self) -> bool:
        """Return whether every frame was returned."""
        return self.done >= self._last

    @property
    def missing(self) -> list[str]:
        """Return the parts that the next frame lacks."""
        frame = self._open.get(self.done)
        return [] if frame is None else [each for each in self._parts if each not in frame.parts]

    def due_requests(self, now: float) -> list[int]:
        """Return the frames to request now: new ones, and those that took too long."""
        found = []
        for index, frame in self._open.items():
            if now - frame.requested_at > self._patience:
                frame.requested_at = now
                self.repeated += 1
                found.append(index)
        while len(self._open) < self._window and self._next < self._last:
            self._open[self._next] = _Open(now)
            found.append(self._next)
            self._next += 1
        return found

    def put(self, index: int, part: str, data: bytes) -> None:
        """Add a part of a frame; one that is not pending is counted and ignored."""
        frame = self._open.get(index)
        if frame is None or part in frame.parts:
            self.unexpected += 1
        else:
            frame.parts[part] = data

    def pop_complete(self) -> Iterator[tuple[int, dict[str, bytes]]]:
        """Yield and remove complete frames, number and parts, in order."""
        while (frame := self._open.get(self.done)) is not None \
                and len(frame.parts) == len(self._parts):
            index = self.done
            del self._open[index]
            self.done += 1
            yield index, {part: frame.parts[part] for part in self._parts}


class UnsolicitedFrames:
    """Frames that come without a request, as from a real camera: one stamp, one frame.

    Args:
        parts: names of the parts of a complete frame.
        waiting: frames that may be incomplete; older ones are dropped.
    """

    def __init__(
        self, first: int, last: int, parts: tuple[str, ...], *, waiting: int = 16,
        max_bytes: int = 1 << 28,
    ) -> None:
        self._parts, self._last, self._waiting = parts, last, waiting
        self._max_bytes = max_bytes
        self._open: dict[int, dict[str, bytes]] = {}
        self.done = first
        self.repeated = self.unexpected = 0

    @property
    def finished(self) -> bool:
        """Return whether every frame was returned."""
        return self.done >= self._last

    @property
    def missing(self) -> list[str]:
        """Return the parts of which there are none."""
        there = {each for parts in self._open.values() for each in parts}
        return [each for each in self._parts if each not in there]

    def due_requests(self, now: float) -> list[int]:
        """Return nothing: frames are not requested."""
        return []

    def put(self, stamp: int, part: str, data: bytes) -> None:
        """Add a part of the frame with a stamp, ns."""
        self._open.setdefault(stamp, {})[part] = data
        while len(self._open) > self._waiting or self._num_bytes() > self._max_bytes:
            self.unexpected += 1
            del self._open[next(iter(self._open))]

    def _num_bytes(self) -> int:
        return sum(len(data) for parts in self._open.values() for data in parts.values())

    def pop_complete(self) -> Iterator[tuple[int, dict[str, bytes]]]:
        """Yield and remove complete frames, stamp and parts, until there are enough."""
        for stamp in [key for key, parts in self._open.items() if len(parts) == len(self._parts)]:
            parts = self._open.pop(stamp)
            if not self.finished:
                self.done += 1
                yield stamp, {part: parts[part] for part in self._parts}
