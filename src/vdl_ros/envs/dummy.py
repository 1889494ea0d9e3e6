"""Dummy environments of a given size and speed, ``dummy/OBS28224-FPS100-v0``.

* ``OBS<n>``: an observation is n bytes of noise, uint8 [n], which hardly compress.
* ``FPS<f>``: a step sleeps 1/f s; a vector of B copies sleeps 1/f s too, like B machines that
  simulate in parallel. Without it, a step does not sleep.
* ``-SERIAL``: a vector of B copies sleeps B/f s, like one machine that simulates them in turn.

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
from vdl_ros.envs.checked_vector_env import EnvError, ResetResult, StepResult

NAMESPACE = 'dummy/'
MAX_BYTES = 1 << 26
MIN_FPS = 0.01
_FORM = 'dummy/OBS<bytes>[-FPS<steps per s>[-SERIAL]]-v0'
_NAME = re.compile(
    r'dummy/OBS([0-9]{1,12})(?:-FPS([0-9]{1,9}(?:\.[0-9]{1,9})?)(-SERIAL)?)?-v0')
_EPISODE = 1000
# A prime, so that noise repeats late for any size of observation.
_WINDOWS = 1_048_573


@dataclasses.dataclass(frozen=True)
class Dummy:
    """A parsed id: bytes of an observation, seconds of a step, and whether copies share them."""

    size: int
    step_s: float = 0.0
    together: bool = True


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
    return Dummy(size, 1.0 / float(found[2]), together=found[3] is None)


def register_dummies(env_id: str) -> None:
    if env_id not in gymnasium.registry:
        parse(env_id)
        gymnasium.register(
            env_id, vector_entry_point=f'{__name__}:DummyVectorEnv', max_episode_steps=_EPISODE,
            kwargs={'name': env_id})


class _StepTime:
    """Makes steps of ``copies`` take a given time on average, to the precision of the clock.

    A sleep may end late by more than a short step takes; so each step is shortened by the delay of
    the previous one, at most by a whole step.
    """

    def __init__(self, dummy: Dummy, copies: int) -> None:
        self._seconds = dummy.step_s * (1 if dummy.together else copies)
        self._late = self._due = 0.0

    def begin(self) -> None:
        if self._seconds:
            self._due = time.perf_counter() + self._seconds - self._late

    def finish(self) -> None:
        if self._seconds:
            while (left := self._due - time.perf_counter()) > 0.0:
                time.sleep(left)
            self._late = min(-left, self._seconds)


@functools.lru_cache(maxsize=2)
def _noise(size: int) -> NDArray[np.uint8]:
    """Return uint8 [_WINDOWS, size], all windows of one read-only strip of noise.

    All environments of one size share it, so a copy of an environment takes little memory.
    """
    strip = np.frombuffer(np.random.default_rng(0).bytes(_WINDOWS + size - 1), np.uint8)
    return np.lib.stride_tricks.sliding_window_view(strip, size)


class DummyVectorEnv(VectorEnv[NDArray[np.uint8], NDArray[np.int64], NDArray[Any]]):
    """B copies; the id tells whether their steps take the time of one or of B.

    Each observation is the next window of noise, from a new position after a reset with a seed.
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
