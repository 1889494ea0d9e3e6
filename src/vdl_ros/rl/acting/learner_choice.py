"""Which learner an actor works for, if several publish policies on its topic."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

__all__ = ['LearnerChoice', 'launch_of', 'make_learner_id']


def make_learner_id(launch_id: str) -> str:
    """
    Return the id of a new start of a learner: LAUNCH/RANDOM.

    Args:
        launch_id: the same for all starts in one launch, of which only the last one is alive;
            empty: this is the only start.
    """
    return f'{launch_id or uuid.uuid4().hex}/{uuid.uuid4().hex}'


def launch_of(learner_id: str) -> str:
    """Return what all starts of a learner in one launch have in common."""
    return learner_id.rpartition('/')[0]


class LearnerChoice:
    """
    Stays with one learner until it is gone or silent.

    Otherwise two trainings on one topic would make each actor change its learner, and with it its
    environments, at every message. A learner that its launch restarted is followed at once.
    """

    def __init__(
        self, patience: float, clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Allow any learner, until the first call of :meth:`stay_with`.

        Args:
            patience: silence after which another learner is taken, s.
            clock: returns the time, s.
        """
        self._patience, self._clock = patience, clock
        self._learner_id = ''
        # Earlier starts in the launch of this one.
        self._earlier: set[str] = set()
        self._heard_at = 0.0
        self._left_out = ''

    def allows(self, learner_id: str, num_publishers: int) -> bool:
        """
        Return whether a policy of this learner may be used.

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
