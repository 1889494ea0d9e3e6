"""Returns, lengths and success of episodes, computed from unrolls."""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Episodes of each environment that may wait for one that began before them and has not ended.
_MAX_WAITING = 100


@dataclass(frozen=True)
class FinishedEpisode:
    """One finished episode.

    Attributes:
        environment: index among the actor's environments.
        episode_return: undiscounted sum of the environment's rewards.
        length: agent steps.
        success: whether it reached its aim; None if the environment has never said it of any.
        adversary_l2: mean size of the perturbations of its observations; None without an attack.
        adversary_injects: number of its observations that were perturbed.
        intervened: number of its steps at which a person acted; None if nobody can.
    """

    environment: int
    episode_return: float
    length: int
    terminated: bool
    truncated: bool
    success: bool | None = None
    adversary_l2: float | None = None
    adversary_injects: int = 0
    intervened: int | None = None


def adversary_of(arrays: Mapping[str, NDArray[Any]]) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return size and presence of perturbations in arrays of steps; None without an attack."""
    if 'adversary_l2' not in arrays or 'adversary_injects' not in arrays:
        return None
    return arrays['adversary_l2'], arrays['adversary_injects']


class EpisodeCounter:
    """Sums rewards and steps of B environments over consecutive unrolls.

    Where an episode is a life of a game, it counts the whole game.
    """

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self._returns = np.zeros(num_envs, np.float64)
        self._lengths = np.zeros(num_envs, np.int64)
        self._whole = np.zeros(num_envs, np.bool_)
        # Whether the next episode goes on with the game of the last one.
        self._goes_on = np.zeros(num_envs, np.bool_)
        self._adversary_l2 = np.zeros(num_envs, np.float64)
        self._adversary_injects = np.zeros(num_envs, np.int64)
        self._intervened = np.zeros(num_envs, np.int64)
        self._steps = 0
        # An environment may say it only of episodes that succeed.
        self._tells_success = False
        # Of ended episodes whose success is known: step of their beginning, environment, success.
        self._waiting: list[tuple[int, int, bool]] = []

    @property
    def longest(self) -> int:
        return int(self._lengths[self._whole].max(initial=0))

    def forget(self) -> None:
        """Discard unfinished episodes: an unroll is missing, so their sums would be wrong."""
        self._whole[:] = False
        # It may be that of a life; add() knows whether there are lives.
        self._goes_on[:] = True

    def add(self, arrays: Mapping[str, NDArray[Any]]) -> list[FinishedEpisode]:
        """Return the episodes that ended in an unroll, ordered by time.

        Of its arrays (see ``unroll.py``) it needs rewards, terminated, truncated and is_reset;
        success, perturbations, lost lives and a person's steps may be absent.
        """
        rewards, terminated, truncated, is_reset = (
            arrays[name] for name in ('rewards', 'terminated', 'truncated', 'is_reset'))
        success, adversary = arrays.get('success'), adversary_of(arrays)
        life_lost, intervened = arrays.get('life_lost'), arrays.get('intervened')
        self._tells_success |= success is not None
        if life_lost is None:
            self._goes_on[:] = False
        finished = []
        for t in range(len(rewards)):
            first = is_reset[t] & ~self._goes_on
            self._goes_on &= ~is_reset[t]
            if first.any():
                self._returns[first] = 0.0
                self._lengths[first] = 0
                self._adversary_l2[first] = 0.0
                self._adversary_injects[first] = self._intervened[first] = 0
                self._whole[first] = True
            # In a step into a reset the action was ignored.
            real = ~is_reset[t + 1]
            self._returns += np.where(real, rewards[t], 0.0)
            self._lengths += real
            if adversary is not None:
                self._adversary_l2 += np.where(real, adversary[0][t], 0.0)
                self._adversary_injects += real & adversary[1][t]
            if intervened is not None:
                self._intervened += real & intervened[t]
            self._steps += 1
            # A game may end in the reset step of a life.
            done = (terminated[t] | truncated[t]) & (real | self._goes_on)
            if life_lost is not None:
                self._goes_on[done] = life_lost[t, done]
                done &= ~life_lost[t]
            for b in np.flatnonzero(done & self._whole):
                reached = (success is not None and bool(success[t, b])
                           if self._tells_success else None)
                finished.append(FinishedEpisode(
                    int(b), float(self._returns[b]), int(self._lengths[b]),
                    bool(terminated[t, b]), bool(truncated[t, b]), reached,
                    None if adversary is None else float(
                        self._adversary_l2[b] / self._lengths[b]),
                    int(self._adversary_injects[b]),
                    None if intervened is None else int(self._intervened[b])))
                if reached is not None:
                    began = self._steps - int(self._lengths[b])
                    heapq.heappush(self._waiting, (began, int(b), reached))
            self._whole &= ~done
        return finished

    def take_successes(self) -> list[bool]:
        """Return the success of episodes that ended, in the order in which they began.

        Of two that began together, one that succeeds usually ends first, so that the order of
        the ends would have too many successes at first. An episode is returned once all that
        began before it have ended.
        """
        running = np.flatnonzero(self._whole)
        oldest = min(((self._steps - int(self._lengths[b]), int(b)) for b in running),
                     default=(self._steps, 0))
        taken = []
        while self._waiting and (self._waiting[0][:2] < oldest or
                                 len(self._waiting) > _MAX_WAITING * self.num_envs):
            taken.append(heapq.heappop(self._waiting)[2])
        return taken
