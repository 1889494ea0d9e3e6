"""Play a fixed number of episodes with a fixed policy."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from vdl_ros.rl.policy.policy import Policy

__all__ = ['Act', 'Evaluation', 'evaluate']


@dataclass(frozen=True)
class Evaluation:
    """
    What came out.

    Attributes:
        returns: one for each episode.
        lengths: agent steps of each.
    """

    returns: tuple[float, ...]
    lengths: tuple[int, ...]

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation of the returns."""
        return float(np.std(self.returns))

    @property
    def interval(self) -> float:
        """
        Half the width of the mean's 95 % confidence interval, by the normal distribution.

        Of a single episode NaN: it says nothing of others.
        """
        count = len(self.returns)
        return 1.96 * self.std / math.sqrt(count - 1) if count > 1 else math.nan


class Act:
    """A policy that plays: from observations [B, ...] to actions [B, ...] within the space."""

    def __init__(
        self, policy: Policy, action_space: gymnasium.Space[Any], *, deterministic: bool,
    ) -> None:
        """Play the most likely action, or draw one."""
        self._policy = policy.eval()
        self._choose = policy.distribution.mode if deterministic else policy.distribution.sample
        self._box = action_space if isinstance(action_space, gymnasium.spaces.Box) else None
        self._state = policy.initial_state(0)
        self._drawn = torch.empty(0)

    @torch.inference_mode()
    def __call__(
        self, observations: NDArray[Any], is_reset: NDArray[Any] | None = None,
        rewards: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """
        Return actions.

        Args:
            observations: [B, ...].
            is_reset: [B] bool, where an episode begins; nowhere if it is not given. What the
                policy remembers is forgotten there, and everywhere when B changes.
            rewards: [B] float, of the actions before; 0 if they are not given.
        """
        batch = len(observations)
        if len(self._state) != batch:
            self._state = self._policy.initial_state(batch)
        else:
            told = np.zeros(batch) if rewards is None else rewards
            self._state = self._policy.told(
                self._state, self._drawn, torch.from_numpy(told.astype(np.float32)))
        resets = np.zeros(batch, np.bool_) if is_reset is None else is_reset
        parameters, _, self._state = self._policy(
            torch.from_numpy(np.ascontiguousarray(observations))[None],
            torch.from_numpy(resets)[None], self._state)
        self._drawn = self._choose(parameters[0])
        actions: NDArray[Any] = self._policy.distribution.to_environment(self._drawn.numpy())
        return actions if self._box is None else np.clip(actions, self._box.low, self._box.high)


def evaluate(
    envs: VectorEnv,
    act: Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], NDArray[Any]],
    episodes: int,
    seed: int,
    stop: threading.Event | None = None,
) -> Evaluation:
    """
    Play ``episodes`` episodes, shared out evenly over the environments.

    Each environment plays its share and what it plays beyond that is not counted: with first
    come, first counted, short episodes would be counted more often.

    Args:
        envs: B environments.
        act: as :class:`Act`.
        episodes: so many.
        seed: of the first ones.
        stop: ends it early.
    """
    batch = envs.num_envs
    shares = np.full(batch, episodes // batch)
    shares[:episodes % batch] += 1
    returns: list[float] = []
    lengths: list[int] = []
    total, length = np.zeros(batch), np.zeros(batch, np.int64)
    done = np.zeros(batch, np.bool_)
    is_reset, rewards = np.ones(batch, np.bool_), np.zeros(batch)
    observations, _ = envs.reset(seed=seed)
    while shares.any() and not (stop and stop.is_set()):
        observations, rewards, terminated, truncated, _ = envs.step(
            act(observations, is_reset, rewards))
        # The step after an episode's last one is the environment's own reset.
        total = np.where(done, 0.0, total + rewards)
        length = np.where(done, 0, length + 1)
        is_reset, done = done, np.logical_or(terminated, truncated)
        for b in np.flatnonzero(done):
            if shares[b]:
                shares[b] -= 1
                returns.append(float(total[b]))
                lengths.append(int(length[b]))
    return Evaluation(tuple(returns), tuple(lengths))
