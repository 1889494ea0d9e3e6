"""Pacer: keeps simulated time in step with wall time, without sleeping."""

from __future__ import annotations

import math

__all__ = ['Pacer']


class Pacer:
    """
    Computes how much to simulate now and how long to wait.

    Both are relative to one moment at which wall and simulated time agreed, so that errors do not
    add up. A simulation that falls behind by more than ``max_lag`` does not catch up: that moment
    is moved, and counted in ``resyncs``.
    """

    def __init__(self, real_time_factor: float = 1.0, max_lag: float = 0.2):
        """
        Make a pacer; wall and simulated time agree at the first call of a method.

        Args:
            real_time_factor: simulated seconds per second of wall time.
            max_lag: wall time, s, more than 0.

        Raises:
            ValueError: a value that is not a positive number.
        """
        for name, value in (('real_time_factor', real_time_factor), ('max_lag', max_lag)):
            if not (math.isfinite(value) and value > 0.0):
                raise ValueError(f'{name}: {value} is not allowed: a number, more than 0')
        self.real_time_factor = real_time_factor
        self.max_lag = max_lag
        self.resyncs = 0
        self._wall: float | None = None
        self._sim = 0.0

    def sync(self, wall: float, sim: float) -> None:
        """Set the moment at which the clocks agree: monotonic and simulated time, s."""
        self._wall, self._sim = wall, sim

    def due(self, wall: float, sim: float) -> float:
        """
        Return how many seconds to simulate now, at least 0.

        Args:
            wall: monotonic time, s.
            sim: simulated time so far, s.
        """
        behind = self._behind(wall, sim)
        if abs(behind) > self.max_lag * self.real_time_factor:
            self.resyncs += 1
            self.sync(wall, sim)
            return 0.0
        return max(0.0, behind)

    def wait(self, wall: float, sim: float) -> float:
        """
        Return the wall time to wait until ``sim`` is due, s, at least 0.

        Args:
            wall: monotonic time, s.
            sim: simulated time to be reached, s.
        """
        return max(0.0, -self._behind(wall, sim) / self.real_time_factor)

    def _behind(self, wall: float, sim: float) -> float:
        """Return how late ``sim`` is, in simulated s."""
        if self._wall is None:
            self.sync(wall, sim)
            return 0.0
        return (wall - self._wall) * self.real_time_factor - (sim - self._sim)
