"""Takes unrolls from the inbox until there are enough for a batch."""

import queue
import threading
from collections import Counter
from collections.abc import Callable

from vdl_ros.rl.data.batch import Batch
from vdl_ros.rl.data.unroll import EndOfBagError, Inbox, Unroll
from vdl_ros.rl.learning.flow_stats import FlowStats
from vdl_ros.rl.learning.learner import Learner

#: Longest wait for an unroll, s.
COLLECT_S = 0.1
# Actors named in a warning.
_NAMED = 5


class Collector:
    """The unrolls of the next batch; ``record`` is called with each that is taken.

    An asynchronous training takes ``batch_size`` unrolls of any actors, a synchronous one so many
    of each. Without an unroll for ``stall_timeout`` seconds a warning names the actors that the
    run waits for; a synchronous run then goes on without them, until they send again.
    """

    def __init__(
        self, learner: Learner, inbox: Inbox, flow_stats: FlowStats,
        record: Callable[[Unroll], None], warn: Callable[[str], None], *, num_actors: int,
        stall_timeout: float, clock: Callable[[], float],
    ) -> None:
        self.inbox, self.is_exhausted = inbox, False
        self._learner, self._flow_stats = learner, flow_stats
        self._record, self._warn = record, warn
        self._stall_timeout, self._clock = stall_timeout, clock
        self._num_actors = num_actors if learner.config.synchronous else 1
        # The actors that a synchronous run waits for, once it has gone on without others.
        self._present: set[str] | None = None
        self._unrolls: list[Unroll] = []
        self._batch: Batch | None = None
        self.restart_clock()

    def restart_clock(self) -> None:
        """Count ``stall_timeout`` from now."""
        self._waiting_since = self._warned_at = self._clock()

    @property
    def _needed(self) -> int:
        present = self._num_actors if self._present is None else len(self._present)
        return self._learner.config.batch_size * min(self._num_actors, present)

    @property
    def share(self) -> str:
        """How many unrolls of a batch there are, and what is done once these are all."""
        share = f'{len(self._unrolls)} of {self._needed} are here'
        if len(self._unrolls) < self._needed:
            return share
        return f'{share}, and ' + ('are made a batch' if self._batch is None else
                                   'it waits for the other learners')

    def collect(self, stop: threading.Event) -> Batch | None:
        """Return a batch once there are enough unrolls, the same until :meth:`release`.

        Until then it takes unrolls, and returns None if none arrives, the policy must be
        published, or ``stop`` is set.
        """
        while len(self._unrolls) < self._needed and not (
                self._flow_stats.credit_due or stop.is_set()):
            try:
                unroll = self.inbox.get(COLLECT_S)
            except EndOfBagError:
                self.is_exhausted = True
                break
            except queue.Empty:
                self._check_stall()
                break
            self._add(unroll)
        if self._batch is None and len(self._unrolls) >= self._needed:
            self._batch = self._learner.make_batch(self._unrolls)
        return self._batch

    def _add(self, unroll: Unroll) -> None:
        self.restart_clock()
        if self._present is not None:
            self._present.add(unroll.actor_id)
        self._record(unroll)
        lag = self._learner.version - unroll.policy_version
        if lag <= self._learner.config.max_version_lag:
            self._unrolls.append(unroll)
        else:
            # Not learned from; publish, because its actor may wait for this credit.
            self._flow_stats.stale += 1
            self._flow_stats.use(unroll.start_id, lag)
            self._flow_stats.credit_due = True

    def release(self, version: int) -> None:
        """Drop the unrolls of the batch and credit their actors; ``version`` learned from them."""
        for unroll in self._unrolls:
            self._flow_stats.use(unroll.start_id, version - unroll.policy_version)
        self._unrolls, self._batch = [], None

    def _check_stall(self) -> None:
        """Warn of silent actors after ``stall_timeout``; if synchronous, go on without them."""
        now, batch_size = self._clock(), self._learner.config.batch_size
        if now - self._warned_at < self._stall_timeout:
            return
        self._warned_at = now
        counts = Counter(unroll.actor_id for unroll in self._unrolls)
        known = {record.actor_id for record in self._flow_stats.actor_records.values()}
        missing = sorted(each for each in known if counts[each] < batch_size)
        names = ', '.join(f'{each[:80]!r}' for each in missing[:_NAMED]) or 'its actors'
        more = f' and {len(missing) - _NAMED} more' if len(missing) > _NAMED else ''
        end = ''
        if batch_size <= len(self._unrolls) < self._needed:
            end = '; it goes on without those that are silent, until they send again'
            self._present = {each for each, count in counts.items() if count >= batch_size} or (
                set(counts))
        self._warn(f'stalled for {now - self._waiting_since:.0f} s, waiting for {names}{more}'
                   f'{end}')
