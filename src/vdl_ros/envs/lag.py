"""Late observations and actions, and the last actions as a part of the observation."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from vdl_ros.common.observation_spaces import ImageAndVector
from vdl_ros.common.quoting import quoted
from vdl_ros.envs import dummy
from vdl_ros.envs.atari import FRAMES_PER_SECOND
from vdl_ros.envs.canonical_spaces import Column, Observations
from vdl_ros.envs.checked_vector_env import (
    CheckedVectorEnv,
    EnvError,
    ResetResult,
    StepResult,
    VectorEnvironment,
    Wrapper,
    check_memory,
    frame_rate,
)
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.realtime import Delay, DelayedVectorEnv, RealTimeVectorEnv


class LastActionsVectorEnv(Wrapper):
    """B environments whose observations have the last N actions of the agent.

    With observations and actions that are late, the state of such an environment is the last
    observation and the actions since then (Katsikopoulos and Engelbrecht 2003,
    https://doi.org/10.1109/TAC.2003.809799). Actions of whole numbers are one-hot, those of a
    Box are clipped to its bounds; 0 stands for none in this episode.
    """

    def __init__(self, env: VectorEnvironment, number: int) -> None:
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
        return self._observations.columns

    def reset(self, *, seed: int | None = None, options: Any = None) -> ResetResult:
        observations, info = self.env.reset(seed=seed, options=options)
        self._last[:] = 0.0
        self._over[:] = False
        return self._joined(observations), info

    def step(self, actions: NDArray[Any]) -> StepResult:
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
        parts: dict[str, Any] = {'observation': observations}
        if self._mixed is not None:
            image, numbers = self._mixed.split(observations)
            parts = {'image': image, 'numbers': numbers}
        return self._observations.convert(
            parts | {'last_actions': self._last.reshape(len(self._last), -1)})


def delay_arguments(
    config: EnvConfig, creator: Any, given: Mapping[str, Any],
) -> dict[str, list[float]]:
    """Return arguments for an environment that simulates delays itself; {} for others.

    The class of such an environment has ``delay_arguments``: the names of its arguments for the
    delay of observations and of actions, each [low, high], s, from which episodes draw.
    """
    names = getattr(creator, 'delay_arguments', None)
    if names is None:
        return {}
    if config.observe_last_actions:
        raise EnvError(f'observe_last_actions: {config.observe_last_actions} is not allowed with '
                       f'env_id {quoted(config.env_id)}: it shows its last actions itself')
    found = {}
    for name, delay, setting in zip(
            names, _delays(config), ('observation_delay', 'action_delay'), strict=True):
        if delay and name in given:
            raise EnvError(f'{setting}: not allowed with {name} in env_kwargs')
        if delay:
            found[name] = [delay.low, delay.high]
    return found


def add_lag(env: CheckedVectorEnv, config: EnvConfig, seed: int) -> VectorEnvironment:
    """Return ``env``, made with :func:`delay_arguments`, with delays, clock and last actions."""
    lagged: VectorEnvironment = env
    observations, actions = _delays(config)
    if (observations or actions) and not _delays_itself(env):
        lagged = DelayedVectorEnv(lagged, _rate(env, config), observations=observations,
                                  actions=actions, seed=seed)
    if config.realtime_fps:
        lagged = RealTimeVectorEnv(lagged, config.realtime_fps)
    if config.observe_last_actions:
        lagged = LastActionsVectorEnv(lagged, config.observe_last_actions)
    return lagged


def _delays(config: EnvConfig) -> tuple[Delay, Delay]:
    return tuple(Delay(low, low + more) for low, more in (  # type: ignore[return-value]
        (config.observation_delay, config.random_observation_delay),
        (config.action_delay, config.random_action_delay)))


def _delays_itself(env: CheckedVectorEnv) -> bool:
    one: Any = env.unwrapped
    return hasattr(getattr(one, 'envs', [one])[0].unwrapped, 'delay_arguments')


def _rate(env: CheckedVectorEnv, config: EnvConfig) -> float:
    if config.realtime_fps:
        return config.realtime_fps
    if config.env_id.startswith('ALE/'):
        return FRAMES_PER_SECOND / config.frame_skip
    if config.env_id.startswith(dummy.NAMESPACE):
        seconds = dummy.parse(config.env_id).step_s
        rate = 1.0 / seconds if seconds else 0.0
    else:
        rate = frame_rate(env, 0.0)
    if not rate > 0.0:
        env.close()
        raise EnvError('observation_delay, action_delay: not allowed without realtime_fps: '
                       f'env_id {quoted(config.env_id)} has no known steps per second')
    return rate
