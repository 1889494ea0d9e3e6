"""Checkpoints of a training: configuration, state of the learner, progress."""

import io
from pathlib import Path
from typing import Any

import torch

from vdl_ros.common.files import BEST, CHECKPOINT, checkpoint_file
from vdl_ros.common.quoting import quoted
from vdl_ros.common.tensor_file import TensorFileError, load_tensor_file, save_tensor_file
from vdl_ros.rl.policy.distributions import EpsilonGreedy
from vdl_ros.rl.policy.numpy_policy import BoxActions
from vdl_ros.rl.policy.policy import Policy
from vdl_ros.rl.settings import BEFORE, TrainConfig

FORMAT = 2
_PARTS = ('config', 'learner', 'progress')
CheckpointError = TensorFileError


def save_checkpoint(
    path: Path, *, config: dict[str, Any], learner: dict[str, Any], progress: dict[str, Any],
) -> None:
    """Write a checkpoint whole or not at all: after a crash the previous one is still there.

    ``learner`` is :meth:`Learner.state`, ``progress`` of numbers, texts, lists and dicts.
    """
    save_tensor_file(
        path, {'format': FORMAT, 'config': config, 'learner': learner, 'progress': progress})


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Return what :func:`save_checkpoint` wrote; no code in the file is run.

    ``path`` is the file, or the folder of a run. CheckpointError: missing, corrupt, malicious, or
    of another format.
    """
    file = checkpoint_file(path)
    if path.is_dir() and not file.is_file():
        raise CheckpointError(f'{path}: a folder without {BEST} or {CHECKPOINT}: no such file')
    path = file
    found = load_tensor_file(path, 'checkpoint')
    if 'format' not in found or not all(isinstance(found.get(part), dict) for part in _PARTS):
        raise CheckpointError(f'{path}: not a checkpoint of this program')
    # Of a tensor, the comparison would be one too.
    if not isinstance(found['format'], int) or found['format'] != FORMAT:
        raise CheckpointError(f'{path}: format {quoted(found["format"])} is not {FORMAT}')
    found['config'] = {**BEFORE, **found['config']}
    return found


def pack(state: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    torch.save(state, stream)
    return stream.getvalue()


def unpack(data: bytes) -> dict[str, Any]:
    """Return what :func:`pack` was given; no code in ``data`` is run."""
    found: dict[str, Any] = torch.load(io.BytesIO(data), map_location='cpu', weights_only=True)
    return found


# Settings on which the network depends.
_NETWORK = ('algorithm', 'network', 'hidden_size', 'lstm_size', 'last_action_reward',
            'normalize_observations')


def load_initial_weights(path: Path, policy: Policy, config: TrainConfig) -> None:
    """Copy the weights of a checkpoint into ``policy``, with its statistics of observations.

    With ``init_encoder`` only those of the torso. Values of a policy that needs none are left out.
    A CheckpointError names the first difference of another network, and the settings that differ.
    """
    checkpoint = load_checkpoint(path)
    found, wanted = checkpoint['learner'].get('policy'), policy.state_dict()
    if config.init_encoder and not policy.of_images:
        raise CheckpointError(f'init_encoder: true is not allowed with network '
                              f'{policy.network!r}: false, as it is none for images')
    if not isinstance(found, dict) or not all(
            isinstance(each, torch.Tensor) for each in found.values()):
        raise CheckpointError(f'init: {path} holds no policy')
    saved = checkpoint['config']
    if policy.value_head is None and not isinstance(policy.distribution, EpsilonGreedy):
        # The policy of sac has no values, and may be that of another algorithm.
        found = {name: each for name, each in found.items() if not name.startswith('value_')}
    if config.init_encoder:
        found, wanted = ({name: each for name, each in part.items()
                          if name.startswith('policy_torso.')} for part in (found, wanted))
    for name in {**wanted, **found}:
        there, here = (_shape(each.get(name)) for each in (found, wanted))
        if there != here:
            raise CheckpointError(f'init: {path} does not fit: {quoted(name)} is {there} there, '
                                  f'{here} here{_different(saved, config)}')
    for name in () if config.init_encoder else settings_of_actions(policy, config):
        if saved.get(name) != getattr(config, name):
            raise CheckpointError(
                f'init: {path} does not fit: {name} is {quoted(saved.get(name))} there, '
                f'{getattr(config, name)!r} here')
    if not all(bool(torch.isfinite(each).all()) for each in found.values()):
        raise CheckpointError(f'init: {path}: not all weights are finite')
    policy.load_state_dict(found, strict=not config.init_encoder)


def settings_of_actions(policy: Policy, config: TrainConfig) -> list[str]:
    """Return the settings with which the same weights mean other actions."""
    names, distribution = ['action_distribution'], policy.distribution
    if policy.log_std is None or not isinstance(distribution, BoxActions):
        return []
    if not distribution.squashes and (distribution.is_scaled or not config.scale_actions):
        names.append('scale_actions')
    return names


def _shape(tensor: torch.Tensor | None) -> str:
    return 'not' if tensor is None else str(list(tensor.shape))


def _different(saved: dict[str, Any], config: TrainConfig) -> str:
    return ''.join(
        f'; {name}: {quoted(saved[name])} there, {getattr(config, name)!r} here'
        for name in _NETWORK if name in saved and saved[name] != getattr(config, name))
