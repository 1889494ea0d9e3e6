"""
Flow control between actors and a learner: credit on one side, accounts on the other.

With every policy the learner says how many trajectories of each actor it has used. An actor may
have ``max_policy_lag`` trajectories under way beyond that, then it waits. So no queue grows, and
a trajectory waits at the learner for at most (actors * max_policy_lag) / batch_size updates. An
actor that is slower than the others is further behind: they go on learning while it acts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ['Credit', 'FlowStats', 'ActorRecord']

# What the message's uint64 holds: one sequence number at its end must not stop the learner.
_LARGEST = 2**64 - 1
# No honest actor is so far ahead: its credit ends long before.
_FARTHEST = 10_000
# Processes with one actor's name that are remembered, apart from the newest.
_NAMESAKES = 3


class Credit:
    """
    An actor's side: whether it may act.

    Attributes:
        sequence: number of the next trajectory.
    """

    def __init__(self, max_policy_lag: int) -> None:
        """Start with no credit: there is no policy yet."""
        self.max_policy_lag = max_policy_lag
        self.sequence = 0
        self._used = 0
        self._learner = ''

    def hear(self, learner_id: str, used: int | None) -> None:
        """
        Note a policy.

        Args:
            learner_id: whose it is. What was sent to an earlier learner is not waited for.
            used: how many of this actor's trajectories the learner is done with, or None if it
                does not know this actor.
        """
        if learner_id != self._learner:
            self._learner = learner_id
            self._used = self.sequence
        if used is not None:
            self._used = max(self._used, min(used, self.sequence))

    @property
    def outstanding(self) -> int:
        """Trajectories sent that the learner is not known to be done with."""
        return self.sequence - self._used

    @property
    def available(self) -> bool:
        """Whether one more trajectory may be acted now."""
        return bool(self._learner) and self.outstanding < self.max_policy_lag

    def spend(self) -> int:
        """Return the number for the trajectory just acted, and count it."""
        self.sequence += 1
        return self.sequence - 1

    def write_off(self) -> None:
        """Give up on the oldest trajectory under way: nothing was heard for too long."""
        self._used = min(self._used + 1, self.sequence)


@dataclass
class ActorRecord:
    """
    What a learner knows of one actor's process.

    Attributes:
        actor_id: its name; two processes may have the same, one after the other or by mistake.
        expected: the next sequence number.
        used: trajectories learned from, or given up.
    """

    actor_id: str
    expected: int = 0
    used: int = 0


@dataclass
class FlowStats:
    """
    A learner's side: what came, what is missing, how old it was.

    Attributes:
        received: trajectories that arrived and were valid.
        lost: gaps in the actors' sequence numbers, and what a full queue refused.
        rejected: messages that were no valid trajectories.
        stale: trajectories of a policy too old to learn from.
        duplicates: sequence numbers that came again.
        actor_restarts: times a process came with the name of an earlier one.
        lag_sum: policy versions between acting and learning, summed over trajectories.
        lag_max: the largest of them.
        lag_count: trajectories learned from.
        bytes_in: size of the unrolls that arrived, on the wire.
        bytes_out: size of the policies or actions that were published, each counted once.
        peers: by start_id.
        others: credits of the actors of other learners.
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
    peers: dict[int, ActorRecord] = field(default_factory=dict)
    others: dict[int, tuple[str, int]] = field(default_factory=dict)

    def arrive(self, actor_id: str, start_id: int, sequence: int) -> tuple[bool, int]:
        """
        Note an arrival.

        Returns:
            Whether it is new and to be learned from, and how many before it are missing.
        """
        peer = self.peers.get(start_id)
        if peer is None:
            # Earlier ones went to an earlier learner, or to none: they are not ours to miss.
            peer = self._meet(actor_id, start_id, sequence)
        missing = sequence - peer.expected
        if missing < 0:
            self.duplicates += 1
            return False, 0
        if missing > _FARTHEST:
            self.rejected += 1
            return False, 0
        self.lost += missing
        self.received += 1
        peer.expected = sequence + 1
        return True, missing

    def _meet(self, actor_id: str, start_id: int, sequence: int) -> ActorRecord:
        namesakes = [key for key, peer in self.peers.items() if peer.actor_id == actor_id]
        if namesakes:
            self.actor_restarts += 1
        for key in namesakes[:-_NAMESAKES]:
            del self.peers[key]
        peer = self.peers[start_id] = ActorRecord(actor_id, sequence, sequence)
        return peer

    def use(self, start_id: int, sequence: int, lag: int) -> None:
        """Note that a trajectory was learned from ``lag`` versions after it was acted."""
        peer = self.peers.get(start_id)
        if peer is not None:
            peer.used = max(peer.used, sequence + 1)
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
        """How many actors were heard, by name."""
        return len({peer.actor_id for peer in self.peers.values()})

    def credits(self) -> Mapping[int, tuple[str, int]]:
        """Return (actor_id, used) by start_id: what a policy message tells the actors."""
        return self.others | {start_id: (peer.actor_id, min(peer.used, _LARGEST))
                              for start_id, peer in self.peers.items()}
