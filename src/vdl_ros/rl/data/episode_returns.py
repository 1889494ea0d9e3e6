"""Returns and lengths of episodes, computed from unrolls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ['FinishedEpisode', 'EpisodeCounter']


@dataclass(frozen=True)
class FinishedEpisode:
    """
    One finished episode.

    Attributes:
        environment: index among the actor's environments.
        episode_return: undiscounted sum of the environment's rewards.
        length: agent steps.
        terminated: whether the environment ended it.
        truncated: whether a time limit ended it.
    """

    environment: int
    episode_return: float
    length: int
    terminated: bool
    truncated: bool


class EpisodeCounter:
    """Sums rewards and steps of B environments over consecutive unrolls."""

    def __init__(self, num_envs: int) -> None:
        """Count episodes of ``num_envs`` environments."""
        self.num_envs = num_envs
        self._returns = np.zeros(num_envs, np.float64)
        self._lengths = np.zeros(num_envs, np.int64)
        self._whole = np.zeros(num_envs, np.bool_)

    def forget(self) -> None:
        """Discard unfinished episodes: an unroll is missing, so their sums would be wrong."""
        self._whole[:] = False

    def add(
        self,
        rewards: NDArray[np.float32],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        is_reset: NDArray[np.bool_],
    ) -> list[FinishedEpisode]:
        """
        Return the episodes that ended in one unroll, ordered by time.

        Args:
            rewards: [T, B].
            terminated: [T, B].
            truncated: [T, B].
            is_reset: [T + 1, B], true where an observation is the first of its episode.
        """
        finished = []
        for t in range(len(rewards)):
            first = is_reset[t]
            if first.any():
                self._returns[first] = 0.0
                self._lengths[first] = 0
                self._whole[first] = True
            # In a step into a reset the action was ignored.
            real = ~is_reset[t + 1]
            self._returns += np.where(real, rewards[t], 0.0)
            self._lengths += real
            done = (terminated[t] | truncated[t]) & real
            for b in np.flatnonzero(done & self._whole):
                finished.append(FinishedEpisode(
                    int(b), float(self._returns[b]), int(self._lengths[b]),
                    bool(terminated[t, b]), bool(truncated[t, b])))
        return finished
