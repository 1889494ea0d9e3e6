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

from vdl_ros.rl.networks import Policy

__all__ = ['Evaluation', 'evaluate', 'make_act']


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
        """Half the width of the mean's 95 % confidence interval, by the normal distribution."""
        return 1.96 * self.std / math.sqrt(len(self.returns))


def make_act(
    policy: Policy, action_space: gymnasium.Space[Any], *, deterministic: bool,
) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return a function from observations [B, ...] to actions [B, ...] within the space."""
    choose = policy.distribution.mode if deterministic else policy.distribution.sample

    @torch.inference_mode()
    def act(observations: NDArray[Any]) -> NDArray[Any]:
        parameters, _ = policy(torch.from_numpy(np.ascontiguousarray(observations)))
        actions: NDArray[Any] = choose(parameters).numpy()
        if isinstance(action_space, gymnasium.spaces.Box):
            actions = np.clip(actions, action_space.low, action_space.high)
        return actions

    return act


def evaluate(
    envs: VectorEnv,
    act: Callable[[NDArray[Any]], NDArray[Any]],
    episodes: int,
    seed: int,
    stop: threading.Event | None = None,
) -> Evaluation:
    """
    Play ``episodes`` episodes, shared out evenly over the environments.

    Each environment plays its share and what it plays beyond that is not counted: with first
    come, first counted, short episodes would be counted more often.
    """
    batch = envs.num_envs
    shares = np.full(batch, episodes // batch)
    shares[:episodes % batch] += 1
    returns: list[float] = []
    lengths: list[int] = []
    total, length = np.zeros(batch), np.zeros(batch, np.int64)
    done = np.zeros(batch, np.bool_)
    observations, _ = envs.reset(seed=seed)
    while shares.any() and not (stop and stop.is_set()):
        observations, rewards, terminated, truncated, _ = envs.step(act(observations))
        # The step after an episode's last one is the environment's own reset.
        total = np.where(done, 0.0, total + rewards)
        length = np.where(done, 0, length + 1)
        done = np.logical_or(terminated, truncated)
        for b in np.flatnonzero(done):
            if shares[b]:
                shares[b] -= 1
                returns.append(float(total[b]))
                lengths.append(int(length[b]))
    return Evaluation(tuple(returns), tuple(lengths))
