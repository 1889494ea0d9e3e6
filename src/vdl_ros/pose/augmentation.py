"""Augmentation of pictures in training: flips, brightness, contrast, colour, blur, noise."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from vdl_ros.pose.keypoints import MIRRORED
from vdl_ros.pose.outputs import MIRROR

__all__ = ['augment', 'flip', 'to_float']

# Shares of a batch.
_BLURRED, _NOISY, _ERASED, _EMPTY = 0.2, 0.4, 0.05, 0.01


def to_float(pictures: Tensor) -> Tensor:
    """Return float [batch, 3, height, width] from 0 to 1 for uint8 [batch, height, width, 3]."""
    return pictures.permute(0, 3, 1, 2).to(torch.float32) / 255.0


def flip(
    pictures: Tensor, targets: Tensor, points: Tensor, chosen: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """
    Return a batch in which the chosen frames are flipped.

    Args:
        pictures: uint8 [batch, height, width, 3].
        targets: float [batch, 6].
        points: float [batch, points, 3].
        chosen: bool [batch].
    """
    pictures, targets, points = pictures.clone(), targets.clone(), points.clone()
    pictures[chosen] = pictures[chosen].flip(2)
    targets[chosen] *= MIRROR
    points[chosen] = points[chosen][:, list(MIRRORED)] * torch.tensor([-1.0, 1.0, 1.0])
    return pictures, targets, points


def augment(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """
    Return pictures with other brightness, contrast and colour, some blurred, noisy or part hidden.

    One in a hundred is blank: black, white or noise, for which a network must learn a large
    standard deviation.

    Args:
        pictures: float [batch, 3, height, width] from 0 to 1.
        generator: source of all random numbers.
    """
    count, _, height, width = pictures.shape

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return torch.empty(shape).uniform_(low, high, generator=generator)

    def share(part: float) -> Tensor:
        return torch.rand(count, generator=generator) < part

    blurred = share(_BLURRED)
    if blurred.any():
        # From a little to about a pixel: a lens out of focus.
        weight = uniform(0.0, 1.0, int(blurred.sum()), 1, 1, 1)
        soft = functional.avg_pool2d(pictures[blurred], 3, 1, 1, count_include_pad=False)
        pictures[blurred] = torch.lerp(pictures[blurred], soft, weight)
    middle = pictures.mean((2, 3), keepdim=True)
    contrast = uniform(0.75, 1.3, count, 1, 1, 1)
    color = uniform(0.88, 1.12, count, 3, 1, 1)
    offset = uniform(-0.08, 0.08, count, 1, 1, 1)
    pictures = (pictures * (contrast * color)).add_(middle * (1.0 - contrast) + offset)
    noisy = share(_NOISY)
    if noisy.any():
        strength = uniform(0.0, 0.04, int(noisy.sum()), 1, 1, 1)
        noise = torch.randn(pictures[noisy].shape, generator=generator)
        pictures[noisy] += noise * strength
    for row in share(_ERASED).nonzero().flatten().tolist():
        size = torch.randint(6, 25, (2,), generator=generator).tolist()
        top = int(torch.randint(0, height - size[0], (1,), generator=generator))
        left = int(torch.randint(0, width - size[1], (1,), generator=generator))
        pictures[row, :, top:top + size[0], left:left + size[1]] = uniform(0.0, 1.0, 3, 1, 1)
    for row in share(_EMPTY).nonzero().flatten().tolist():
        kind = int(torch.randint(0, 4, (1,), generator=generator))
        if kind == 3:  # overexposed or underexposed
            pictures[row] = pictures[row] * 20.0 - uniform(-10.0, 25.0, 1, 1, 1)
        else:
            pictures[row] = uniform(0.0, 1.0, 3, 1, 1) if kind == 2 else float(kind)
            pictures[row] += uniform(0.0, 0.1, 1, 1, 1) * torch.randn(
                pictures[row].shape, generator=generator)
    return pictures.clamp_(0.0, 1.0)
