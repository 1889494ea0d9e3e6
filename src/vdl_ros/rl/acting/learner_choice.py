"""Which learner an actor works for, if several publish policies on its topic."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ['LearnerChoice']


class LearnerChoice:
    """
    Stays with one learner until it is gone or silent.

    Otherwise two trainings on one topic would make each actor change its learner, and with it its
    environments, at every message.
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
        self._heard_at = 0.0
        self._left_out = ''

    def allows(self, learner_id: str, num_publishers: int) -> bool:
        """
        Return whether a policy of this learner may be used.

        Args:
            learner_id: of the policy. A learner that was restarted has another one.
            num_publishers: of policies; with a single one, an earlier learner is gone.
        """
        if learner_id == self._learner_id:
            self.heard()
            return True
        silent = self._clock() - self._heard_at > self._patience
        return not self._learner_id or num_publishers <= 1 or silent

    def stay_with(self, learner_id: str) -> None:
        """Stay with the learner of a policy that could be used."""
        self._learner_id = learner_id
        self.heard()

    def heard(self) -> None:
        """Note that the learner has sent something."""
        self._heard_at = self._clock()

    def is_new(self, learner_id: str) -> bool:
        """Return whether this is the first call for a learner whose policies are not taken."""
        before, self._left_out = self._left_out, learner_id
        return learner_id != before
