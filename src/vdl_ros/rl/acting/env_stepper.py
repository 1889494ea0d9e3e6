"""Steps a vector environment and keeps the current observation and resets."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from vdl_ros.rl.data.unroll import OPTIONAL

__all__ = ['EnvStepper', 'Step']

# Their names in an environment's info.
_IN_INFO = {name: 'is_success' if name == 'success' else name for name in OPTIONAL}


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
        extras: those of ``unroll.OPTIONAL`` that the environment's info has: ``success`` [B] bool,
            where the episode, if it ends here, reached its aim, from ``is_success``; of
            environments on their own clock ``reaction_time`` and ``late_actions``.
    """

    observation: NDArray[Any]
    reward: NDArray[Any]
    terminated: NDArray[Any]
    truncated: NDArray[Any]
    is_reset: NDArray[Any]
    extras: Mapping[str, NDArray[Any]] = MappingProxyType({})

    @property
    def success(self) -> NDArray[Any] | None:
        """Return where the episode reached its aim, bool [B]; None if it is unknown."""
        return self.extras.get('success')


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
        return self.record(self.envs.step(self.clip(actions)))

    def clip(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Return actions within a Box's bounds."""
        if self._box is None:
            return actions
        clipped: NDArray[Any] = np.clip(actions, self._box.low, self._box.high)
        return clipped

    def record(self, outcome: tuple[Any, ...]) -> Step:
        """Return what the environments returned for the last actions as a :class:`Step`."""
        observation, reward, terminated, truncated, info = outcome
        lost = info.get('is_lost')
        is_reset = self._done if lost is None else self._done | np.asarray(lost, np.bool_)
        step = Step(observation, reward, terminated, truncated, is_reset, self._extras(info))
        self.observation, self.is_reset = observation, is_reset
        self._done = np.logical_or(terminated, truncated)
        return step

    def _extras(self, info: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Return the extras in ``info``, as in :class:`Step`."""
        extras = {}
        for name, key in _IN_INFO.items():
            if key in info:
                found, (dtype, shape) = np.asarray(info[key]), OPTIONAL[name]
                # Anybody's environment may have something else of this name.
                if found.shape == (self.envs.num_envs, *shape):
                    extras[name] = found.astype(dtype)
        return extras
