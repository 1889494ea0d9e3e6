"""Adds what the settings of an environment say of delays, real time and last actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vdl_ros.common.quoting import quoted
from vdl_ros.envs import dummy
from vdl_ros.envs.atari import FRAMES_PER_SECOND
from vdl_ros.envs.checked_vector_env import CheckedVectorEnv, EnvError, VectorEnvironment
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.lag.delays import Delay, DelayedVectorEnv
from vdl_ros.envs.lag.last_actions import LastActionsVectorEnv
from vdl_ros.envs.lag.realtime import RealTimeVectorEnv

__all__ = ['add_lag', 'delay_arguments']


def delay_arguments(
    config: EnvConfig, creator: Any, given: Mapping[str, Any],
) -> dict[str, list[float]]:
    """
    Return arguments for an environment that simulates delays itself; {} for others.

    The class of such an environment has ``delay_arguments``: the names of its arguments for the
    delay of observations and of actions, each [low, high], s, from which episodes draw.

    Args:
        config: settings of the environment.
        creator: its class.
        given: other arguments.

    Raises:
        EnvError: a delay is given twice, or actions are wanted that it shows anyway.
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
    """
    Return ``env`` with the delays, the clock and the observations of ``config``.

    Args:
        env: made with the same settings; :func:`delay_arguments` are its arguments.
        config: settings of the environment.
        seed: of the delays.

    Raises:
        EnvError: how long a step is, is unknown, or the observations are too large.
    """
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
    """Return the delays of observations and actions."""
    return tuple(Delay(low, low + more) for low, more in (  # type: ignore[return-value]
        (config.observation_delay, config.random_observation_delay),
        (config.action_delay, config.random_action_delay)))


def _delays_itself(env: CheckedVectorEnv) -> bool:
    one: Any = env.unwrapped
    return hasattr(getattr(one, 'envs', [one])[0].unwrapped, 'delay_arguments')


def _rate(env: CheckedVectorEnv, config: EnvConfig) -> float:
    """Return the steps per second of the environment."""
    if config.realtime_fps:
        return config.realtime_fps
    if config.env_id.startswith('ALE/'):
        return FRAMES_PER_SECOND / config.frame_skip
    if config.env_id.startswith(dummy.NAMESPACE):
        seconds = dummy.parse(config.env_id).step_s
        rate = 1.0 / seconds if seconds else 0.0
    else:
        rate = float(env.metadata.get('render_fps') or 0.0)
    if not rate > 0.0:
        env.close()
        raise EnvError('observation_delay, action_delay: not allowed without realtime_fps: '
                       f'env_id {quoted(config.env_id)} has no known steps per second')
    return rate
