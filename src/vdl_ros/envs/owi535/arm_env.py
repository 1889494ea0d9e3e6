"""One arm or B at once with a task, for Gymnasium; each task has a subclass of both classes."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from vdl_ros.envs.owi535.arm_observation import RATE

__all__ = ['ArmEnv', 'ArmVectorEnv']

#: Of all tasks, for the delays of observations and of actions; see ``envs/lag/lag.py``.
_DELAY_ARGUMENTS = ('measurement_delay', 'command_delay')
#: Of N arms: an array [N, ...], or one for each part of a ``Dict``.
Observations = Any


class StepOutcome(Protocol):
    """What a step of B arms gave; all but the observations are arrays [B]."""

    @property
    def observations(self) -> Observations:
        """Return the observations."""

    @property
    def rewards(self) -> NDArray[np.float64]:
        """Return the rewards."""

    @property
    def success(self) -> NDArray[np.bool_]:
        """Return which arms have succeeded."""

    @property
    def terminated(self) -> NDArray[np.bool_]:
        """Return which episodes are over, by success or failure."""

    @property
    def info(self) -> dict[str, NDArray[Any]]:
        """Return what ``info`` has besides ``is_success``."""


class Task(Protocol):
    """B arms with a task."""

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]

    def reset(self, rows: NDArray[np.intp], random: np.random.Generator) -> Observations:
        """Start episodes of arms ``rows``, int [N]; return their observations."""

    def step(self, actions: NDArray[np.integer], random: np.random.Generator) -> StepOutcome:
        """Command the motors of all arms, int [B, motors]; simulate one period."""

    def render(self, arm: int) -> NDArray[np.uint8]:
        """Return an image of one arm, uint8 [H, W, 3]."""

    def close(self) -> None:
        """Free what the task has opened."""


class ArmEnv(gymnasium.Env[Any, NDArray[np.int64]]):
    """
    One arm; see docs/arm_learning.md for observations, actions and rewards.

    ``info`` has ``is_success``, and ``distance``, m, of each step; ``observation_delay``, s, the
    age of the measurement, and ``action_delay``, s, that of commands when they are applied.
    """

    metadata = {'render_modes': ['rgb_array'], 'render_fps': RATE}
    #: Makes the task for a number of arms.
    task: ClassVar[Any]
    delay_arguments = _DELAY_ARGUMENTS

    def __init__(self, render_mode: str | None = None, **arguments: Any) -> None:
        """
        Make the arm.

        Args:
            render_mode: ``rgb_array`` or None.
            arguments: of the task.

        Raises:
            EnvError: an argument that is not allowed.
        """
        self.render_mode = render_mode
        self._task: Task = self.task(1, **arguments)
        self.observation_space = self._task.observation_space
        self.action_space = self._task.action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode: a random twin, start and target."""
        super().reset(seed=seed, options=options)
        return _first(self._task.reset(np.zeros(1, np.intp), self.np_random)), {}

    def step(self, action: NDArray[np.int64]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Command the motors for 0.1 s."""
        outcome = self._task.step(np.asarray(action)[None], self.np_random)
        info = {'is_success': outcome.success, **outcome.info}
        return (_first(outcome.observations), float(outcome.rewards[0]),
                bool(outcome.terminated[0]), False,
                {name: values[0].item() for name, values in info.items()})

    def render(self) -> NDArray[np.uint8] | None:
        """Return an image of the arm and its target, uint8 [H, W, 3]; None without a mode."""
        return None if self.render_mode is None else self._task.render(0)

    def close(self) -> None:
        """Free the renderer."""
        self._task.close()


class ArmVectorEnv(VectorEnv[Any, NDArray[np.int64], NDArray[Any]]):
    """
    B arms, simulated together; arguments as of :class:`ArmEnv`.

    ``info`` has the same names, each with an array [B].
    """

    metadata = {'autoreset_mode': AutoresetMode.NEXT_STEP, 'render_modes': ['rgb_array'],
                'render_fps': RATE}
    task: ClassVar[Any]
    delay_arguments = _DELAY_ARGUMENTS
    #: Steps after which an episode is truncated.
    steps: ClassVar[int]

    def __init__(
        self, num_envs: int, render_mode: str | None = None, max_episode_steps: int = 0,
        **arguments: Any,
    ) -> None:
        """
        Make ``num_envs`` arms.

        Raises:
            EnvError: an argument that is not allowed.
        """
        self.num_envs = num_envs
        self.render_mode = render_mode
        self._task: Task = self.task(num_envs, **arguments)
        self.single_observation_space = self._task.observation_space
        self.single_action_space = self._task.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._limit = max_episode_steps or self.steps
        self._steps = np.zeros(num_envs, np.int64)
        self._over = np.zeros(num_envs, np.bool_)

    def reset(
        self, *, seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode of every arm; ``seed`` is one number."""
        assert not isinstance(seed, list)
        super().reset(seed=seed, options=options)
        self._steps[:] = 0
        self._over[:] = False
        return self._task.reset(np.arange(self.num_envs), self.np_random), {}

    def step(
        self, actions: NDArray[np.int64],
    ) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Command the motors for 0.1 s; start the next episode of arms whose last one is over."""
        outcome = self._task.step(actions, self.np_random)
        observations = outcome.observations
        begin = self._over
        self._steps += 1
        if begin.any():
            rows = np.flatnonzero(begin)
            _assign(observations, rows, self._task.reset(rows, self.np_random))
            self._steps[rows] = 0
        terminated = outcome.terminated & ~begin
        truncated = (self._steps >= self._limit) & ~begin & ~terminated
        self._over = terminated | truncated
        info = {name: values & ~begin if values.dtype == np.bool_ else values
                for name, values in {'is_success': outcome.success, **outcome.info}.items()}
        return observations, np.where(begin, 0.0, outcome.rewards), terminated, truncated, info

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """Return an image of each arm and its target, uint8 [H, W, 3]; None without a mode."""
        if self.render_mode is None:
            return None
        return tuple(self._task.render(arm) for arm in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Free the renderer."""
        self._task.close()


def _first(observations: Observations) -> Any:
    """Return the observation of the first arm."""
    if isinstance(observations, dict):
        return {name: values[0] for name, values in observations.items()}
    return observations[0]


def _assign(observations: Observations, rows: NDArray[np.intp], values: Observations) -> None:
    """Replace the observations of ``rows``, int [N]."""
    if isinstance(observations, dict):
        for name in observations:
            observations[name][rows] = values[name]
    else:
        observations[rows] = values
