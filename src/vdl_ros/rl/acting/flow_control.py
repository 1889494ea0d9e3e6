"""Flow control in an actor: its credit, and the learner that it stays with.

Each policy message states how many trajectories of each actor the learner has used. An actor may
have ``max_in_flight`` more trajectories pending, then it waits. So queues are bounded, and a
trajectory waits at the learner for at most (actors * max_in_flight) / batch_size updates. The
policy lag of a slow actor is larger: the learner updates with the others' trajectories meanwhile.
"""

import time
import uuid
from collections.abc import Callable


class Credit:
    """Whether the actor may act; for ``timeout``, s, see :attr:`is_lost`."""

    def __init__(
        self, max_in_flight: int, batch_size: int = 1, timeout: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_in_flight = max_in_flight
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
            2 * (self._num_actors + 1) * self.max_in_flight // self._batch_size + 1)
        if (self._learner, self._used) != before:
            self._start_waiting()

    def on_busy(self) -> None:
        """Wait for the policy longer: the learner makes an update."""
        self._policy_at = self._clock()

    def _start_waiting(self) -> None:
        self._oldest_at, self._oldest_version = self._clock(), self._version

    @property
    def outstanding(self) -> int:
        """Trajectories sent that the learner has not reported as used."""
        return self.sequence - self._used

    @property
    def available(self) -> bool:
        """Whether the actor may record one more trajectory."""
        return bool(self._learner) and self.outstanding < self.max_in_flight

    def spend(self) -> int:
        """Return the sequence number for a new trajectory, and count it."""
        if not self.outstanding:
            self.wait_again()
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
        self._policy_at = self._clock()
        self._start_waiting()

    def write_off(self) -> None:
        """Count the oldest pending trajectory as lost, so that the actor may go on."""
        self._used = min(self._used + 1, self.sequence)
        self.wait_again()


def make_learner_id(launch_id: str) -> str:
    """Return the id of a new start of a learner: LAUNCH/NS, with the time since the boot.

    All starts in one launch have the same ``launch_id``, and only the last of them is alive: the
    one with the greatest id. Without a launch it is the only start.
    """
    started = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return f'{launch_id or uuid.uuid4().hex}/{started:020d}'


def launch_of(learner_id: str) -> str:
    """Return what all starts of a learner in one launch have in common."""
    return learner_id.rpartition('/')[0]


class LearnerChoice:
    """Stays with one learner until it is gone or silent.

    Otherwise two trainings on one topic would make each actor change its learner, and with it its
    environments, at every message. A learner that its launch restarted is followed at once,
    another one after ``patience`` seconds of silence; with ``launch_id`` none of another launch.
    """

    def __init__(
        self, patience: float, clock: Callable[[], float] = time.monotonic, launch_id: str = '',
    ) -> None:
        self._patience, self._clock, self._launch_id = patience, clock, launch_id
        self._learner_id = ''
        self._heard_at = 0.0
        self._left_out = ''

    def allows(self, learner_id: str, num_publishers: int) -> bool:
        """Return whether its policy may be used; of a single publisher always: others are gone."""
        if learner_id == self._learner_id:
            self.heard()
            return True
        if self._launch_id:
            return launch_of(learner_id) == self._launch_id
        if launch_of(learner_id) and launch_of(learner_id) == launch_of(self._learner_id):
            return True
        silent = self._clock() - self._heard_at > self._patience
        return not self._learner_id or num_publishers <= 1 or silent

    def is_over(self, learner_id: str) -> bool:
        """Return whether its launch has started another one in its place: the policy is late."""
        launch = launch_of(learner_id)
        return bool(launch) and launch == launch_of(self._learner_id) and (
            learner_id < self._learner_id)

    def is_with(self, learner_id: str) -> bool:
        return learner_id == self._learner_id

    def stay_with(self, learner_id: str) -> None:
        self._learner_id = learner_id
        self.heard()

    def heard(self) -> None:
        self._heard_at = self._clock()

    def is_new(self, learner_id: str) -> bool:
        """Return whether this is the first call for a learner whose policies are not taken."""
        before, self._left_out = self._left_out, learner_id
        return learner_id != before
