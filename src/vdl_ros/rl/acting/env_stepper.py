"""Steps a vector environment and keeps the current observation and resets."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

__all__ = ['EnvStepper', 'Step']


class Step(NamedTuple):
    """
    The outcome of one action in each of B environments.

    Attributes:
        observation: [B, ...], after the action.
        reward: [B] float32.
        terminated: [B] bool.
        truncated: [B] bool.
        is_reset: [B] bool, where ``observation`` is the first of an episode: the environment
            ignored the action and reset itself; also where its info has ``is_lost``: a robot was
            silent, and this step is none of an episode.
        success: [B] bool, where the episode, if it ends here, reached its aim; None if the
            environment's info has no ``is_success``.
    """

    observation: NDArray[Any]
    reward: NDArray[Any]
    terminated: NDArray[Any]
    truncated: NDArray[Any]
    is_reset: NDArray[Any]
    success: NDArray[Any] | None = None


class EnvStepper:
    """
    Steps environments that reset themselves in the step after the last one of an episode.

    Attributes:
        envs: the environments.
        observation: [B, ...], the current one.
        is_reset: [B] bool, where it is the first of its episode.
    """

    def __init__(self, envs: VectorEnv, seed: int) -> None:
        """Reset the environments with ``seed``."""
        self.envs = envs
        observation, _ = envs.reset(seed=seed)
        self.observation: NDArray[Any] = np.array(observation)
        self.is_reset: NDArray[Any] = np.ones(envs.num_envs, np.bool_)
        self._done: NDArray[Any] = np.zeros(envs.num_envs, np.bool_)
        space = envs.single_action_space
        self._box = space if isinstance(space, gymnasium.spaces.Box) else None

    def step(self, actions: NDArray[Any]) -> Step:
        """Step all environments; ``actions`` [B] or [B, A] are clipped to a Box's bounds."""
        if self._box is not None:
            actions = np.clip(actions, self._box.low, self._box.high)
        observation, reward, terminated, truncated, info = self.envs.step(actions)
        success, lost = info.get('is_success'), info.get('is_lost')
        is_reset = self._done if lost is None else self._done | np.asarray(lost, np.bool_)
        step = Step(observation, reward, terminated, truncated, is_reset,
                    None if success is None else np.asarray(success).astype(np.bool_))
        self.observation, self.is_reset = observation, is_reset
        self._done = np.logical_or(terminated, truncated)
        return step
