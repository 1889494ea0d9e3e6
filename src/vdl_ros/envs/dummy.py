"""Dummy environments of a given size and speed, ``dummy/OBS28224-FPS100-v0``, and counters.

* ``OBS<n>``: an observation is n bytes of noise, uint8 [n], which hardly compress.
* ``FPS<f>``: a step sleeps 1/f s; a vector of B copies sleeps 1/f s too, like B machines that
  simulate in parallel. Without it, a step does not sleep.
* ``-SERIAL``: a vector of B copies sleeps B/f s, like one machine that simulates them in turn.
* ``-BUSY``: as ``-SERIAL``, but computing instead of sleeping.

Actions, Discrete(2), have no effect; the reward is 1; an episode is truncated after 1000 steps or
``time_limit``.
"""

import dataclasses
import functools
import re
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from vdl_ros.common.quoting import quoted
from vdl_ros.envs.checked_vector_env import EnvError, ResetResult, SingleStepResult, StepResult

NAMESPACE = 'dummy/'
MAX_BYTES = 1 << 26
MIN_FPS = 0.01
_FORM = 'dummy/OBS<bytes>[-FPS<steps per s>[-SERIAL|-BUSY]]-v0'
_NAME = re.compile(
    r'dummy/OBS([0-9]{1,12})(?:-FPS([0-9]{1,9}(?:\.[0-9]{1,9})?)(-SERIAL|-BUSY)?)?-v0')
_EPISODE = 1000
# A prime, so that noise repeats late for any size of observation.
_WINDOWS = 1_048_573


@dataclasses.dataclass(frozen=True)
class Dummy:
    """A parsed id: bytes of an observation, seconds of a step, and how they are spent."""

    size: int
    step_s: float = 0.0
    together: bool = True
    busy: bool = False


def parse(env_id: str) -> Dummy:
    """Parse the id of a dummy environment; EnvError names what is not allowed in it."""
    found = _NAME.fullmatch(env_id)
    if found is None:
        raise EnvError(f'env_id: {quoted(env_id)} is not allowed: {_FORM}')
    size = int(found[1])
    if not 1 <= size <= MAX_BYTES:
        raise EnvError(f'env_id: OBS{found[1]} is not allowed: 1 to {MAX_BYTES} bytes')
    if found[2] is None:
        return Dummy(size)
    if float(found[2]) < MIN_FPS:
        raise EnvError(
            f'env_id: FPS{found[2]} is not allowed: steps per second, at least {MIN_FPS}; '
            'without FPS steps do not sleep')
    return Dummy(size, 1.0 / float(found[2]), together=found[3] is None, busy=found[3] == '-BUSY')


def register_dummies(env_id: str) -> None:
    if env_id not in gymnasium.registry:
        parse(env_id)
        gymnasium.register(
            env_id, entry_point=f'{__name__}:DummyEnv',
            vector_entry_point=f'{__name__}:DummyVectorEnv', max_episode_steps=_EPISODE,
            kwargs={'name': env_id})


class _StepTime:
    """Makes steps of ``copies`` take a given time on average, to the precision of the clock.

    A sleep may end late by more than a short step takes; so each step is shortened by the delay of
    the previous one, at most by a whole step.
    """

    def __init__(self, dummy: Dummy, copies: int) -> None:
        self._seconds = dummy.step_s * (1 if dummy.together else copies)
        self._busy = dummy.busy
        # Processor time, so that waiting for a core does not count as computing.
        self._clock = time.thread_time if dummy.busy else time.perf_counter
        self._late = self._due = 0.0

    def begin(self) -> None:
        if self._seconds:
            self._due = self._clock() + self._seconds - self._late

    def finish(self) -> None:
        if self._seconds:
            while (left := self._due - self._clock()) > 0.0:
                if not self._busy:
                    time.sleep(left)
            self._late = min(-left, self._seconds)


@functools.lru_cache(maxsize=2)
def _noise(size: int) -> NDArray[np.uint8]:
    """Return uint8 [_WINDOWS, size], all windows of one read-only strip of noise.

    All environments of one size share it, so a copy of an environment takes little memory.
    """
    strip = np.frombuffer(np.random.default_rng(0).bytes(_WINDOWS + size - 1), np.uint8)
    return np.lib.stride_tricks.sliding_window_view(strip, size)


