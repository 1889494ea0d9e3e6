"""Make the policy of an algorithm for the spaces of an environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import torch

from vdl_ros.common.observation_spaces import SMALLEST_IMAGE, ImageAndVector, is_image
from vdl_ros.rl.algorithm_config import AlgorithmConfig, DqnConfig, SacConfig
from vdl_ros.rl.device import CPU
from vdl_ros.rl.policy import distributions
from vdl_ros.rl.policy.policy import Policy
from vdl_ros.rl.policy.precision import choose_precision
from vdl_ros.rl.train_config import TrainConfig

__all__ = ['make_policy']


def make_policy(
    config: TrainConfig,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    algorithm_config: AlgorithmConfig | None = None,
    device: torch.device = CPU,
) -> Policy:
    """
    Return a policy for the spaces of one environment.

    Args:
        config: uses network, hidden_size, lstm_size, last_action_reward, precision,
            action_distribution, initial_std, normalize_observations and observation_smoothing.
            Network ``auto`` is impala for images, uint8 [C, H, W] or [H, W, C]; for precision
            see :func:`choose_precision`.
        observation_space: a Box: numbers, images, or an :class:`ImageAndVector`.
        action_space: see :func:`distributions.for_space`.
        algorithm_config: the algorithm's settings; with those of dqn the network has action
            values, with those of sac no value.
        device: device of the policy. Weights are initialized on the CPU, so that they do not
            depend on it.

    Raises:
        ValueError: a space, or a combination of network and space, that is not supported.
    """
    if not isinstance(observation_space, gymnasium.spaces.Box):
        raise ValueError(f'observation space {observation_space} is not supported: a Box')
    mixed = isinstance(observation_space, ImageAndVector)
    image = is_image(getattr(observation_space, 'image', observation_space))
    network = config.network
    if network == 'auto':
        network = 'impala' if image else 'mlp'
    if network != 'mlp' and not image:
        raise ValueError(
            f'network {network!r} needs images, uint8 [C, H, W] or [H, W, C] of at least '
            f'{SMALLEST_IMAGE} x {SMALLEST_IMAGE}; this environment has {observation_space}')
    of_sac = isinstance(algorithm_config, SacConfig)
    policy = Policy(
        network, observation_space, _distribution(config, action_space, algorithm_config),
        hidden_size=config.hidden_size, lstm_size=config.lstm_size,
        last_action_reward=config.last_action_reward,
        normalize=config.normalize_observations and (mixed or network == 'mlp'),
        smoothing=config.observation_smoothing, has_value=not of_sac, has_log_std=of_sac,
        initial_std=config.initial_std)
    choose_precision(policy.to(device), config.precision)
    return policy


def _distribution(
    config: TrainConfig, space: gymnasium.Space[Any], algorithm_config: AlgorithmConfig | None,
) -> distributions.ActionDistribution:
    """Return the family of actions; sac squashes continuous ones."""
    if isinstance(algorithm_config, DqnConfig):
        return distributions.for_values(space, algorithm_config.exploration)
    if not isinstance(algorithm_config, SacConfig):
        return distributions.for_space(space, config.action_distribution)
    parts = isinstance(space, gymnasium.spaces.MultiDiscrete)
    unbounded = isinstance(space, gymnasium.spaces.Box) and not space.is_bounded()
    if parts or unbounded:
        raise ValueError(f"algorithm: 'sac' cannot act in {space}: Discrete from 0, or a Box with "
                         f'a finite range; for other spaces one of {distributions.OF_ALL_SPACES}')
    return distributions.for_space(space, 'squashed')
