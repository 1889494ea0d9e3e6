"""Demonstrations as arrays, checked against the spaces of an environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

__all__ = ['Demonstrations']

# As of unrolls.
_LARGEST_OBSERVATION, _LARGEST_ACTION = 1e9, 1e6
# Share of the range of an action by which a number may lie outside: it was rounded.
_ROUNDED = 1e-4


@dataclass(frozen=True)
class Demonstrations:
    """
    What was observed, and what was done then.

    Attributes:
        observations: [N, ...].
        actions: [N] or [N, A], as the environment takes them.
        episodes: number of episodes.
        source: where they are from, for messages.
    """

    observations: NDArray[Any]
    actions: NDArray[Any]
    episodes: int
    source: str

    def fitted(
        self, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any],
    ) -> Demonstrations:
        """
        Return the same with the dtypes of the spaces.

        Raises:
            ValueError: a shape, or a value, that the spaces do not have; one line.
        """
        if not isinstance(observation_space, gymnasium.spaces.Box) or (
                observation_space.dtype != np.float32 or len(observation_space.shape) != 1):
            raise ValueError(f'{self.source}: observations of the space {observation_space} '
                             'cannot be learned from demonstrations: numbers, without an image')
        found = np.asarray(self.observations, np.float32)
        if found.shape[1:] != observation_space.shape:
            raise ValueError(
                f'{self.source}: observations of shape {list(found.shape[1:])} do not fit the '
                f'environment: {list(observation_space.shape)}')
        _check_finite(self.source, 'observations', found, _LARGEST_OBSERVATION)
        _check_finite(self.source, 'actions', self.actions, _LARGEST_ACTION)
        actions = self.actions.reshape(len(found), -1)
        shape = tuple(action_space.shape or ())
        if actions.shape[1] != max(1, int(np.prod(shape))):
            raise ValueError(f'{self.source}: {actions.shape[1]} numbers in an action do not fit '
                             f'the actions of the environment: {action_space}')
        low, high = _range(action_space)
        spare = _ROUNDED * np.where(np.isfinite(high - low), high - low, 0.0)
        outside = (actions < low - spare) | (actions > high + spare)
        is_discrete = not isinstance(action_space, gymnasium.spaces.Box)
        if is_discrete:
            outside |= actions != np.round(actions)
        if outside.any():
            row, part = np.argwhere(outside)[0]
            raise ValueError(
                f'{self.source}: action {actions[row, part]:g} of row {row}, part {part}, does '
                f'not fit the actions of the environment: {action_space}')
        if is_discrete:
            # They count from 0 in unrolls.
            actions = actions - low
        return Demonstrations(
            found, actions.reshape(len(found), *shape).astype(
                np.int64 if is_discrete else np.float32), self.episodes, self.source)


def _check_finite(source: str, name: str, values: NDArray[Any], largest: float) -> None:
    # NaN is not within any bounds.
    if not (np.abs(values) <= largest).all():
        raise ValueError(f'{source}: {name} that are not finite, or beyond {largest:g}')


def _range(space: gymnasium.Space[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the least and the largest number of each part of an action, float64 [A]."""
    if isinstance(space, gymnasium.spaces.Box):
        return space.low.reshape(-1).astype(float), space.high.reshape(-1).astype(float)
    if isinstance(space, gymnasium.spaces.MultiBinary):
        size = int(np.prod(space.shape))
        return np.zeros(size), np.ones(size)
    start = np.atleast_1d(np.asarray(getattr(space, 'start', 0), float))
    sizes = np.atleast_1d(getattr(space, 'nvec', getattr(space, 'n', 0)))
    return start, start + sizes.reshape(-1) - 1.0
