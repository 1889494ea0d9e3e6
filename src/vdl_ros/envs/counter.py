"""
Environments whose every number is known beforehand, for tests.

In ``vdl/Counter-v0`` and ``vdl/PixelCounter-v0`` the observation is the clock, so whoever receives
a stream of them can prove that nothing was lost, doubled, reordered or mixed up between episodes
and actors, however many processes lie between. ``vdl/Reach1D-v0`` is the smallest task with a
continuous action that a policy can solve.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

__all__ = [
    'COUNTER', 'PIXEL_COUNTER', 'PIXEL_FRAMES', 'REACH', 'CounterEnv', 'PixelCounterEnv',
    'Reach1DEnv', 'episode_length', 'register',
]

COUNTER = 'vdl/Counter-v0'
PIXEL_COUNTER = 'vdl/PixelCounter-v0'
REACH = 'vdl/Reach1D-v0'
PIXEL_FRAMES = 4


def episode_length(episode: int, identity: int) -> int:
    """Return the steps, 5 to 15, of an episode of the counter with that identity."""
    return 5 + (episode * 7 + identity) % 11


class CounterEnv(gymnasium.Env[NDArray[Any], np.int64]):
    """
    A clock: observation float32 [3] = (episode, step in the episode, identity).

    The identity is the seed modulo 1000, or 0 without one. Actions, Discrete(2), change nothing.
    The reward of a step is its number in the episode, from 1. Episode e of identity i has
    ``episode_length(e, i)`` steps; even episodes terminate, odd ones are truncated.
    """

    def __init__(self) -> None:
        """Make a clock that stands at nothing before the first reset."""
        self.observation_space: spaces.Space[Any] = spaces.Box(
            0.0, np.inf, (3,), np.float32)
        self.action_space: spaces.Space[Any] = spaces.Discrete(2)
        self.identity = 0
        self.episode = -1
        self.time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin the next episode, or episode 0 if there is a seed."""
        super().reset(seed=seed, options=options)
        if seed is not None:
            self.identity = seed % 1000
            self.episode = -1
        self.episode += 1
        self.time = 0
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Count one step; the action changes nothing."""
        del action
        self.time += 1
        over = self.time >= episode_length(self.episode, self.identity)
        even = self.episode % 2 == 0
        return self._observation(), float(self.time), over and even, over and not even, {}

    def _observation(self) -> NDArray[Any]:
        return np.array([self.episode, self.time, self.identity], np.float32)


class PixelCounterEnv(CounterEnv):
    """
    The same clock in pictures: observation uint8 [4, 8, 8], the latest four, the oldest first.

    Picture k since the seed, over all episodes, is filled with 1 + k modulo 255. After a reset the
    stack is three black pictures and the new one, as in ``envs/atari.py``.
    """

    def __init__(self) -> None:
        """Make a clock without pictures yet."""
        super().__init__()
        self.observation_space = spaces.Box(0, 255, (PIXEL_FRAMES, 8, 8), np.uint8)
        self._pictures = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin the next episode, or episode 0 and picture 0 if there is a seed."""
        if seed is not None:
            self._pictures = 0
        return super().reset(seed=seed, options=options)

    def _observation(self) -> NDArray[Any]:
        self._pictures += 1
        stack = np.zeros((PIXEL_FRAMES, 8, 8), np.uint8)
        for age in range(min(self.time + 1, PIXEL_FRAMES)):
            stack[-1 - age] = 1 + (self._pictures - 1 - age) % 255
        return stack


class Reach1DEnv(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """
    Drive a point on a line to a goal; both start anywhere in [-1, 1].

    Observation float32 [2] = (position, goal); action float32 [1], clipped to [-1, 1], moves the
    point by 0.2 of it; the reward is minus the distance to the goal. Terminated within 0.05 of it,
    truncated after 20 steps. Going straight there takes at most 10.
    """

    metadata = {'render_modes': ['rgb_array'], 'render_fps': 10}

    def __init__(self, render_mode: str | None = None) -> None:
        """Make the line."""
        self.render_mode = render_mode
        self.observation_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._state = np.zeros(2, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Draw a start and a goal."""
        super().reset(seed=seed, options=options)
        self._state = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return self._state.copy(), {}

    def step(
        self, action: NDArray[np.float32],
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Move the point."""
        move = 0.2 * float(np.clip(action[0], -1.0, 1.0))
        self._state[0] = np.clip(self._state[0] + move, -1.0, 1.0)
        distance = abs(float(self._state[1] - self._state[0]))
        return self._state.copy(), -distance, distance < 0.05, False, {}

    def render(self) -> NDArray[np.uint8]:
        """Return a picture uint8 [48, 160, 3]: the goal green, the point white."""
        picture = np.zeros((48, 160, 3), np.uint8)
        for value, colour in ((self._state[1], (0, 200, 0)), (self._state[0], (255, 255, 255))):
            column = 4 + round(float(value + 1.0) / 2.0 * 151)
            picture[8:40, column - 3:column + 4] = colour
        return picture


def register() -> None:
    """Add the environments to Gymnasium's registry; again is harmless."""
    for env_id, name, limit in (
            (COUNTER, 'CounterEnv', None),
            (PIXEL_COUNTER, 'PixelCounterEnv', None),
            (REACH, 'Reach1DEnv', 20)):
        if env_id not in gymnasium.registry:
            gymnasium.register(
                env_id, entry_point=f'{__name__}:{name}', max_episode_steps=limit)
