"""Estimate camera and joint positions from pictures, with standard deviations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vdl_ros.pose.augmentation import to_float
from vdl_ros.pose.model_file import load_model
from vdl_ros.pose.networks import SIZE, Raw
from vdl_ros.pose.outputs import JOINT_OUTPUTS, MIRROR, OUTPUTS, decode, errors, wrap

__all__ = ['Estimate', 'PoseEstimator', 'average_flipped', 'decode_raw']

# A picture whose brightness hardly varies, or most of which is black or white, shows no arm,
# whatever the network returns.
_LEAST_SPREAD, _MOST_CLIPPED = 0.03, 0.8


class Estimate(NamedTuple):
    """
    Estimates of some pictures.

    ``values`` and ``std`` are float32 [pictures, 6] in the order of ``outputs.OUTPUTS``, m and
    rad; ``std`` is calibrated: two thirds of the errors on validation frames were smaller.
    ``confident`` is bool [pictures]: the joints are certain enough to act upon. ``readable`` is
    bool [pictures]: the picture is not blank.
    """

    values: NDArray[np.float32]
    std: NDArray[np.float32]
    confident: NDArray[np.bool_]
    readable: NDArray[np.bool_]


class PoseEstimator:
    """
    A network with its calibration.

    Attributes:
        name: the architecture.
        origin: how the weights were trained: plain values by name.
        threshold: rad; above it the least certain joint makes an estimate not confident.
    """

    def __init__(
        self, model: nn.Module, name: str, calibration: Mapping[str, Any],
        origin: Mapping[str, Any],
    ):
        """Wrap a network; ``calibration`` is that of ``model_file.save_model``."""
        self.name, self.origin = name, dict(origin)
        self.threshold = float(calibration['threshold'])
        self._scale = torch.tensor(calibration['scale'], dtype=torch.float32)
        self._model = model.eval()

    @classmethod
    def load(cls, path: Path, expected: str = '') -> PoseEstimator:
        """
        Return the estimator of a model file or a run's folder.

        Raises:
            ModelError: it cannot be used, or is of another architecture than ``expected``.
        """
        model, found = load_model(path, expected)
        return cls(model, found['model'], found['calibration'], found.get('origin', {}))

    def estimate(self, pictures: NDArray[np.uint8] | Tensor) -> Estimate:
        """
        Return the estimates of some pictures.

        With flip test-time augmentation: each picture and its mirror image are estimated and
        averaged; where the two disagree, the standard deviation grows.

        Args:
            pictures: RGB, uint8 [pictures, 128, 128, 3].

        Raises:
            ValueError: another shape or type.
        """
        given = torch.as_tensor(pictures)
        if given.shape[1:] != (SIZE, SIZE, 3) or given.dtype != torch.uint8:
            raise ValueError(f'pictures: {str(given.dtype).removeprefix("torch.")} '
                             f'{tuple(given.shape)} is not allowed: uint8 (n, {SIZE}, {SIZE}, 3)')
        with torch.inference_mode():
            values, std = self.outputs(to_float(given))
            readable = _readable(given)
        confident = readable & (std[:, JOINT_OUTPUTS].amax(1) <= self.threshold)
        return Estimate(values.numpy(), std.numpy(), confident.numpy(), readable.numpy())

    def outputs(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """
        Return values and standard deviations as of :class:`Estimate`; differentiable.

        Args:
            pictures: float [pictures, 3, 128, 128] from 0 to 1.
        """
        values, std = average_flipped(self._model(torch.cat([pictures, pictures.flip(3)])))
        return values, std * self._scale


def decode_raw(raw: Raw) -> tuple[Tensor, Tensor]:
    """Return values and standard deviations before calibration, each float [batch, 6]; m, rad."""
    std = raw.log_std.exp()
    return decode(raw.encoded), std * torch.tensor([0.225, 1.0, 1.0, 1.0, 1.0, 1.0])


def average_flipped(raw: Raw) -> tuple[Tensor, Tensor]:
    """
    Return the average over pictures and their mirror images, as :func:`decode_raw` does.

    Args:
        raw: of a batch whose second half is the first one flipped.
    """
    values, std = decode_raw(raw)
    values, std = values.reshape(2, -1, len(OUTPUTS)), std.reshape(2, -1, len(OUTPUTS))
    values = torch.stack([values[0], values[1] * MIRROR])
    weight = std**-2 / (std**-2).sum(0)
    # From the first towards the second, the short way round.
    both = values[0] + weight[1] * errors(values[1], values[0])
    both = torch.cat([both[:, :1], wrap(both[:, 1:])], 1)
    variance = (weight * (std**2 + errors(values, both.expand_as(values))**2)).sum(0)
    return both, variance.sqrt()


def _readable(pictures: Tensor) -> Tensor:
    """Return which pictures are not blank, bool [pictures]."""
    flat = pictures.flatten(1)
    clipped = ((flat <= 2) | (flat >= 253)).float().mean(1)
    return (flat.float().std(1) / 255.0 >= _LEAST_SPREAD) & (clipped <= _MOST_CLIPPED)
