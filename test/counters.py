"""Environments for tests, whose observations, rewards and ends are known beforehand.

Importing this module registers them; processes get it by ``env_modules:=counters``.
"""

import gymnasium
import numpy as np
from gymnasium import spaces

from vdl_ros.envs import factory

COUNTER = 'vdl/Counter-v0'
PIXEL_COUNTER = 'vdl/PixelCounter-v0'
MIXED_COUNTER = 'vdl/MixedCounter-v0'
REACH = 'vdl/Reach1D-v0'
PIXEL_FRAMES = 4


def episode_length(episode, identity):
    """Return the number of steps, 5 to 15, of an episode of a counter."""
    return 5 + (episode * 7 + identity) % 11


class CounterEnv(gymnasium.Env):
    """A step counter: observation float32 [3] = (episode, step in the episode, identity).

    The identity is the seed modulo 1000, or 0 without a seed. Actions, Discrete(2), have no
    effect. The reward of a step is its number in the episode, from 1. Episode e of identity i has
    ``episode_length(e, i)`` steps; even episodes terminate, odd ones are truncated.
    """

    def __init__(self):
        self.observation_space = spaces.Box(0.0, np.inf, (3,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.identity = 0
        self.episode = -1
        self.time = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        if seed is not None:
            self.identity = seed % 1000
            self.episode = -1
        self.episode += 1
        self.time = 0
        return self._observation(), {}

    def step(self, action):
        self.time += 1
        over = self.time >= episode_length(self.episode, self.identity)
        even = self.episode % 2 == 0
        return self._observation(), float(self.time), over and even, over and not even, {}

    def _observation(self):
        return np.array([self.episode, self.time, self.identity], np.float32)


class PixelCounterEnv(CounterEnv):
    """The counter in images: uint8 [4, 8, 8], the latest four frames, the oldest first.

    All pixels of frame k since the seed, over all episodes, are 1 + k modulo 255. After a reset
    the stack is three black frames and the new one, as in ``envs/atari.py``.
    """

    size = 8

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Box(0, 255, (PIXEL_FRAMES, self.size, self.size), np.uint8)
        self._images = 0

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self._images = 0
        return super().reset(seed=seed, options=options)

    def _observation(self):
        self._images += 1
        stack = np.zeros((PIXEL_FRAMES, self.size, self.size), np.uint8)
        for age in range(min(self.time + 1, PIXEL_FRAMES)):
            stack[-1 - age] = 1 + (self._images - 1 - age) % 255
        return stack


class MixedCounterEnv(PixelCounterEnv):
    """The counter as image and numbers, with actions of two parts, MultiDiscrete([2, 3]).

    The observation is a dictionary: ``frames``, as of ``PixelCounterEnv`` with 36 x 36 pixels;
    ``count``, as of ``CounterEnv``, in thousands; ``phase``, a tuple of the step modulo 3 plus 1,
    Discrete(3, start=1), and whether step and episode are odd, MultiBinary(2). Episodes that
    terminate are successes.
    """

    size = 36

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Dict({
            'frames': self.observation_space,
            'count': spaces.Box(0.0, np.inf, (3,), np.float32),
            'phase': spaces.Tuple((spaces.Discrete(3, start=1), spaces.MultiBinary(2)))})
        self.action_space = spaces.MultiDiscrete([2, 3])

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {**info, 'is_success': terminated}

    def _observation(self):
        return {
            'frames': super()._observation(),
            'count': CounterEnv._observation(self) / np.float32(1000),
            'phase': (np.int64(self.time % 3 + 1),
                      np.array([self.time % 2, self.episode % 2], np.int8))}


class Reach1DEnv(gymnasium.Env):
    """Move a point on a line to a goal; both are random in [-1, 1].

    Observation float32 [2] = (position, goal); action float32 [1], clipped to [-1, 1], moves the
    point by 0.2 of it; the reward is minus the distance to the goal. Terminated within 0.05 of the
    goal, truncated after 20 steps; 10 are enough.
    """

    metadata = {'render_modes': ['rgb_array'], 'render_fps': 10}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._state = np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self._state = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return self._state.copy(), {}

    def step(self, action):
        move = 0.2 * float(np.clip(action[0], -1.0, 1.0))
        self._state[0] = np.clip(self._state[0] + move, -1.0, 1.0)
        distance = abs(float(self._state[1] - self._state[0]))
        return self._state.copy(), -distance, distance < 0.05, False, {}

    def render(self):
        """Return an image uint8 [48, 160, 3]: the goal green, the point white."""
        image = np.zeros((48, 160, 3), np.uint8)
        for value, colour in ((self._state[1], (0, 200, 0)), (self._state[0], (255, 255, 255))):
            column = 4 + round(float(value + 1.0) / 2.0 * 151)
            image[8:40, column - 3:column + 4] = colour
        return image


for env_id, kind, limit in (
        (COUNTER, 'CounterEnv', None), (PIXEL_COUNTER, 'PixelCounterEnv', None),
        (MIXED_COUNTER, 'MixedCounterEnv', None), (REACH, 'Reach1DEnv', 20)):
    gymnasium.register(env_id, entry_point=f'counters:{kind}', max_episode_steps=limit)
factory.STACKED_FRAMES.update({PIXEL_COUNTER: PIXEL_FRAMES, MIXED_COUNTER: PIXEL_FRAMES})