class DummyEnv(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """One environment: each observation is the next window of noise."""

    def __init__(self, name: str) -> None:
        self._one = DummyVectorEnv(1, name)
        self.observation_space: spaces.Space[Any] = self._one.single_observation_space
        self.action_space: spaces.Space[Any] = self._one.single_action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> ResetResult:
        """Start an episode, with a seed at a new position in the noise."""
        return self._one.reset(seed=seed)[0][0], {}

    def step(self, action: np.int64) -> SingleStepResult:
        """Take the step's time; the action has no effect."""
        return self._one.step(np.zeros(1, np.int64))[0][0], 1.0, False, False, {}


class DummyVectorEnv(VectorEnv[NDArray[np.uint8], NDArray[np.int64], NDArray[Any]]):
    """B copies; the id tells whether their steps take the time of one or of B.

    All episodes start and end together.
    """

    metadata = {'autoreset_mode': AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int, name: str, max_episode_steps: int = _EPISODE) -> None:
        dummy = parse(name)
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(0, 255, (dummy.size,), np.uint8)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._limit = max_episode_steps
        self._step_time = _StepTime(dummy, num_envs)
        self._noise = _noise(dummy.size)
        self._stride = dummy.size % _WINDOWS or 1
        self._at: NDArray[np.int64] | None = None
        self._time = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> ResetResult:
        super().reset(seed=seed, options=options)
        if seed is not None or self._at is None:
            self._at = self.np_random.integers(_WINDOWS, size=self.num_envs)
        self._time = 0
        return self._observations(), {}

    def step(self, actions: NDArray[np.int64]) -> StepResult:
        self._step_time.begin()
        is_reset = self._time >= self._limit
        self._time = 0 if is_reset else self._time + 1
        observations = self._observations()
        rewards = np.full(self.num_envs, 0.0 if is_reset else 1.0, np.float32)
        truncated = np.full(self.num_envs, self._time >= self._limit)
        self._step_time.finish()
        return observations, rewards, np.zeros(self.num_envs, np.bool_), truncated, {}

    def _observations(self) -> NDArray[np.uint8]:
        assert self._at is not None
        self._at = (self._at + self._stride) % _WINDOWS
        observations: NDArray[np.uint8] = self._noise[self._at]
        return observations


COUNTER = 'vdl/Counter-v0'
PIXEL_COUNTER = 'vdl/PixelCounter-v0'
MIXED_COUNTER = 'vdl/MixedCounter-v0'
REACH = 'vdl/Reach1D-v0'
PIXEL_FRAMES = 4


def episode_length(episode: int, identity: int) -> int:
    """Return the number of steps, 5 to 15, of an episode of a counter."""
    return 5 + (episode * 7 + identity) % 11


class CounterEnv(gymnasium.Env[NDArray[Any], np.int64]):
    """A step counter: observation float32 [3] = (episode, step in the episode, identity).

    The identity is the seed modulo 1000, or 0 without a seed. Actions, Discrete(2), have no
    effect. The reward of a step is its number in the episode, from 1. Episode e of identity i has
    ``episode_length(e, i)`` steps; even episodes terminate, odd ones are truncated.
    """

    def __init__(self) -> None:
        self.observation_space: spaces.Space[Any] = spaces.Box(0.0, np.inf, (3,), np.float32)
        self.action_space: spaces.Space[Any] = spaces.Discrete(2)
        self.identity = 0
        self.episode = -1
        self.time = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> ResetResult:
        super().reset(seed=seed, options=options)
        if seed is not None:
            self.identity = seed % 1000
            self.episode = -1
        self.episode += 1
        self.time = 0
        return self._observation(), {}

    def step(self, action: np.int64) -> SingleStepResult:
        del action
        self.time += 1
        over = self.time >= episode_length(self.episode, self.identity)
        even = self.episode % 2 == 0
        return self._observation(), float(self.time), over and even, over and not even, {}

    def _observation(self) -> NDArray[Any]:
        return np.array([self.episode, self.time, self.identity], np.float32)


class PixelCounterEnv(CounterEnv):
    """The counter in images: uint8 [4, 8, 8], the latest four frames, the oldest first.

    All pixels of frame k since the seed, over all episodes, are 1 + k modulo 255. After a reset
    the stack is three black frames and the new one, as in ``envs/atari.py``.
    """

    size = 8

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 255, (PIXEL_FRAMES, self.size, self.size), np.uint8)
        self._images = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> ResetResult:
        if seed is not None:
            self._images = 0
        return super().reset(seed=seed, options=options)

    def _observation(self) -> NDArray[Any]:
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

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict({
            'frames': self.observation_space,
            'count': spaces.Box(0.0, np.inf, (3,), np.float32),
            'phase': spaces.Tuple((spaces.Discrete(3, start=1), spaces.MultiBinary(2)))})
        self.action_space = spaces.MultiDiscrete([2, 3])

    def step(self, action: np.int64) -> SingleStepResult:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {**info, 'is_success': terminated}

    def _observation(self) -> Any:
        return {
            'frames': super()._observation(),
            'count': CounterEnv._observation(self) / np.float32(1000),
            'phase': (np.int64(self.time % 3 + 1),
                      np.array([self.time % 2, self.episode % 2], np.int8))}


class Reach1DEnv(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Move a point on a line to a goal; both are random in [-1, 1].

    Observation float32 [2] = (position, goal); action float32 [1], clipped to [-1, 1], moves the
    point by 0.2 of it; the reward is minus the distance to the goal. Terminated within 0.05 of the
    goal, truncated after 20 steps; 10 are enough.
    """

    metadata = {'render_modes': ['rgb_array'], 'render_fps': 10}

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._state = np.zeros(2, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> ResetResult:
        super().reset(seed=seed, options=options)
        self._state = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return self._state.copy(), {}

    def step(self, action: NDArray[np.float32]) -> SingleStepResult:
        move = 0.2 * float(np.clip(action[0], -1.0, 1.0))
        self._state[0] = np.clip(self._state[0] + move, -1.0, 1.0)
        distance = abs(float(self._state[1] - self._state[0]))
        return self._state.copy(), -distance, distance < 0.05, False, {}

    def render(self) -> NDArray[np.uint8]:
        """Return an image uint8 [48, 160, 3]: the goal green, the point white."""
        image = np.zeros((48, 160, 3), np.uint8)
        for value, colour in ((self._state[1], (0, 200, 0)), (self._state[0], (255, 255, 255))):
            column = 4 + round(float(value + 1.0) / 2.0 * 151)
            image[8:40, column - 3:column + 4] = colour
        return image


def register_counters() -> None:
    for env_id, name, limit in (
            (COUNTER, 'CounterEnv', None),
            (PIXEL_COUNTER, 'PixelCounterEnv', None),
            (MIXED_COUNTER, 'MixedCounterEnv', None),
            (REACH, 'Reach1DEnv', 20)):
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point=f'{__name__}:{name}', max_episode_steps=limit)
