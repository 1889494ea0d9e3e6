"""
Which frames of a capture are under way, and which are whole.

A frame is asked for, its parts come one by one and in any order, and whole frames leave in the
order of their numbers. Few are under way at a time: what travels can be held by every queue on
the way, so that nothing is dropped; what is lost all the same is asked for again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ['FrameTracker', 'UnsolicitedFrames']


@dataclass
class _Open:
    asked_at: float
    parts: dict[str, bytes] = field(default_factory=dict)


class FrameTracker:
    """Frames ``first`` to ``last - 1``; times are seconds of one clock."""

    def __init__(
        self, first: int, last: int, parts: tuple[str, ...], *, window: int, patience: float,
    ) -> None:
        """
        Begin with none under way.

        Args:
            first: number of the first frame.
            last: number after the last.
            parts: names of what makes a frame whole.
            window: frames that may be under way.
            patience: after so long a frame that is not whole is asked for again, s.
        """
        self._parts, self._window, self._patience = parts, window, patience
        self._next, self._last = first, last
        self._open: dict[int, _Open] = {}
        #: Frames that have left; the number of the next to leave.
        self.done = first
        #: How often a frame was asked for again, and parts came that nobody waited for.
        self.repeated = self.unasked = 0

    @property
    def finished(self) -> bool:
        """Return whether every frame has left."""
        return self.done >= self._last

    def due_requests(self, now: float) -> list[int]:
        """Return the frames to ask for now: new ones, and those that took too long."""
        found = []
        for index, frame in self._open.items():
            if now - frame.asked_at > self._patience:
                frame.asked_at = now
                self.repeated += 1
                found.append(index)
        while len(self._open) < self._window and self._next < self._last:
            self._open[self._next] = _Open(now)
            found.append(self._next)
            self._next += 1
        return found

    def put(self, index: int, part: str, data: bytes) -> None:
        """Take a part of a frame; what was not asked for, or is there already, is counted."""
        frame = self._open.get(index)
        if frame is None or part in frame.parts:
            self.unasked += 1
        else:
            frame.parts[part] = data

    def leave(self) -> Iterator[tuple[int, dict[str, bytes]]]:
        """Yield whole frames, number and parts, in order, as far as they are there."""
        while (frame := self._open.get(self.done)) is not None \
                and len(frame.parts) == len(self._parts):
            index = self.done
            del self._open[index]
            self.done += 1
            yield index, {part: frame.parts[part] for part in self._parts}


class UnsolicitedFrames:
    """Frames nobody asked for, as a real camera gives them: one stamp, one frame."""

    def __init__(
        self, first: int, last: int, parts: tuple[str, ...], *, waiting: int = 16,
    ) -> None:
        """
        Begin with none.

        Args:
            first: frames that are there already.
            last: frames that shall be there.
            parts: names of what makes a frame whole.
            waiting: frames that may wait for their other parts; older ones are given up.
        """
        self._parts, self._last, self._waiting = parts, last, waiting
        self._open: dict[int, dict[str, bytes]] = {}
        self.done = first
        self.repeated = self.unasked = 0

    @property
    def finished(self) -> bool:
        """Return whether there are enough."""
        return self.done >= self._last

    def due_requests(self, now: float) -> list[int]:
        """Return nothing: frames come by themselves."""
        return []

    def put(self, stamp: int, part: str, data: bytes) -> None:
        """Take a part of the frame with a stamp, ns."""
        self._open.setdefault(stamp, {})[part] = data
        while len(self._open) > self._waiting:
            self.unasked += 1
            del self._open[next(iter(self._open))]

    def leave(self) -> Iterator[tuple[int, dict[str, bytes]]]:
        """Yield whole frames, stamp and parts, as long as more are wanted."""
        for stamp in [key for key, parts in self._open.items() if len(parts) == len(self._parts)]:
            parts = self._open.pop(stamp)
            if not self.finished:
                self.done += 1
                yield stamp, {part: parts[part] for part in self._parts}
