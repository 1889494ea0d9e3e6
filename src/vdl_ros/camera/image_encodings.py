"""Image encodings of ``sensor_msgs/Image`` and their conversion to RGB; no ROS."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ['ENCODINGS', 'channels_of', 'to_rgb']

#: Number of channels by encoding, and which of them are red, green and blue; a byte each.
ENCODINGS: dict[str, tuple[int, tuple[int, int, int]]] = {
    'rgb8': (3, (0, 1, 2)),
    'bgr8': (3, (2, 1, 0)),
    'rgba8': (4, (0, 1, 2)),
    'bgra8': (4, (2, 1, 0)),
    'mono8': (1, (0, 0, 0)),
}


def channels_of(encoding: str) -> int:
    """
    Return the number of channels.

    Raises:
        KeyError: not one of :data:`ENCODINGS`.
    """
    return ENCODINGS[encoding][0]


def to_rgb(rows: NDArray[np.uint8], width: int, encoding: str) -> NDArray[np.uint8]:
    """
    Return an image as RGB, uint8 [height, width, 3], contiguous.

    An image of rgb8 without padding is not copied: the result is a view of ``rows``.

    Args:
        rows: uint8 [height, step]; a row may be padded at its end.
        width: of the image, pixels; ``step`` is at least ``width`` times the channels.
        encoding: one of :data:`ENCODINGS`.

    Raises:
        KeyError: another encoding.
    """
    channels, order = ENCODINGS[encoding]
    pixels = rows[:, :width * channels].reshape(len(rows), width, channels)
    return np.ascontiguousarray(pixels if encoding == 'rgb8' else pixels[:, :, list(order)])
