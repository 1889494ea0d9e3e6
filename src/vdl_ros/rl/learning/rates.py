"""Rates of counts over windows of time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

__all__ = ['RateWindow']


class RateWindow:
    """How much counts grow from one call of :meth:`take` to the next."""

    def __init__(
        self, counts: Callable[[], Mapping[str, float]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start now; ``counts`` returns the counts by name."""
        self._counts, self._clock = counts, clock
        self.restart()

    def restart(self) -> None:
        """Start again, now."""
        self._since, self._before = self._clock(), dict(self._counts())

    def take(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the growth of each count, and that per second; start again."""
        since, before = self._since, self._before
        self.restart()
        grown = {name: count - before[name] for name, count in self._before.items()}
        seconds = max(self._since - since, 1e-9)
        return grown, {name: count / seconds for name, count in grown.items()}
