"""Crop and scale a camera's picture to the square input of the networks."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from vdl_ros.pose.networks import SIZE

__all__ = ['SMALLEST', 'crop_square', 'middle_square', 'scale_square']

#: Smallest height and width of a picture, pixels.
SMALLEST = SIZE // 2


def crop_square(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """
    Return the middle of a picture, uint8 [1, 128, 128, 3].

    The networks were trained on square pictures with a vertical field of view of about 0.75 rad,
    so the sides of a wider picture are cut off.

    Args:
        picture: RGB, uint8 [height, width, 3].

    Raises:
        ValueError: it is smaller than 64 x 64, or higher than wide.
    """
    middle = middle_square(picture)
    if len(middle) == SIZE:
        return np.ascontiguousarray(middle)[None]
    pixels = torch.from_numpy(np.ascontiguousarray(middle)).permute(2, 0, 1)[None].float()
    found: NDArray[np.uint8] = scale_square(pixels).round().clamp(0, 255).byte().permute(
        0, 2, 3, 1).numpy()
    return found


def middle_square(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """
    Return a view of the part that the networks see, uint8 [height, height, 3].

    Args:
        picture: RGB, uint8 [height, width, 3].

    Raises:
        ValueError: as of :func:`crop_square`.
    """
    height, width = picture.shape[:2]
    if min(height, width) < SMALLEST:
        raise ValueError(f'picture: {width} x {height} is not allowed: '
                         f'at least {SMALLEST} x {SMALLEST}')
    if height > width:
        raise ValueError(f'picture: {width} x {height} is not allowed: higher than wide')
    left = (width - height) // 2
    return picture[:, left:left + height]


def scale_square(pictures: Tensor) -> Tensor:
    """Return pictures of the networks' size, float [batch, 3, 128, 128]; differentiable."""
    if pictures.shape[-1] == SIZE:
        return pictures
    return functional.interpolate(pictures, (SIZE, SIZE), mode='bilinear', antialias=True)
