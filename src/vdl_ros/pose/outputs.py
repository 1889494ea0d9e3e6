"""The six estimated values: order, units, encoding as network outputs, and errors."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    'ENCODED', 'JOINT_OUTPUTS', 'MIRROR', 'OUTPUTS', 'decode', 'encode', 'errors', 'wrap',
]

#: Order of every array of six: m for the first, rad for the rest.
OUTPUTS = (
    'camera_distance', 'camera_elevation', 'camera_azimuth', 'base', 'shoulder', 'elbow')
#: Which of them are joints of the arm.
JOINT_OUTPUTS = slice(3, 6)
#: Factors of the six when a picture is flipped: azimuth and base change their sign.
MIRROR = torch.tensor([1.0, 1.0, -1.0, -1.0, 1.0, 1.0])
#: Number of network outputs: a distance, and a sine and a cosine for each angle.
ENCODED = 1 + 2 * (len(OUTPUTS) - 1)

# Distances are encoded as (distance - middle) / half the captured range.
_MIDDLE, _HALF = 0.775, 0.225


def encode(targets: Tensor) -> Tensor:
    """
    Return distance, then sines and cosines in turn: 359 and 1 degree are neighbours.

    Args:
        targets: float [..., 6] in the order of :data:`OUTPUTS`.
    """
    angles = targets[..., 1:]
    pairs = torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)
    return torch.cat([(targets[..., :1] - _MIDDLE) / _HALF, pairs], -1)


def decode(encoded: Tensor) -> Tensor:
    """
    Return the six values, float [..., 6], angles from -pi to pi.

    Args:
        encoded: float [..., 11], as of :func:`encode`; pairs may have any length.
    """
    pairs = encoded[..., 1:].reshape(*encoded.shape[:-1], -1, 2)
    angles = torch.atan2(pairs[..., 0], pairs[..., 1])
    return torch.cat([encoded[..., :1] * _HALF + _MIDDLE, angles], -1)


def wrap(angle: Tensor) -> Tensor:
    """Return the same angle from -pi to pi, rad."""
    return torch.remainder(angle + torch.pi, 2.0 * torch.pi) - torch.pi


def errors(estimates: Tensor, targets: Tensor) -> Tensor:
    """Return estimate minus truth, float [..., 6], m and rad; angles the short way round."""
    difference = estimates - targets
    return torch.cat([difference[..., :1], wrap(difference[..., 1:])], -1)
