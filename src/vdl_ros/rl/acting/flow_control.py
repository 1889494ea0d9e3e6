"""
Flow control between actors and a learner: credit in the actor, statistics in the learner.

Each policy message states how many trajectories of each actor the learner has used. An actor may
have ``max_policy_lag`` more trajectories pending, then it waits. So queues are bounded, and a
trajectory waits at the learner for at most (actors * max_policy_lag) / batch_size updates. The
policy lag of a slow actor is larger: the learner updates with the others' trajectories meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ['ActorRecord', 'Credit', 'FlowStats']

# Maximum of the message's uint64 field; used is one more than the largest sequence number.
_LARGEST = 2**64 - 1
# A larger jump of sequence numbers is rejected: no credit allows it.
_FARTHEST = 10_000
# Earlier processes with the same actor_id whose records are kept.
_EARLIER_KEPT = 3


class Credit:
    """
    The actor's side: whether it may act.

    Attributes:
        max_policy_lag: trajectories that may be pending.
        sequence: number of the next trajectory.
    """

    def __init__(self, max_policy_lag: int) -> None:
        """Start without credit, until the first policy."""
        self.max_policy_lag = max_policy_lag
        self.sequence = 0
        self._used = 0
        self._learner = ''

    def on_policy(self, learner_id: str, used: int | None) -> None:
        """
        Update the credit from a policy message.

        Args:
            learner_id: its learner. Trajectories sent to an earlier learner no longer count.
            used: trajectories of this actor that the learner has used or given up; None if the
                message has no credit for this actor.
        """
        if learner_id != self._learner:
            self._learner = learner_id
            self._used = self.sequence
        if used is not None:
            self._used = max(self._used, min(used, self.sequence))

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
        self.sequence += 1
        return self.sequence - 1

    def write_off(self) -> None:
        """Count the oldest pending trajectory as lost, so that the actor may go on."""
        self._used = min(self._used + 1, self.sequence)


@dataclass
class ActorRecord:
    """
    The learner's record of one actor process.

    Attributes:
        actor_id: its name; processes may share one, after a restart or by mistake.
        expected: the next sequence number.
        used: trajectories learned from or given up.
    """

    actor_id: str
    expected: int = 0
    used: int = 0


@dataclass
class FlowStats:
    """
    The learner's side: counts of trajectories received, lost and used, and their policy lag.

    Attributes:
        received: trajectories that arrived and were valid.
        lost: missing sequence numbers, and messages dropped by a full queue.
        rejected: messages that were not valid trajectories.
        stale: trajectories of a policy too old to learn from.
        duplicates: sequence numbers received again.
        actor_restarts: new processes with the name of an earlier one.
        lag_sum: policy versions between acting and learning, summed over trajectories.
        lag_max: the largest lag of one trajectory.
        lag_count: trajectories learned from.
        bytes_in: size of the messages of the unrolls received.
        bytes_out: size of the policies or actions published, each counted once.
        actor_records: by start_id.
        other_credits: credits of the actors of other learners, by start_id.
        earlier_starts: start_id by actor_id, of the actors of this learner's earlier process.
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
    actor_records: dict[int, ActorRecord] = field(default_factory=dict)
    other_credits: dict[int, tuple[str, int]] = field(default_factory=dict)
    earlier_starts: dict[str, int] = field(default_factory=dict)

    def arrive(self, actor_id: str, start_id: int, sequence: int) -> tuple[bool, int]:
        """
        Count a trajectory that arrived.

        Returns:
            Whether to learn from it, and how many before it are missing.
        """
        record = self.actor_records.get(start_id)
        if record is None:
            # Earlier sequence numbers went to an earlier learner: they are not lost.
            record = self._add_actor(actor_id, start_id, sequence)
        missing = sequence - record.expected
        if missing < 0:
            self.duplicates += 1
            return False, 0
        if missing > _FARTHEST:
            self.rejected += 1
            return False, 0
        self.lost += missing
        self.received += 1
        record.expected = sequence + 1
        return True, missing

    def _add_actor(self, actor_id: str, start_id: int, sequence: int) -> ActorRecord:
        earlier = [key for key, record in self.actor_records.items()
                   if record.actor_id == actor_id]
        if earlier or self.earlier_starts.pop(actor_id, start_id) != start_id:
            self.actor_restarts += 1
        for key in earlier[:-_EARLIER_KEPT]:
            del self.actor_records[key]
        record = self.actor_records[start_id] = ActorRecord(actor_id, sequence, sequence)
        return record

    def use(self, start_id: int, sequence: int, lag: int) -> None:
        """Count a trajectory as learned from, ``lag`` policy versions after it was recorded."""
        record = self.actor_records.get(start_id)
        if record is not None:
            record.used = max(record.used, sequence + 1)
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
        """Number of actors, by name; other threads may ask while actors are added."""
        return len({record.actor_id for record in list(self.actor_records.values())})

    def credits(self) -> Mapping[int, tuple[str, int]]:
        """Return (actor_id, used) by start_id, for the policy message."""
        return self.other_credits | {
            start_id: (record.actor_id, min(record.used, _LARGEST))
            for start_id, record in self.actor_records.items()}
