"""``vdl_ros/OWI535Reach-v0``: the task *reach* for Gymnasium, one arm or B at once."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from vdl_ros.envs.owi535.reach_description import describe
from vdl_ros.envs.owi535.reach_observation import FEATURES, MOTORS, RATE
from vdl_ros.envs.owi535.reach_renderer import ReachRenderer
from vdl_ros.envs.owi535.reach_task import ReachTask
from vdl_ros.envs.registration import REACH_STEPS

__all__ = ['ReachEnv', 'ReachVectorEnv']

_BOUNDS = np.array([feature.bound for feature in FEATURES], np.float32)


def _spaces() -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """Return the observation and action space of one arm."""
    return (spaces.Box(-_BOUNDS, _BOUNDS, dtype=np.float32),
            spaces.MultiDiscrete([3] * len(MOTORS)))


class ReachEnv(gymnasium.Env[NDArray[np.float32], NDArray[np.int64]]):
    """
    One arm; see docs/arm_learning.md for observations, actions and rewards.

    ``info`` has ``is_success``, ``distance`` (m) and ``collided`` of each step.
    """

    metadata = {'render_modes': ['rgb_array'], 'render_fps': RATE}
    #: What a checkpoint says of this environment, for the node that runs its policy.
    describe = staticmethod(describe)

    def __init__(
        self, reward: str = 'dense', randomisation: str = 'inside', feedback: str = 'mixed',
        render_mode: str | None = None, calibration: str = '',
    ) -> None:
        """
        Make the arm.

        Args:
            reward: ``dense``, or ``sparse``: 1 for success, else 0.
            randomisation: ``inside`` the ranges of training, ``held_out`` outside of all of
                them, or ``none``.
            feedback: joints measured by ``truth``, by ``camera``, or ``mixed``, by episode.
            render_mode: ``rgb_array`` or None.
            calibration: file of ``ros2 run vdl_ros calibrate``: motors are drawn about those of
                that arm, by the shares of ``randomisation`` for speeds.

        Raises:
            EnvError: an argument that is not allowed.
        """
        self.render_mode = render_mode
        self.observation_space, self.action_space = _spaces()
        self._task = ReachTask(1, reward, randomisation, feedback, calibration)
        self._renderer = ReachRenderer()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode: a random twin, pose and target."""
        super().reset(seed=seed, options=options)
        return self._task.reset(np.zeros(1, np.intp), self.np_random)[0], {}

    def step(
        self, action: NDArray[np.int64],
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Command the motors for 0.1 s."""
        outcome = self._task.step(np.asarray(action)[None], self.np_random)
        success = bool(outcome.success[0])
        info = {'is_success': success, 'distance': float(outcome.distance[0]),
                'collided': bool(outcome.collided[0])}
        return outcome.observations[0], float(outcome.rewards[0]), success, False, info

    def render(self) -> NDArray[np.uint8] | None:
        """Return an image of the arm and its target, uint8 [H, W, 3]; None without a mode."""
        if self.render_mode is None:
            return None
        return self._renderer.render(self._task.positions[0], self._task.targets[0])

    def close(self) -> None:
        """Free the renderer."""
        self._renderer.close()


class ReachVectorEnv(VectorEnv[NDArray[np.float32], NDArray[np.int64], NDArray[Any]]):
    """
    B arms, simulated together; arguments as of :class:`ReachEnv`.

    ``info`` has the same names, each with an array [B].
    """

    metadata = {'autoreset_mode': AutoresetMode.NEXT_STEP, 'render_modes': ['rgb_array'],
                'render_fps': RATE}

    def __init__(
        self, num_envs: int, reward: str = 'dense', randomisation: str = 'inside',
        feedback: str = 'mixed', render_mode: str | None = None,
        max_episode_steps: int = REACH_STEPS, calibration: str = '',
    ) -> None:
        """
        Make ``num_envs`` arms.

        Raises:
            EnvError: an argument that is not allowed.
        """
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.single_observation_space, self.single_action_space = _spaces()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._task = ReachTask(num_envs, reward, randomisation, feedback, calibration)
        self._renderer = ReachRenderer()
        self._limit = max_episode_steps
        self._steps = np.zeros(num_envs, np.int64)
        self._over = np.zeros(num_envs, np.bool_)

    def reset(
        self, *, seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode of every arm; ``seed`` is one number."""
        assert not isinstance(seed, list)
        super().reset(seed=seed, options=options)
        self._steps[:] = 0
        self._over[:] = False
        return self._task.reset(np.arange(self.num_envs), self.np_random), {}

    def step(
        self, actions: NDArray[np.int64],
    ) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Command the motors for 0.1 s; start the next episode of arms whose last one is over."""
        outcome = self._task.step(actions, self.np_random)
        begin = self._over
        self._steps += 1
        if begin.any():
            rows = np.flatnonzero(begin)
            outcome.observations[rows] = self._task.reset(rows, self.np_random)
            self._steps[rows] = 0
        success = outcome.success & ~begin
        truncated = (self._steps >= self._limit) & ~begin
        self._over = success | truncated
        info = {'is_success': success, 'distance': outcome.distance,
                'collided': outcome.collided & ~begin}
        return (outcome.observations, np.where(begin, 0.0, outcome.rewards), success,
                truncated & ~success, info)

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """Return an image of each arm and its target, uint8 [H, W, 3]; None without a mode."""
        if self.render_mode is None:
            return None
        return tuple(self._renderer.render(positions, target) for positions, target in zip(
            self._task.positions, self._task.targets, strict=True))

    def close_extras(self, **kwargs: Any) -> None:
        """Free the renderer."""
        self._renderer.close()
