"""Start a run with the weights of another one's checkpoint: weights only, nothing else of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from vdl_ros.common.quoting import quoted
from vdl_ros.rl.policy.policy import Policy
from vdl_ros.rl.runs.checkpoint import CheckpointError, load_checkpoint
from vdl_ros.rl.train_config import TrainConfig

__all__ = ['load_initial_weights']

# Settings on which the network depends.
_NETWORK = ('algorithm', 'network', 'hidden_size', 'lstm_size', 'last_action_reward',
            'normalize_observations')


def load_initial_weights(path: Path, policy: Policy, config: TrainConfig) -> None:
    """
    Copy the weights of a checkpoint into ``policy``, with its statistics of observations.

    Args:
        path: the checkpoint.
        policy: the network of the new run.
        config: settings of the new run.

    Raises:
        CheckpointError: not a readable checkpoint, or of another network; the message names the
            first difference, and the settings that differ.
    """
    checkpoint = load_checkpoint(path)
    found, wanted = checkpoint['learner'].get('policy'), policy.state_dict()
    if not isinstance(found, dict) or not all(
            isinstance(each, torch.Tensor) for each in found.values()):
        raise CheckpointError(f'init: {path} holds no policy')
    saved = checkpoint['config']
    for name in {**wanted, **found}:
        there, here = (_shape(each.get(name)) for each in (found, wanted))
        if there != here:
            raise CheckpointError(f'init: {path} does not fit: {quoted(name)} is {there} there, '
                                  f'{here} here{_different(saved, config)}')
    # With the same shapes, the same numbers mean another action.
    name = 'action_distribution'
    if policy.log_std is not None and saved.get(name) != getattr(config, name):
        raise CheckpointError(f'init: {path} does not fit: {name} is {quoted(saved.get(name))} '
                              f'there, {getattr(config, name)!r} here')
    if not all(bool(torch.isfinite(each).all()) for each in found.values()):
        raise CheckpointError(f'init: {path}: not all weights are finite')
    policy.load_state_dict(found)


def _shape(tensor: torch.Tensor | None) -> str:
    return 'not' if tensor is None else str(list(tensor.shape))


def _different(saved: dict[str, Any], config: TrainConfig) -> str:
    """Return the settings of the network that differ, in words."""
    return ''.join(
        f'; {name}: {quoted(saved[name])} there, {getattr(config, name)!r} here'
        for name in _NETWORK if name in saved and saved[name] != getattr(config, name))
