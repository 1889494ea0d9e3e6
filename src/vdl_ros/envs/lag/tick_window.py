"""What environments did between two actions of an agent that does not see each of their steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ['Outcome', 'TickWindow']

Bools = NDArray[np.bool_]


class Outcome(NamedTuple):
    """What one action led to: as of a step of a vector environment, arrays [B, ...] and info."""

    observations: NDArray[Any]
    rewards: NDArray[np.float32]
    terminated: Bools
    truncated: Bools
    info: dict[str, Any]


class TickWindow:
    """
    Joins the steps of B environments, which reset themselves, to steps of an agent.

    The agent gets the latest observation and the sum of the rewards. If an episode ends, it gets
    the last observation of the episode, and in its next step, which is the reset, the latest one
    of the episode that has begun meanwhile; rewards of that episode until then are added to those
    of the step after. An episode that has begun and ended meanwhile is left out.
    """

    def __init__(self, observations: NDArray[Any]) -> None:
        """Start with the first observations of episodes, [B, ...]."""
        count = len(observations)
        # The second: of episodes that the agent acts in and that have ended since its last step.
        self._latest, self._last = (
            Outcome(observations.copy(), np.zeros(count, np.float32), np.zeros(count, np.bool_),
                    np.zeros(count, np.bool_), {}) for _ in range(2))
        self._has_ended = np.zeros(count, np.bool_)
        # Where the agent's next step is the reset; where the environment's is.
        self._resets, self._over = np.zeros(count, np.bool_), np.zeros(count, np.bool_)

    def add(self, outcome: Outcome) -> None:
        """Add a step of the environments."""
        latest = self._latest
        self._over = outcome.terminated | outcome.truncated
        latest.observations[:] = outcome.observations
        latest.rewards[:] += outcome.rewards
        ended = self._over & ~self._has_ended & ~self._resets
        for last, new in zip(self._last[:4], (
                outcome.observations, latest.rewards, outcome.terminated, outcome.truncated),
                strict=True):
            last[ended] = new[ended]
        latest.info.clear()
        latest.info.update(outcome.info)
        for name, values in outcome.info.items():
            if _is_batch(values, len(ended)):
                kept = self._last.info.setdefault(name, values.copy())
                kept[ended] = values[ended]
        self._has_ended |= ended
        latest.rewards[self._over] = 0.0

    @property
    def is_whole(self) -> bool:
        """Return whether there is an observation of the next episode for all that need one."""
        return not (self._resets & self._over).any()

    def take(self) -> Outcome:
        """Return what the environments did since the last call, in arrays of the caller's own."""
        latest, last, ended = self._latest, self._last, self._has_ended
        observations = latest.observations.copy()
        observations[ended] = last.observations[ended]
        rewards = np.where(ended, last.rewards, np.where(self._resets, 0.0, latest.rewards))
        info = {
            name: np.where(ended.reshape(-1, *(1,) * (values.ndim - 1)),
                           last.info.get(name, values), values)
            if _is_batch(values, len(ended)) else values for name, values in latest.info.items()}
        outcome = Outcome(observations, rewards.astype(np.float32), ended & last.terminated,
                          ended & last.truncated, info)
        # Those of an episode whose first observation is taken now belong to its first step.
        latest.rewards[~ended & ~self._resets] = 0.0
        self._resets, self._has_ended = ended, np.zeros_like(ended)
        return outcome


def _is_batch(values: Any, count: int) -> bool:
    return isinstance(values, np.ndarray) and values.shape[:1] == (count,)
