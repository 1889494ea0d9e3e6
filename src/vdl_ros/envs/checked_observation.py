"""A wrapper that names an observation which does not have the shape of its space."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from vdl_ros.envs.checked_vector_env import EnvError

__all__ = ['CheckedObservation', 'ObservationError']


class ObservationError(EnvError):
    """An observation of another structure or shape than its space."""


class CheckedObservation(gymnasium.Wrapper[Any, Any, Any, Any]):
    """
    Compares each observation with its space: the batch that it is copied into would not name it.

    Bounds are not compared, because many environments leave theirs by a rounding error.

    Raises:
        ObservationError: from ``reset`` and ``step``.
    """

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._check(observation, 'reset')
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment once."""
        outcome = self.env.step(action)
        self._check(outcome[0], 'step')
        return outcome

    def _check(self, observation: Any, source: str) -> None:
        space = self.env.observation_space
        # The usual case first: this is done in every step.
        if isinstance(observation, np.ndarray) and observation.shape == space.shape:
            return
        if reason := _difference(space, observation, ''):
            name = self.env.spec.id if self.env.spec else type(self.env.unwrapped).__name__
            raise ObservationError(f'env_id: {name}: the observation of {source}(){reason}')


def _difference(space: spaces.Space[Any], observation: Any, part: str) -> str:
    """Return how an observation's structure differs from its space, or ''; ``part`` is its key."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        wanted = list(space.spaces) if isinstance(space, spaces.Dict) else [*range(len(space))]
        if not isinstance(observation, dict | tuple):
            return f'{part} is of {type(observation).__name__}, its space is '\
                   f'{type(space).__name__}'
        keys = list(observation) if isinstance(observation, dict) else [*range(len(observation))]
        if set(keys) != set(wanted):
            return f'{part} has the parts {keys}, its space has {wanted}'
        spaces_by_key: Any = space
        observations: Any = observation
        return next((reason for key in wanted if (reason := _difference(
            spaces_by_key[key], observations[key], f'{part}[{key!r}]'))), '')
    if space.shape is None:
        return ''
    try:
        shape = np.shape(observation)
    except ValueError:
        return f'{part} is a {type(observation).__name__} of unequal parts, its space has the ' \
               f'shape {space.shape}'
    return '' if shape == space.shape else (
        f'{part} has the shape {shape}, its space has {space.shape}')
