"""Flow control between actors and a learner: credit in the actor, statistics in the learner.

Each policy message states how many trajectories of each actor the learner has used. An actor may
have ``max_policy_lag`` more trajectories pending, then it waits. So queues are bounded, and a
trajectory waits at the learner for at most (actors * max_policy_lag) / batch_size updates. The
policy lag of a slow actor is larger: the learner updates with the others' trajectories meanwhile.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ['ActorRecord', 'Credit', 'FlowStats', 'LearnerChoice', 'MOST_ACTORS', 'launch_of',
           'make_learner_id']


# Maximum of the message's uint64 field; used is one more than the largest sequence number.
_LARGEST = 2**64 - 1
# A larger jump of sequence numbers is rejected: no credit allows it.
_FARTHEST = 10_000
# Earlier processes with the same actor_id whose records are kept.
_EARLIER_KEPT = 3
# Records kept in all; beyond it, the actor that has been silent longest is forgotten.
MOST_ACTORS = 4096
# Policies have the credits of so many actors. Of more, they have those that changed, and once in
# so many seconds all, in case a policy was lost: with a thousand in each, a learner spent two
# thirds of its intake on them.
_ALWAYS_ALL, _ALL_EVERY_S = 64, 1.0
# Seconds of silence, with nothing left to learn from, after which an actor does not count as
# present, and after which it is forgotten: it has received its last credit long before.
_PRESENT_S, _FORGET_S = 60.0, 600.0


class Credit:
    """The actor's side: whether it may act.

    Args:
        clock: returns the time, s.
    """

    def __init__(
        self, max_policy_lag: int, batch_size: int = 1, timeout: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_policy_lag = max_policy_lag
        self.sequence = 0
        self._batch_size, self._timeout, self._clock = batch_size, timeout, clock
        self._used = 0
        self._learner = ''
        self._version = self._longest_wait = self._num_actors = 0
        self._policy_at = clock()
        # When, and at which version, the oldest pending trajectory became the oldest.
        self._oldest_at, self._oldest_version = self._policy_at, 0

    def on_policy(
        self, learner_id: str, used: int | None, version: int = 0, num_actors: int = 1,
    ) -> None:
        """Update the credit from a policy message.

        Args:
            learner_id: its learner. Trajectories sent to an earlier learner no longer count.
            used: trajectories of this actor that the learner has used or given up; None if the
                message has no credit for this actor.
            version: number of updates that the learner has made.
            num_actors: credits in the message; it has not always those of all actors.
        """
        before = self._learner, self._used
        if learner_id != self._learner:
            self._learner, self._num_actors = learner_id, 0
            self._used = self.sequence
        if used is not None:
            self._used = max(self._used, min(used, self.sequence))
        self._version, self._policy_at = version, self._clock()
        self._num_actors = max(self._num_actors, num_actors)
        # Twice what a queue in order of arrival allows: some actors are not known yet.
        self._longest_wait = (
            2 * (self._num_actors + 1) * self.max_policy_lag // self._batch_size + 1)
        if (self._learner, self._used) != before:
            self._start_waiting()

    def on_busy(self) -> None:
        """Wait for the policy longer: the learner makes an update."""
        self._policy_at = self._clock()

    def _start_waiting(self) -> None:
        """Wait for the oldest pending trajectory from now."""
        self._oldest_at, self._oldest_version = self._clock(), self._version

    @property
    def outstanding(self) -> int:
        """Trajectories sent that the learner has not reported as used."""
        return self.sequence - self._used

    @property
    def available(self) -> bool:
        """Whether the actor may record one more trajectory."""
        return bool(self._learner) and self.outstanding < self.max_policy_lag

    def spend(self) -> int:
        """Return the sequence number for a new trajectory, and count it."""
        if not self.outstanding:
            self._start_waiting()
        self.sequence += 1
        return self.sequence - 1

    @property
    def is_lost(self) -> bool:
        """Return whether the oldest pending trajectory must be lost.

        Either the learner has sent nothing for ``timeout``, neither a policy nor that it is busy;
        or it goes on without it, for ``timeout`` and for more updates than a trajectory can wait
        there for its turn.
        """
        now = self._clock()
        if not self._learner or not self.outstanding:
            return False
        return now - self._policy_at > self._timeout or (
            now - self._oldest_at > self._timeout
            and self._version - self._oldest_version > self._longest_wait)

    def wait_again(self) -> None:
        """Begin the time-outs of :meth:`is_lost` again."""
        self._policy_at = self._clock()
        self._start_waiting()

    def write_off(self) -> None:
        """Count the oldest pending trajectory as lost, so that the actor may go on."""
        self._used = min(self._used + 1, self.sequence)
        self.wait_again()


@dataclass
class ActorRecord:
    """The learner's record of one actor process.

    Attributes:
        actor_id: its name; processes may share one, after a restart or by mistake.
        waiting: trajectories that arrived and are not used yet.
        active_at: when one last arrived or was used, s.
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
        """Return whether nothing has happened since then, and nothing waits."""
        return self.active_at < since and not self.waiting


