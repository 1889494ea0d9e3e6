"""
Flow control between actors and a learner: credit on one side, accounts on the other.

With every policy the learner says how many trajectories of each actor it has used. An actor may
have ``max_policy_lag`` trajectories under way beyond that, then it waits. So no queue grows, and
a trajectory is at most (actors * max_policy_lag) / batch_size updates old when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ['Credit', 'Ledger', 'Peer']


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
class Peer:
    """
    What a learner knows of one actor.

    Attributes:
        incarnation: of the actor's process.
        expected: the next sequence number.
        used: trajectories learned from, or given up, of this incarnation.
        restarts: times the actor came back as a new process.
    """

    incarnation: int
    expected: int = 0
    used: int = 0
    restarts: int = 0


@dataclass
class Ledger:
    """
    A learner's side: what came, what is missing, how old it was.

    Attributes:
        received: trajectories that arrived and were valid.
        lost: gaps in the actors' sequence numbers, and what a full queue refused.
        rejected: messages that were no valid trajectories.
        duplicates: sequence numbers that came again.
        lag_sum: policy versions between acting and learning, summed over trajectories.
        lag_max: the largest of them.
        lag_count: trajectories learned from.
    """

    received: int = 0
    lost: int = 0
    rejected: int = 0
    duplicates: int = 0
    lag_sum: int = 0
    lag_max: int = 0
    lag_count: int = 0
    peers: dict[str, Peer] = field(default_factory=dict)

    def arrive(self, actor_id: str, incarnation: int, sequence: int) -> tuple[bool, int]:
        """
        Note an arrival.

        Returns:
            Whether it is new, and how many before it are missing.
        """
        peer = self.peers.get(actor_id)
        if peer is None:
            # Earlier ones went to an earlier learner, or to none: they are not ours to miss.
            peer = self.peers[actor_id] = Peer(incarnation, sequence, sequence)
        elif peer.incarnation != incarnation:
            restarts = peer.restarts + 1
            peer = self.peers[actor_id] = Peer(incarnation, sequence, sequence, restarts)
        if sequence < peer.expected:
            self.duplicates += 1
            return False, 0
        missing = sequence - peer.expected
        self.lost += missing
        self.received += 1
        peer.expected = sequence + 1
        return True, missing

    def use(self, actor_id: str, incarnation: int, sequence: int, lag: int) -> None:
        """Note that a trajectory was learned from ``lag`` versions after it was acted."""
        peer = self.peers.get(actor_id)
        if peer is not None and peer.incarnation == incarnation:
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
    def actor_restarts(self) -> int:
        """Times an actor came back as a new process."""
        return sum(peer.restarts for peer in self.peers.values())

    def credits(self) -> Mapping[str, tuple[int, int]]:
        """Return (incarnation, used) by actor: what a policy message tells the actors."""
        return {name: (peer.incarnation, peer.used) for name, peer in self.peers.items()}
