"""The last actions as a part of the observation."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from vdl_ros.common.observation_spaces import ImageAndVector
from vdl_ros.envs.canonical_spaces import Column, Observations
from vdl_ros.envs.checked_vector_env import (
    EnvError,
    VectorEnvironment,
    Wrapper,
    check_memory,
)

__all__ = ['LastActionsVectorEnv']


class LastActionsVectorEnv(Wrapper):
    """
    B environments whose observations have the last N actions of the agent.

    With observations and actions that are late, the state of such an environment is the last
    observation and the actions since then (Katsikopoulos and Engelbrecht 2003,
    https://doi.org/10.1109/TAC.2003.809799). Actions of whole numbers are one-hot, those of a
    Box are clipped to its bounds; 0 stands for none in this episode.
    """

    def __init__(self, env: VectorEnvironment, number: int) -> None:
        """
        Add ``number`` actions to the observations of a ``CheckedVectorEnv``.

        Raises:
            EnvError: the observations would be too large.
        """
        super().__init__(env)
        space: Any = env.single_action_space
        self._box = space if isinstance(space, spaces.Box) else None
        # First column of each part of an action.
        sizes = np.atleast_1d(getattr(space, 'nvec', getattr(space, 'n', 1))).ravel()
        self._columns = np.cumsum(sizes) - sizes
        size = space.shape[0] if self._box is not None else int(sizes.sum())
        self._over: NDArray[np.bool_] = np.zeros(env.num_envs, np.bool_)
        before: Any = env.single_observation_space
        self._mixed = before if isinstance(before, ImageAndVector) else None
        parts: dict[str, spaces.Space[Any]] = {'observation': before}
        if self._mixed is not None:
            parts = {'image': self._mixed.image, 'numbers': spaces.Box(
                -np.inf, np.inf, (self._mixed.vector_size,), np.float32)}
        try:
            self._observations = Observations(spaces.Dict(parts | {
                'last_actions': spaces.Box(-np.inf, np.inf, (number * size,), np.float32)}))
            after: Any = self._observations.space
            check_memory(env.num_envs, after.shape[0] * after.dtype.itemsize)
        except ValueError as error:
            env.close()
            raise EnvError(f'observe_last_actions: {error}') from None
        self._last = np.zeros((env.num_envs, number, size), np.float32)
        self.single_observation_space = after
        self.observation_space = batch_space(after, env.num_envs)

    @property
    def observation_columns(self) -> list[Column]:
        """As ``Observations.columns``."""
        return self._observations.columns

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Start an episode in every environment."""
        observations, info = self.env.reset(seed=seed, options=options)
        self._last[:] = 0.0
        self._over[:] = False
        return self._joined(observations), info

    def step(
        self, actions: NDArray[Any],
    ) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_],
               dict[str, Any]]:
        """Step every environment once."""
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        self._last[:, 1:] = self._last[:, :-1].copy()
        self._last[:, 0] = self._encoded(actions)
        # The reset step ignored its action.
        self._last[self._over] = 0.0
        self._over = terminated | truncated
        return self._joined(observations), rewards, terminated, truncated, info

    def _encoded(self, actions: NDArray[Any]) -> NDArray[np.float32]:
        """Return actions [B] or [B, A] as numbers [B, K]."""
        if self._box is not None:
            return np.asarray(np.clip(actions, self._box.low, self._box.high), np.float32)
        encoded = np.zeros((len(actions), self._last.shape[2]), np.float32)
        chosen = actions.reshape(len(actions), -1) + self._columns
        np.put_along_axis(encoded, chosen, 1.0, axis=1)
        return encoded

    def _joined(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Return observations with the last actions."""
        parts: dict[str, Any] = {'observation': observations}
        if self._mixed is not None:
            image, numbers = self._mixed.split(observations)
            parts = {'image': image, 'numbers': numbers}
        return self._observations.convert(
            parts | {'last_actions': self._last.reshape(len(self._last), -1)})
