"""The learner's records of actors: what arrived, was lost and was used, and their credit."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

# Maximum of the message's uint64 field; used is one more than the largest sequence number.
_MAX_USED = 2**64 - 1
# A larger jump of sequence numbers is rejected: no credit allows it.
_MAX_GAP = 10_000
# Policies have the credits of so many actors. Of more, they have those that changed, and once in
# so many seconds all, in case a policy was lost: with a thousand in each, a learner would spend
# more time on credits than on trajectories (docs/benchmarks.md, "A thousand actors").
_ALWAYS_ALL, _ALL_EVERY_S = 64, 1.0
# Seconds of silence, with nothing left to learn from, after which an actor does not count as
# present, and after which it is forgotten: it has received its last credit long before.
_PRESENT_S, _FORGET_S = 60.0, 600.0


@dataclass
class ActorRecord:
    """The learner's record of one actor process, whose name another one may have too.

    ``waiting`` trajectories arrived and are not used yet; ``active_at`` is when one last arrived
    or was used, s.
    """

    actor_id: str
    expected: int = 0
    waiting: int = 0
    active_at: float = 0.0

    @property
    def used(self) -> int:
        """Trajectories learned from, or lost: one that comes late is not learned from."""
        return self.expected - self.waiting

    def is_silent(self, since: float) -> bool:
        return self.active_at < since and not self.waiting


@dataclass
class FlowStats:
    """Counts of trajectories received, lost and used, and their policy lag.

    Attributes:
        lost: missing sequence numbers, and messages dropped by a full queue.
        rejected: messages that were not valid trajectories.
        stale: trajectories of a policy too old to learn from.
        actor_restarts: new processes with the name of an earlier one.
        lag_sum, lag_max, lag_count: policy versions between acting and learning, of the
            trajectories learned from.
        bytes_in: size of the messages of the unrolls received.
        bytes_out: size of the policies or actions published, each counted once.
        rewards: sum of the rewards in the unrolls received.
        late_actions: steps of environments on their own clock that held the last action.
        actor_records: by start_id.
        other_credits: credits of the actors of other learners, by start_id.
        credit_due: whether an actor may wait for credit: the policy is to be published.
        forgets_silent: whether actors that are silent are forgotten. Not with central inference,
            whose sessions continue where the record says.
    """

    received: int = 0
    lost: int = 0
    rejected: int = 0
    stale: int = 0
    duplicates: int = 0
    actor_restarts: int = 0
    lag_sum: int = 0
    lag_max: int = 0
    lag_count: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    rewards: float = 0.0
    late_actions: int = 0
    actor_records: dict[int, ActorRecord] = field(default_factory=dict)
    other_credits: dict[int, tuple[str, int]] = field(default_factory=dict)
    credit_due: bool = False
    forgets_silent: bool = True
    clock: Callable[[], float] = time.monotonic
    _sent: dict[int, int] = field(default_factory=dict)
    _all_at: float = float('-inf')

    def arrive(self, actor_id: str, start_id: int, sequence: int) -> tuple[bool, int]:
        """Count one that arrived; return whether it is new, and how many before it are missing."""
        record = self.actor_records.get(start_id)
        if record is None:
            # Earlier sequence numbers do not count as lost: most went to an earlier learner.
            record = self._add_actor(actor_id, start_id, sequence)
            self.credit_due |= sequence > 0
        missing = sequence - record.expected
        if missing < 0:
            self.duplicates += 1
            return False, 0
        if missing > _MAX_GAP:
            self.rejected += 1
            return False, 0
        self.credit_due |= missing > 0
        self.lost += missing
        self.received += 1
        record.expected, record.active_at = sequence + 1, self.clock()
        record.waiting += 1
        return True, missing

    def _add_actor(self, actor_id: str, start_id: int, sequence: int) -> ActorRecord:
        self.actor_restarts += any(
            each.actor_id == actor_id for each in self.actor_records.values())
        record = self.actor_records[start_id] = ActorRecord(
            actor_id, sequence, active_at=self.clock())
        return record

    def use(self, start_id: int, lag: int) -> None:
        """Count one that arrived as learned from, ``lag`` versions after it was recorded."""
        record = self.actor_records.get(start_id)
        if record is not None:
            record.waiting, record.active_at = max(record.waiting - 1, 0), self.clock()
        lag = max(lag, 0)
        self.lag_sum += lag
        self.lag_max = max(self.lag_max, lag)
        self.lag_count += 1

    @property
    def lag_mean(self) -> float:
        return self.lag_sum / self.lag_count if self.lag_count else 0.0

    @property
    def actors(self) -> int:
        """Number of actors that are present, by name; any thread may call it."""
        return self._names_since(self.clock() - _PRESENT_S)

    @property
    def senders(self) -> int:
        """Number of actors that are not forgotten, by name; any thread may call it."""
        return self._names_since(-math.inf)

    @property
    def holders(self) -> list[int]:
        """The start_id of each actor with trajectories here; any thread may call it."""
        return [start_id for start_id, record in list(self.actor_records.items())
                if record.waiting]

    def _names_since(self, since: float) -> int:
        return len({record.actor_id for record in list(self.actor_records.values())
                    if not record.is_silent(since)})

    def credits(self) -> Mapping[int, tuple[str, int]]:
        """Forget actors that are gone; return (actor_id, used) by start_id of the others."""
        since = self.clock() - _FORGET_S
        if self.forgets_silent:
            self.actor_records = {start_id: record for start_id, record
                                  in self.actor_records.items() if not record.is_silent(since)}
        return self.other_credits | {
            start_id: (record.actor_id, min(record.used, _MAX_USED))
            for start_id, record in self.actor_records.items()}

    def credits_to_send(self) -> Mapping[int, tuple[str, int]]:
        """Return all credits; of many actors often only those that changed since the last call."""
        credits, now = self.credits(), self.clock()
        complete = len(credits) <= _ALWAYS_ALL or now - self._all_at >= _ALL_EVERY_S
        if complete:
            self._all_at = now
        sent, self._sent = self._sent, {key: used for key, (_, used) in credits.items()}
        return credits if complete else {
            key: credit for key, credit in credits.items() if sent.get(key) != credit[1]}
