"""Where the time of a thread goes, and how old an observation is when its action comes."""

import time
from collections.abc import Callable, Mapping
from types import TracebackType

import numpy as np
from numpy.typing import ArrayLike, NDArray

PHASES = ('step', 'infer', 'encode', 'publish', 'receive', 'decode', 'learn', 'wait', 'other')

# Threads with a timer: the actor's, then those of the learner.
ACTING, TRAINING, CALLBACKS, INFERENCE = 'acting', 'training', 'callbacks', 'inference'


class ThreadTimer:
    """Timer of one thread; other threads may read it.

    Args:
        clock: wall time, s.
        processor_clock: processor time of the calling thread, s.
    """

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter,
        processor_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._clock, self._processor_clock = clock, processor_clock
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._stack = ['other']
        # Created once, so that entering one allocates nothing.
        self._sections = {name: _Section(self, name) for name in PHASES}
        self._executor_wait = _ExecutorWait(self)
        self._since = self._read = clock()

    def __call__(self, name: str) -> '_Section':
        """Return the section of a phase, for a ``with`` statement in the timer's thread."""
        return self._sections[name]

    def executor_wait(self) -> '_ExecutorWait':
        """Return a section for an executor's ``spin_once``.

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
    """A phase as a context manager.

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
        self._timer = timer
        self._before = timer.seconds()

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


#: Names of the parts, in the order of the columns of :meth:`ReactionTime.take`.
PARTS = ('thinking', 'processing', 'action_lag', 'observation_lag')


class ReactionTime:
    """The parts of the reaction time of the latest actions.

    Args:
        window: number of latest actions that are kept; it bounds the memory, 32 bytes each.

    Attributes:
        count: number of actions that were added so far.
    """

    def __init__(self, window: int = 10_000) -> None:
        self.count = 0
        self._parts: NDArray[np.float64] = np.empty((window, len(PARTS)))
        self._taken = 0

    def extend(self, parts: ArrayLike) -> None:
        """Add the parts of N actions, s, [N, 4] in the order of :data:`PARTS`.

        Actions with a part that is negative, as after a clock was set, or not finite are left out.
        """
        rows = np.asarray(parts, np.float64).reshape(-1, len(PARTS))
        rows = rows[(np.isfinite(rows) & (rows >= 0)).all(axis=1)]
        self.count += len(rows)
        latest = rows[-len(self._parts):]
        self._parts[np.arange(self.count - len(latest), self.count) % len(self._parts)] = latest

    def take(self) -> NDArray[np.float64]:
        """Return the parts that are new since the last call, s, [N, 4], the oldest first."""
        first = max(self._taken, self.count - len(self._parts))
        self._taken = self.count
        return self._parts[np.arange(first, self.count) % len(self._parts)]

    def summary(self) -> dict[str, float]:
        """Return the means of the parts by name, and ``mean``, ``p50`` and ``p99`` of their sums.

        In ms; {} before the first action.
        """
        parts = self._parts[:self.count]
        if not len(parts):
            return {}
        sums = parts.sum(axis=1)
        values = (*parts.mean(axis=0), sums.mean(), *np.percentile(sums, (50, 99)))
        return {name: round(1e3 * float(value), 3) for name, value in zip(
            (*PARTS, 'mean', 'p50', 'p99'), values, strict=True)}