@dataclass
class FlowStats:
    """The learner's side: counts of trajectories received, lost and used, and their policy lag.

    Attributes:
        lost: missing sequence numbers, and messages dropped by a full queue.
        rejected: messages that were not valid trajectories.
        stale: trajectories of a policy too old to learn from.
        actor_restarts: new processes with the name of an earlier one.
        lag_sum: policy versions between acting and learning, summed over trajectories.
        lag_count: trajectories learned from.
        bytes_in: size of the messages of the unrolls received.
        bytes_out: size of the policies or actions published, each counted once.
        rewards: sum of the rewards in the unrolls received.
        late_actions: steps of environments on their own clock that held the last action.
        actor_records: by start_id.
        other_credits: credits of the actors of other learners, by start_id.
        earlier_starts: start_id by actor_id, of the actors of this learner's earlier process.
        credit_due: whether an actor may wait for credit of trajectories that are lost.
        forgets_silent: whether actors that are silent are forgotten. Not with central inference,
            whose sessions continue where the record says.
        clock: returns the time, s.
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
    earlier_starts: dict[str, int] = field(default_factory=dict)
    credit_due: bool = False
    forgets_silent: bool = True
    clock: Callable[[], float] = time.monotonic
    _sent: dict[int, int] = field(default_factory=dict)
    _all_at: float = float('-inf')

    def arrive(self, actor_id: str, start_id: int, sequence: int) -> tuple[bool, int]:
        """Count a trajectory that arrived.

        Returns:
            Whether to learn from it, and how many before it are missing.
        """
        record = self.actor_records.get(start_id)
        if record is None:
            # Earlier sequence numbers do not count as lost: most went to an earlier learner.
            record = self._add_actor(actor_id, start_id, sequence)
            self.credit_due |= sequence > 0
        missing = sequence - record.expected
        if missing < 0:
            self.duplicates += 1
            return False, 0
        if missing > _FARTHEST:
            self.rejected += 1
            return False, 0
        self.credit_due |= missing > 0
        self.lost += missing
        self.received += 1
        record.expected, record.active_at = sequence + 1, self.clock()
        record.waiting += 1
        return True, missing

    def _add_actor(self, actor_id: str, start_id: int, sequence: int) -> ActorRecord:
        records = self.actor_records
        earlier = [key for key, record in records.items() if record.actor_id == actor_id]
        if earlier or self.earlier_starts.pop(actor_id, start_id) != start_id:
            self.actor_restarts += 1
        # Not the one created first: it may be the one that works.
        for key in sorted(earlier, key=lambda key: records[key].active_at)[:-_EARLIER_KEPT]:
            del records[key]
        if len(records) >= MOST_ACTORS:
            del records[min(records, key=lambda key: records[key].active_at)]
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
        """Mean lag in policy versions; 0 before the first."""
        return self.lag_sum / self.lag_count if self.lag_count else 0.0

    @property
    def actors(self) -> int:
        """Number of actors that are present, by name; any thread may call it."""
        since = self.clock() - _PRESENT_S
        return len({record.actor_id for record in list(self.actor_records.values())
                    if not record.is_silent(since)})

    def credits(self) -> Mapping[int, tuple[str, int]]:
        """Forget actors that are gone; return (actor_id, used) by start_id of the others."""
        since = self.clock() - _FORGET_S
        for start_id, record in list(self.actor_records.items()):
            if self.forgets_silent and record.is_silent(since):
                del self.actor_records[start_id]
        return self.other_credits | {
            start_id: (record.actor_id, min(record.used, _LARGEST))
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


def make_learner_id(launch_id: str) -> str:
    """Return the id of a new start of a learner: LAUNCH/RANDOM.

    Args:
        launch_id: the same for all starts in one launch, of which only the last one is alive;
            empty: this is the only start.
    """
    return f'{launch_id or uuid.uuid4().hex}/{uuid.uuid4().hex}'


def launch_of(learner_id: str) -> str:
    """Return what all starts of a learner in one launch have in common."""
    return learner_id.rpartition('/')[0]


class LearnerChoice:
    """Stays with one learner until it is gone or silent.

    Otherwise two trainings on one topic would make each actor change its learner, and with it its
    environments, at every message. A learner that its launch restarted is followed at once.

    Args:
        patience: silence after which another learner is taken, s.
        clock: returns the time, s.
    """

    def __init__(
        self, patience: float, clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._patience, self._clock = patience, clock
        self._learner_id = ''
        # Earlier starts in the launch of this one.
        self._earlier: set[str] = set()
        self._heard_at = 0.0
        self._left_out = ''

    def allows(self, learner_id: str, num_publishers: int) -> bool:
        """Return whether a policy of this learner may be used.

        Args:
            learner_id: of the policy. A learner that was restarted has another one; see
                :func:`make_learner_id`.
            num_publishers: of policies; with a single one, an earlier learner is gone.
        """
        if learner_id == self._learner_id:
            self.heard()
            return True
        if launch_of(learner_id) and launch_of(learner_id) == launch_of(self._learner_id):
            return True
        silent = self._clock() - self._heard_at > self._patience
        return not self._learner_id or num_publishers <= 1 or silent

    def is_over(self, learner_id: str) -> bool:
        """Return whether its launch has started another one in its place: the policy is late."""
        return learner_id in self._earlier

    def stay_with(self, learner_id: str) -> None:
        """Stay with the learner of a policy that could be used."""
        if learner_id != self._learner_id:
            if launch_of(learner_id) != launch_of(self._learner_id):
                self._earlier.clear()
            elif self._learner_id:
                self._earlier.add(self._learner_id)
            self._learner_id = learner_id
        self.heard()

    def heard(self) -> None:
        """Note that the learner has sent something."""
        self._heard_at = self._clock()

    def is_new(self, learner_id: str) -> bool:
        """Return whether this is the first call for a learner whose policies are not taken."""
        before, self._left_out = self._left_out, learner_id
        return learner_id != before
