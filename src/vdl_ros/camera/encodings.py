"""Encodings of images in ROS messages and bags: names, channels, JPEG."""

from __future__ import annotations

import io
import warnings

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

#: Number of channels by encoding, and which of them are red, green and blue; a byte each.
ENCODINGS: dict[str, tuple[int, tuple[int, int, int]]] = {
    'rgb8': (3, (0, 1, 2)),
    'bgr8': (3, (2, 1, 0)),
    'rgba8': (4, (0, 1, 2)),
    'bgra8': (4, (2, 1, 0)),
    'mono8': (1, (0, 0, 0)),
}


def channels_of(encoding: str) -> int:
    return ENCODINGS[encoding][0]


def to_rgb(rows: NDArray[np.uint8], width: int, encoding: str) -> NDArray[np.uint8]:
    """Return an image as RGB, uint8 [height, width, 3], contiguous.

    An image of rgb8 without padding is not copied: the result is a view of ``rows``, uint8
    [height, step], which may be padded at their ends.
    """
    channels, order = ENCODINGS[encoding]
    pixels = rows[:, :width * channels].reshape(len(rows), width, channels)
    return np.ascontiguousarray(pixels if encoding == 'rgb8' else pixels[:, :, list(order)])


_FORMATS = ('JPEG', 'PNG')
# The largest image, pixels, and its longest side: a few bytes can claim to be 65,535 x 65,535, and
# neither JPEG nor browsers hold longer ones.
_MAX_PIXELS, _MAX_SIDE = 4096 * 4096, 16_384


class JpegError(ValueError):
    """Bytes that are no image, or one that is too large."""


def check_size(width: int, height: int) -> None:
    """Raise JpegError for the size of an image that is too large to be shown or encoded."""
    if max(width, height) > _MAX_SIDE or width * height > _MAX_PIXELS:
        raise JpegError(f'image: {width} x {height} is not allowed: at most {_MAX_PIXELS} pixels, '
                        f'{_MAX_SIDE} a side')


def encode(pixels: NDArray[np.uint8], quality: int) -> bytes:
    """Return an image, RGB, uint8 [height, width, 3], as JPEG of a quality of 1 to 100."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, 'JPEG', quality=quality)
    return file.getvalue()


def decode(data: bytes) -> NDArray[np.uint8]:
    """Return an image, RGB, uint8 [height, width, 3]; JpegError: damaged, or too large."""
    try:
        with warnings.catch_warnings():
            # Of large images: the size is checked below.
            warnings.simplefilter('ignore', Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data), formats=_FORMATS)
    # What Pillow raises depends on the format and on where the damage is.
    except Exception as error:
        raise JpegError(f'compressed image: neither {" nor ".join(_FORMATS)}') from error
    check_size(image.width, image.height)
    try:
        # As OpenCV does, with which ROS decodes such messages.
        return np.asarray(ImageOps.exif_transpose(image).convert('RGB'), np.uint8)
    except Exception as error:
        raise JpegError('compressed image: damaged') from error
