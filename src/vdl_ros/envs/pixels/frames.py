"""
Grey frames as universe-starter-agent makes them, from 80 x 80 points by bilinear interpolation.

Its agents see 42 x 42 pixels: the image is shrunk to 80 x 80, then to 42 x 42, so that thin things
do not fall between two pixels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ['MIDDLE', 'SIZE', 'bilinear', 'shrink']

#: Height and width between the two steps, and of the result.
MIDDLE, SIZE = 80, 42


def bilinear(source: int, target: int) -> NDArray[np.float32]:
    """
    Return bilinear interpolation of one axis as a matrix, float32 [target, source].

    Pixel i of the target has its centre at (i + 1/2) source / target - 1/2 of the source.
    """
    centres = (np.arange(target) + 0.5) * source / target - 0.5
    distances = np.abs(centres.clip(0, source - 1)[:, None] - np.arange(source))
    weights: NDArray[np.float32] = np.maximum(1.0 - distances, 0.0).astype(np.float32)
    return weights


def shrink(frames: NDArray[np.float32], rows: NDArray[np.float32]) -> NDArray[np.uint8]:
    """
    Return square frames shrunk by a matrix of :func:`bilinear`.

    Args:
        frames: [..., 80, 80], from 0 to 255.
        rows: [size, 80].

    Returns:
        uint8 [..., size, size].
    """
    # Adding 1/2 and cutting off rounds to the nearest.
    shrunk: NDArray[np.uint8] = (rows @ frames @ rows.T + np.float32(0.5)).astype(np.uint8)
    return shrunk
