"""Notices that a process stood still: it was stopped, or its machine suspended."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

#: Longest time between two updates that is no standstill, s.
MAX_GAP = 1.0


class StandstillDetector:
    """Tells whether input may have waited through a standstill.

    What was sent meanwhile arrives afterwards, when nobody expects motion any more.

    Args:
        max_gap: between two updates, s; infinity: nothing is a standstill.
        settling: for how long after a standstill input may still be old, s.
        clock: s.
    """

    def __init__(
        self, max_gap: float = MAX_GAP, settling: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_gap, self._settling, self._clock = max_gap, settling, clock
        # Input that arrives before the first update is not old: the process has just started.
        self._updated_at, self._went_on_at = math.inf, -math.inf

    def update(self) -> bool:
        """Note that the process runs; call it at a steady rate. Return :attr:`recent`."""
        now = self._clock()
        if now - self._updated_at > self._max_gap:
            self._went_on_at = now
        self._updated_at = now
        return now - self._went_on_at < self._settling

    @property
    def recent(self) -> bool:
        """Return whether the process stands still, or went on less than ``settling`` ago."""
        now = self._clock()
        return (now - self._updated_at > self._max_gap
                or now - self._went_on_at < self._settling)
