"""When to start a process again that has ended: at once, later, or not any more."""

from __future__ import annotations

__all__ = ['RestartDelays']

_FIRST_S, _LONGEST_S = 1.0, 32.0
# Ends without a while of work between them, after which the process is not started again.
_MOST = 8
# Work that makes up for one end, s.
_WORK_S = 20.0


class RestartDelays:
    """
    The delays before the restarts of one process.

    A process that ends now and then is started again after 1 s. For one that ends again and again
    soon after its start the delay doubles, up to 32 s, and after 8 ends there is no other restart.
    """

    def __init__(self) -> None:
        """Start with no ends."""
        self._ends = 0.0

    def next(self, lived_s: float) -> float | None:
        """Return the delay in seconds after a process lived for ``lived_s``; None: no restart."""
        self._ends = max(self._ends - lived_s / _WORK_S, 0.0) + 1.0
        if self._ends > _MOST:
            return None
        return float(min(_FIRST_S * 2.0 ** int(self._ends - 1.0), _LONGEST_S))
