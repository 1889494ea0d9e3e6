"""
Where the time of a thread goes: a clock that is always in exactly one phase.

A section, ``with phases('learn'):``, puts the clock into another phase while it lasts; one within
another interrupts it. So the phases of a thread add up to its wall time, and none is counted
twice. A section takes half a microsecond: mark what takes a hundred.

========  ==========================================================================
step      the environments
infer     the network that chooses actions, with the sampling
encode    putting what happened, or weights, into arrays and messages
publish   handing messages to the transport
receive   callbacks, with what the executor does before them, and taking over weights
decode    reading and checking messages, putting unrolls side by side
learn     loss, gradient, step of the optimiser
wait      for messages, for credit, for unrolls
other     the rest: reports, checkpoints, accounts
========  ==========================================================================
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType

__all__ = ['ACTING', 'CALLBACKS', 'INFERENCE', 'PHASES', 'TRAINING', 'TimerWindow', 'ThreadTimer']

PHASES = ('step', 'infer', 'encode', 'publish', 'receive', 'decode', 'learn', 'wait', 'other')

# The threads that have a clock: an actor's only one, and those of a learner.
ACTING, TRAINING, CALLBACKS, INFERENCE = 'acting', 'training', 'callbacks', 'inference'


class ThreadTimer:
    """The clock of one thread; other threads may read it."""

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter,
        processor_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """
        Begin, in the phase ``other``.

        Args:
            clock: wall time, s.
            processor_clock: processor time of the calling thread, s.
        """
        self._clock, self._processor_clock = clock, processor_clock
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._stack = ['other']
        # Made once: entering one allocates nothing.
        self._sections = {name: _Section(self, name) for name in PHASES}
        self._listening = _Listening(self)
        self._since = self._read = clock()

    def __call__(self, name: str) -> _Section:
        """Return the section of a phase, for a ``with`` statement in the clock's own thread."""
        return self._sections[name]

    def listening(self) -> _Listening:
        """
        Return a section for an executor's ``spin_once``.

        It waits, takes messages and calls back in one, and only processor time tells these
        apart: what the thread uses of it is ``receive``, the rest is ``wait``, also where it
        waits for the interpreter's lock.
        """
        return self._listening

    def seconds(self) -> dict[str, float]:
        """Return the seconds in each phase so far, with the section under way."""
        while True:
            since = self._since
            found, name, now = dict(self._seconds), self._stack[-1], self._clock()
            # Its thread may have asked the clock before and not have changed phase yet.
            self._read = now
            if since == self._since:  # else its thread has changed phase meanwhile
                break
        found[name] += now - since
        return found


class _Section:
    """
    A phase as a context manager.

    Without a lock, which would cost as much as all the rest: Python changes threads at calls and
    jumps back, and the only one where a clock is between two states is the call for the time. If
    another thread has read the clock since, the change is at the moment of that: what was told
    stays true.
    """

    __slots__ = ('_name', '_phases')

    def __init__(self, phases: ThreadTimer, name: str) -> None:
        self._phases, self._name = phases, name

    def __enter__(self) -> None:
        phases = self._phases
        stack, now = phases._stack, phases._clock()
        if now < phases._read:
            now = phases._read
        phases._seconds[stack[-1]] += now - phases._since
        phases._since = now
        stack.append(self._name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        phases = self._phases
        stack, now = phases._stack, phases._clock()
        if now < phases._read:
            now = phases._read
        phases._seconds[stack[-1]] += now - phases._since
        phases._since = now
        stack.pop()


class _Listening(_Section):
    """Waits, and moves the processor time of it to ``receive`` at the end."""

    __slots__ = ('_processor', '_waited')

    def __init__(self, phases: ThreadTimer) -> None:
        super().__init__(phases, 'wait')
        self._processor = self._waited = 0.0

    def __enter__(self) -> None:
        super().__enter__()
        self._processor = self._phases._processor_clock()
        self._waited = self._phases._seconds['wait']

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        used = self._phases._processor_clock() - self._processor
        super().__exit__(kind, error, trace)
        seconds = self._phases._seconds
        # Never more than was waited: sections within have taken their own time.
        used = min(used, seconds['wait'] - self._waited)
        seconds['wait'] -= used
        seconds['receive'] += used


class TimerWindow:
    """The time of one clock since a moment."""

    def __init__(self, phases: ThreadTimer) -> None:
        """Begin now."""
        self._phases = phases
        self._before = phases.seconds()

    def restart(self) -> None:
        """Begin anew, now."""
        self._before = self._phases.seconds()

    def shares(self) -> dict[str, float]:
        """Return the share of each phase since the beginning; together they are 1."""
        return _shares(self._before, self._phases.seconds())

    def take(self) -> dict[str, float]:
        """Return the shares, and begin anew at that moment."""
        before, self._before = self._before, self._phases.seconds()
        return _shares(before, self._before)


def _shares(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return shares, without the phases that the thread has never been in."""
    # What was waiting a moment ago may be receiving now: such a phase has not run backwards.
    spent = {name: max(after[name] - before[name], 0.0) for name in PHASES if after[name] > 0}
    total = sum(spent.values())
    return {name: value / total for name, value in spent.items()} if total else {}
