"""Builds the metadata of an ONNX file from a checkpoint's policy, its settings and its spaces."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.observation_spaces import ImageAndVector
from vdl_ros.common.settings import as_dict
from vdl_ros.envs.canonical_spaces import Column
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.onnx_policy.metadata import FORMAT
from vdl_ros.saved_policy import SavedPolicy

__all__ = ['describe', 'inputs_of']

# What the parameters of a distribution are, by the name of its class.
_MEANINGS = {
    'Categorical': 'logits',
    'MultiCategorical': 'logits of each part, one after the other',
    'DiagonalGaussian': 'means, then logarithms of standard deviations, which are kept within -5 '
                        'to 2; a sample is clipped to the range of actions',
    'SquashedGaussian': 'means, then logarithms of standard deviations, which are kept within -5 '
                        'to 2; tanh of a sample is scaled to the range of actions',
    'EpsilonGreedy': 'action values', 'Boltzmann': 'action values',
}


def inputs_of(space: gymnasium.spaces.Box) -> list[dict[str, Any]]:
    """Return name, shape (without the batch) and dtype of each input for an observation."""
    if not isinstance(space, ImageAndVector):
        return [_input('observation', space.shape, space.dtype)]
    return [_input('image', space.image.shape, space.image.dtype),
            _input('numbers', (space.vector_size,), np.float32)]


def describe(
    saved: SavedPolicy, space: gymnasium.spaces.Box, columns: list[Column],
) -> dict[str, Any]:
    """
    Return the metadata, plain values in SI units.

    Args:
        saved: the policy.
        space: of its observations.
        columns: where the parts of an observation are in its numbers.
    """
    policy, described = saved.policy, saved.described
    defaults = as_dict(EnvConfig())
    environment = {
        name: value for name, value in as_dict(saved.env).items()
        if name == 'env_id' or (value != defaults[name] and name != 'num_envs')}
    rate = described.get('rate', saved.env.realtime_fps or None)
    family = type(policy.distribution).__name__
    return {
        'format': FORMAT,
        'algorithm': saved.train.algorithm, 'network': saved.train.network,
        'agent_steps': saved.agent_steps, 'updates': saved.version,
        'environment': environment, 'description': described,
        'rate': rate, 'rate_unit': '1/s',
        'observation': {
            'inputs': inputs_of(space), 'columns': [each._asdict() for each in columns]},
        'normalization': {
            'in_graph': True, 'statistics': policy.normalizer is not None,
            'images_scaled': policy.of_images,
            'smoothing_pixels': saved.train.observation_smoothing},
        'precision': 'float32',
        'parameters': {'distribution': family, 'meaning': _MEANINGS[family]},
        'action': _action(saved.action_space, described),
        'value': 'the largest action value' if saved.train.algorithm == 'dqn'
                 else 'expected discounted return, of rewards as the training scales them',
        'state': _state(saved),
    }


def _action(space: gymnasium.Space[Any], described: dict[str, Any]) -> dict[str, Any]:
    """Return kind, choices, shape, range and names of actions."""
    found: dict[str, Any] = {
        'kind': type(space).__name__, 'shape': list(space.shape or ()), 'sizes': [],
        'names': described.get('motors', []), 'choices': described.get('actions', [])}
    if isinstance(space, gymnasium.spaces.Box):
        return found | {'low': _numbers(space.low), 'high': _numbers(space.high)}
    sizes = np.atleast_1d(getattr(space, 'nvec', getattr(space, 'n', 0)))
    return found | {'sizes': sizes.tolist()}


def _numbers(values: NDArray[Any]) -> list[float | None]:
    """Return numbers for JSON, which has no infinity: None."""
    return [float(each) if math.isfinite(each) else None for each in values]


def _state(saved: SavedPolicy) -> dict[str, Any] | None:
    """Return what a program has to do with the state; None without one."""
    policy = saved.policy
    if not policy.state_size:
        return None
    last = policy.last_action_reward
    first = policy.state_size - policy.distribution.num_inputs - 1
    return {
        'input': 'state', 'output': 'next_state', 'size': policy.state_size, 'initial': 0.0,
        'reset': 'the initial value at the first observation of an episode',
        'last_reward_index': policy.state_size - 1 if last else None,
        'last_reward': 'before the next observation, the reward of the action, within -1 to 1'
                       if last else '',
        'last_action_columns': [first, policy.state_size - 1] if last else None,
        'last_action': 'next_state has the most likely action, one-hot or before it is squashed '
                       'and clipped; overwrite it if another one was taken' if last else '',
    }


def _input(name: str, shape: tuple[int, ...], dtype: Any) -> dict[str, Any]:
    return {'name': name, 'shape': list(shape), 'dtype': np.dtype(dtype).name}
