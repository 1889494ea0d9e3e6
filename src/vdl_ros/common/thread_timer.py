"""
Measures how a thread divides its wall time between phases.

``with timer('learn'):`` switches to another phase for the block; a nested block interrupts the
outer one. The timer is always in exactly one phase, so the phases add up to the wall time. A block
costs half a microsecond: use it for work of a hundred or more.

========  ==========================================================================
step      the environments
infer     the network that chooses actions, and sampling
encode    writing steps or weights into arrays and messages
publish   publishing messages
receive   callbacks, the executor's work for them, and loading weights
decode    reading and checking messages, making batches
learn     loss, gradient, optimizer step
wait      for messages, for credit, for unrolls
other     the rest: reports, checkpoints, statistics
========  ==========================================================================
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType

__all__ = ['ACTING', 'CALLBACKS', 'INFERENCE', 'PHASES', 'TRAINING', 'TimerWindow', 'ThreadTimer']

PHASES = ('step', 'infer', 'encode', 'publish', 'receive', 'decode', 'learn', 'wait', 'other')

# Threads with a timer: the actor's, then those of the learner.
ACTING, TRAINING, CALLBACKS, INFERENCE = 'acting', 'training', 'callbacks', 'inference'


class ThreadTimer:
    """Timer of one thread; other threads may read it."""

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter,
        processor_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """
        Start in the phase ``other``.

        Args:
            clock: wall time, s.
            processor_clock: processor time of the calling thread, s.
        """
        self._clock, self._processor_clock = clock, processor_clock
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._stack = ['other']
        # Created once, so that entering one allocates nothing.
        self._sections = {name: _Section(self, name) for name in PHASES}
        self._executor_wait = _ExecutorWait(self)
        self._since = self._read = clock()

    def __call__(self, name: str) -> _Section:
        """Return the section of a phase, for a ``with`` statement in the timer's thread."""
        return self._sections[name]

    def executor_wait(self) -> _ExecutorWait:
        """
        Return a section for an executor's ``spin_once``.

        ``spin_once`` waits, takes messages and runs callbacks. The processor time of the thread
        counts as ``receive``, the rest as ``wait``, including waits for the interpreter lock.
        """
        return self._executor_wait

    def seconds(self) -> dict[str, float]:
        """Return the seconds in each phase so far, including the current section."""
        while True:
            since = self._since
            found, name, now = dict(self._seconds), self._stack[-1], self._clock()
            # The timer's thread may have read the clock before and not changed phase yet.
            self._read = now
            if since == self._since:  # else the phase changed meanwhile
                break
        found[name] += now - since
        return found


class _Section:
    """
    A phase as a context manager.

    It has no lock, which would double its cost: Python switches threads at calls and backward
    jumps, and the only one here between two states is the call of the clock. If another thread has
    read the timer since that call, the phase changes at the time of that reading, so what it
    returned stays true.
    """

    __slots__ = ('_name', '_timer')

    def __init__(self, timer: ThreadTimer, name: str) -> None:
        self._timer, self._name = timer, name

    def __enter__(self) -> None:
        timer = self._timer
        stack, now = timer._stack, timer._clock()
        if now < timer._read:
            now = timer._read
        timer._seconds[stack[-1]] += now - timer._since
        timer._since = now
        stack.append(self._name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        timer = self._timer
        stack, now = timer._stack, timer._clock()
        if now < timer._read:
            now = timer._read
        timer._seconds[stack[-1]] += now - timer._since
        timer._since = now
        stack.pop()


class _ExecutorWait(_Section):
    """The phase ``wait``; its processor time is moved to ``receive`` at the end."""

    __slots__ = ('_processor', '_waited')

    def __init__(self, timer: ThreadTimer) -> None:
        super().__init__(timer, 'wait')
        self._processor = self._waited = 0.0

    def __enter__(self) -> None:
        super().__enter__()
        self._processor = self._timer._processor_clock()
        self._waited = self._timer._seconds['wait']

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        used = self._timer._processor_clock() - self._processor
        super().__exit__(kind, error, trace)
        seconds = self._timer._seconds
        # At most the time in wait: nested sections count separately.
        used = min(used, seconds['wait'] - self._waited)
        seconds['wait'] -= used
        seconds['receive'] += used


class TimerWindow:
    """Shares of a timer's phases since a start time."""

    def __init__(self, timer: ThreadTimer) -> None:
        """Start now."""
        self._timer = timer
        self._before = timer.seconds()

    def restart(self) -> None:
        """Start again, now."""
        self._before = self._timer.seconds()

    def shares(self) -> dict[str, float]:
        """Return the share of each phase since the start; the sum is 1."""
        return _shares(self._before, self._timer.seconds())

    def take(self) -> dict[str, float]:
        """Return the shares, and start again."""
        before, self._before = self._before, self._timer.seconds()
        return _shares(before, self._before)


def _shares(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return shares, without phases that the thread was never in."""
    # Time may have moved from wait to receive since: such a difference counts as 0.
    spent = {name: max(after[name] - before[name], 0.0) for name in PHASES if after[name] > 0}
    total = sum(spent.values())
    return {name: value / total for name, value in spent.items()} if total else {}
