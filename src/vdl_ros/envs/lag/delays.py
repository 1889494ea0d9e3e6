"""Observations and actions that come late, in the time of the environment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.quoting import quoted
from vdl_ros.envs.checked_vector_env import (
    EnvError,
    VectorEnvironment,
    Wrapper,
    check_memory,
)

__all__ = ['Delay', 'DelayedVectorEnv', 'no_action']

# Distinguishes this random stream from those of the environments.
_STREAM = 0x1A6


@dataclass(frozen=True)
class Delay:
    """A delay that is drawn for each episode, uniformly from ``low`` to ``high``, s."""

    low: float = 0.0
    high: float = 0.0

    def __bool__(self) -> bool:
        """Return whether there is one."""
        return self.high > 0.0

    @classmethod
    def of(cls, name: str, value: object, most: float) -> Delay:
        """
        Return the delay of the argument ``name``: a number, or the lowest and the highest, s.

        Raises:
            EnvError: anything else, or more than ``most``.
        """
        found = list(value) if isinstance(value, list | tuple) else [value, value]
        numbers = [each for each in found
                   if isinstance(each, int | float) and not isinstance(each, bool)]
        if not len(numbers) == len(found) == 2 or not 0.0 <= numbers[0] <= numbers[1] <= most:
            raise EnvError(f'{name}: {quoted(value)} is not allowed: 0 to {most:g} s, or the '
                           'lowest and the highest')
        return cls(*map(float, numbers))

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Return the delays of ``count`` episodes, float64 [count], s."""
        if self.low == self.high:
            return np.full(count, self.low)
        return random.uniform(self.low, self.high, count)


def no_action(space: gymnasium.Space[Any], num_envs: int) -> NDArray[Any]:
    """Return what is applied before the first action: 0, of a Box the action nearest to it."""
    shape = (num_envs, *(space.shape or ()))
    if isinstance(space, gymnasium.spaces.Box):
        return np.broadcast_to(np.clip(0, space.low, space.high), shape).astype(space.dtype)
    return np.zeros(shape, np.int64)


class _Latest:
    """The last values of B rows; each row is read as many steps ago as it is late."""

    def __init__(self, steps: int, like: NDArray[Any]) -> None:
        """Keep values [B, ...] of ``steps`` steps and of now, as ``like`` so far."""
        self._values = np.repeat(like[None], steps + 1, axis=0)
        self._rows = np.arange(len(like))
        self._newest = 0

    def append(self, values: NDArray[Any]) -> None:
        self._newest = (self._newest + 1) % len(self._values)
        self._values[self._newest] = values

    def fill(self, rows: NDArray[np.bool_], values: NDArray[Any]) -> None:
        """Forget what ``rows``, bool [B], were: they always had ``values`` [B, ...]."""
        self._values[:, rows] = values[rows]

    def before(self, late: NDArray[np.int64]) -> NDArray[Any]:
        """Return the values ``late`` steps ago, int [B], a copy."""
        found: NDArray[Any] = self._values[(self._newest - late) % len(self._values), self._rows]
        return found


class DelayedVectorEnv(Wrapper):
    """
    B environments whose observations and actions are late by whole steps.

    A delay of d steps that is no whole number is rounded down or up, at random for each episode,
    so that d is the mean: actions come at any phase of the environment's clock. Until the first
    action of an episode arrives, :func:`no_action` is applied; until the second observation
    arrives, the first is shown. Rewards and ends of episodes, which are for learning, are not
    late.

    ``info`` has ``observation_delay`` and ``action_delay``, float64 [B], s.
    """

    def __init__(
        self, env: VectorEnvironment, rate: float, *, observations: Delay, actions: Delay,
        seed: int,
    ) -> None:
        """
        Delay a ``CheckedVectorEnv``.

        Args:
            env: the environments.
            rate: their steps per second.
            observations: delay of the observations.
            actions: delay of the actions.
            seed: of the delays, until ``reset`` is given one.

        Raises:
            EnvError: the observations that are under way fill the memory.
        """
        super().__init__(env)
        self._rate = rate
        self._delays = observations, actions
        # Rounded up, and drawn with a phase.
        self._most = [math.ceil(delay.high * rate) + 1 for delay in self._delays]
        try:
            for steps, space in zip(self._most, (
                    env.single_observation_space, env.single_action_space), strict=True):
                size = math.prod(space.shape or ()) * (space.dtype or np.dtype(int)).itemsize
                check_memory(env.num_envs * (steps + 1), size)
        except ValueError:
            env.close()
            raise
        self._random = np.random.default_rng([_STREAM, seed])
        self._none = no_action(env.single_action_space, env.num_envs)
        self._late = np.zeros((2, env.num_envs), np.int64)
        self._over: NDArray[np.bool_] = np.zeros(env.num_envs, np.bool_)
        self._actions = _Latest(self._most[1], self._none)
        self._observations: _Latest

    def _draw(self, rows: NDArray[np.bool_]) -> None:
        """Draw the delays of new episodes of ``rows``, bool [B]."""
        count = int(rows.sum())
        for late, delay in zip(self._late, self._delays, strict=True):
            steps = np.round(delay.draw(self._random, count) * self._rate, 9)
            late[rows] = np.floor(steps + self._random.random(count))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Start an episode in every environment, with delays of its own."""
        if seed is not None:
            self._random = np.random.default_rng([_STREAM, seed])
        observations, info = self.env.reset(seed=seed, options=options)
        everywhere = np.ones(self.num_envs, np.bool_)
        self._over = ~everywhere
        self._draw(everywhere)
        self._actions.fill(everywhere, self._none)
        self._observations = _Latest(self._most[0], observations)
        return observations, info | self._info()

    def step(
        self, actions: NDArray[Any],
    ) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_],
               dict[str, Any]]:
        """Step with earlier actions, and return earlier observations."""
        begin = self._over
        self._actions.append(np.where(self._like(begin, actions), self._none, actions))
        observations, rewards, terminated, truncated, info = self.env.step(
            self._actions.before(self._late[1]))
        self._over = terminated | truncated
        self._observations.append(observations)
        if begin.any():
            self._draw(begin)
            self._actions.fill(begin, self._none)
            self._observations.fill(begin, observations)
        return (self._observations.before(self._late[0]), rewards, terminated, truncated,
                info | self._info())

    @staticmethod
    def _like(rows: NDArray[np.bool_], values: NDArray[Any]) -> NDArray[np.bool_]:
        """Return ``rows`` [B] with as many axes as ``values`` [B, ...]."""
        return rows.reshape(-1, *(1,) * (values.ndim - 1))

    def _info(self) -> dict[str, NDArray[np.float64]]:
        seconds = self._late / self._rate
        return {'observation_delay': seconds[0], 'action_delay': seconds[1]}
