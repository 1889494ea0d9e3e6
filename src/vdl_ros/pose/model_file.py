"""Model files of the pose estimator: weights in 16 bit, calibration, and origin."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vdl_ros.common.quoting import quoted
from vdl_ros.common.resources import find_resource
from vdl_ros.common.tensor_file import TensorFileError, load_tensor_file, save_tensor_file
from vdl_ros.pose.networks import MODELS, make_model

__all__ = ['ModelError', 'load_model', 'model_path', 'save_model']

FORMAT = 'vdl_ros pose 1'
DEFAULT = 'models/pose_resnet.pt'
ModelError = TensorFileError


def model_path(given: str = '') -> Path:
    """
    Return the path of a model file or run folder; of the model in this package by default.

    Raises:
        ModelError: the model in this package is missing.
    """
    if given:
        return Path(given)
    try:
        return find_resource(DEFAULT)
    except FileNotFoundError as error:
        raise ModelError(str(error)) from None


def save_model(
    path: Path, name: str, model: Mapping[str, Tensor], calibration: Mapping[str, Any],
    origin: Mapping[str, Any],
) -> None:
    """
    Write a model file.

    Args:
        path: the file; it is replaced whole or not at all.
        name: the architecture.
        model: its state, float32.
        calibration: ``scale``, six factors of the standard deviations; ``threshold``, rad, above
            which the joints are not to be trusted.
        origin: plain values: how it was trained.

    Raises:
        OSError: the disk is full or the folder cannot be written.
    """
    state = {key: value.to(torch.float16) for key, value in model.items()}
    save_tensor_file(path, {'format': FORMAT, 'model': name, 'state': state,
                            'calibration': dict(calibration), 'origin': dict(origin)})


def load_model(path: Path, expected: str = '') -> tuple[nn.Module, dict[str, Any]]:
    """
    Return the network in float32, in evaluation mode, and the content of the file.

    Args:
        path: the file, or a run's folder with ``model.pt`` in it.
        expected: the architecture that it must have; any by default.

    Raises:
        ModelError: missing, corrupt, malicious, or of another architecture.
    """
    if path.is_dir():
        path = path / 'model.pt'
    found = load_tensor_file(path, 'pose model')
    if found.get('format') != FORMAT:
        raise ModelError(f'{path}: not a pose model of this program')
    name = found.get('model')
    if not isinstance(name, str) or name not in MODELS:
        raise ModelError(
            f'{path}: architecture {quoted(name)} is not one of {", ".join(MODELS)}')
    if expected and name != expected:
        raise ModelError(f'{path}: the architecture is {name}, not {expected}')
    model = make_model(name)
    try:
        model.load_state_dict({key: value.float() for key, value in found['state'].items()})
        scale = [float(each) for each in found['calibration']['scale']]
        if len(scale) != 6 or not float(found['calibration']['threshold']) > 0.0:
            raise ValueError('calibration')
    # What torch raises at tensors of other shapes or types is of any kind.
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = ' '.join(lines[:2])[:160]
        raise ModelError(f'{path}: not the weights of this {name}: {reason}') from None
    return model.eval(), found
