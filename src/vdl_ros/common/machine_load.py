"""How many cores of this machine programs hold that do not belong to this training."""

import contextlib
import os
import time
from collections.abc import Callable

import psutil

# Shortest time between two measurements, s: each looks at every process.
_PERIOD_S = 5.0


def _busy_seconds() -> float:
    """Return the processor seconds of everything so far, on the cores that this process has."""
    allowed = os.sched_getaffinity(0)
    # What another virtual machine has taken (steal) is not this machine's to give.
    return sum(sum(core) - core.idle - getattr(core, 'iowait', 0.0)
               - getattr(core, 'guest', 0.0) - getattr(core, 'guest_nice', 0.0)
               for number, core in enumerate(psutil.cpu_times(percpu=True)) if number in allowed)


def _family_seconds() -> dict[int, float]:
    """Return the processor seconds of each process that the parent of this one has started.

    It is the launch of this process and of its actors, or a shell.
    """
    found: dict[int, float] = {}
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(os.getppid())
        for process in [parent, *parent.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                found[process.pid] = times.user + times.system
    return found


class CoresOfOthers:
    """Cores that processes of others hold, as the mean of the last seconds; 0 at first."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic,
        busy: Callable[[], float] = _busy_seconds,
        own: Callable[[], dict[int, float]] = _family_seconds,
    ) -> None:
        self._clock, self._busy, self._own = clock, busy, own
        self._before = clock(), busy(), own()
        self._cores = 0.0

    def __call__(self) -> float:
        since, busy_before, own_before = self._before
        seconds = self._clock() - since
        if seconds >= _PERIOD_S:
            busy, own = self._busy(), self._own()
            # Of a process that has ended the last seconds are not known.
            used = sum(spent - own_before.get(pid, 0.0) for pid, spent in own.items())
            self._cores = max(0.0, busy - busy_before - used) / seconds
            self._before = since + seconds, busy, own
        return self._cores
