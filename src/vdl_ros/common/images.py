"""Images in messages of ROS and bags: their encodings, JPEG and PNG, and what is too large."""

import io
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from vdl_ros.common.quoting import quoted

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
    if encoding == 'rgb8':
        return np.ascontiguousarray(pixels)
    found = np.empty((len(rows), width, 3), np.uint8)
    # Ten times as fast as an index of all three.
    for channel, source in enumerate(order):
        found[..., channel] = pixels[..., source]
    return found


_FORMATS = ('JPEG', 'PNG')
# The largest image, pixels, and its longest side: a few bytes can claim to be 65,535 x 65,535, and
# neither JPEG nor browsers hold longer ones.
_MAX_PIXELS, _MAX_SIDE = 4096 * 4096, 16_384


class ImageError(ValueError):
    """An image that cannot be converted; the message names its property and what is allowed."""


class EncodingError(ImageError):
    """An image of an encoding that is not one of :data:`ENCODINGS`."""


def check_size(width: int, height: int) -> None:
    """Raise ImageError for the size of an image that is too large to be shown or encoded."""
    if max(width, height) > _MAX_SIDE or width * height > _MAX_PIXELS:
        raise ImageError(f'image: {width} x {height} is not allowed: at most {_MAX_PIXELS} '
                         f'pixels, {_MAX_SIDE} a side')


def encode(pixels: NDArray[np.uint8], quality: int) -> bytes:
    """Return an image, RGB, uint8 [height, width, 3], as JPEG of a quality of 1 to 100."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, 'JPEG', quality=quality)
    return file.getvalue()


def decode(data: bytes) -> NDArray[np.uint8]:
    """Return an image, RGB, uint8 [height, width, 3]; ImageError: damaged, or too large."""
    try:
        with warnings.catch_warnings():
            # Of large images: the size is checked below.
            warnings.simplefilter('ignore', Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data), formats=_FORMATS)
    # What Pillow raises depends on the format and on where the damage is.
    except Exception as error:
        raise ImageError(f'compressed image: neither {" nor ".join(_FORMATS)}') from error
    check_size(image.width, image.height)
    try:
        # As OpenCV does, with which ROS decodes such messages.
        return np.asarray(ImageOps.exif_transpose(image).convert('RGB'), np.uint8)
    except Exception as error:
        raise ImageError('compressed image: damaged') from error


def pixels_of(message: Any) -> NDArray[np.uint8]:
    """Return the image in a ``sensor_msgs`` Image or CompressedImage, RGB, uint8 [H, W, 3].

    The message may be one of ROS, or of a bag. One of rgb8 without padding is not copied: the
    result is a read-only view of it. Raises ImageError.
    """
    if hasattr(message, 'format'):
        return decode(bytes(message.data))
    height, width = int(message.height), int(message.width)
    check_size(width, height)
    if not height or not width:
        raise ImageError(f'image: {width} x {height} has no pixels')
    step, size = int(message.step), len(message.data)
    if size != step * height:
        raise ImageError(
            f'image: {size} bytes are not the {step * height} of {height} rows of {step}')
    if message.encoding not in ENCODINGS:
        raise EncodingError(f'image: encoding {quoted(message.encoding)} is not one of '
                            f'{", ".join(ENCODINGS)}')
    channels = channels_of(message.encoding)
    if step < width * channels:
        raise ImageError(f'image: {step} bytes a row are fewer than the {width * channels} of '
                         f'{width} pixels of {message.encoding}')
    rows = np.frombuffer(message.data, np.uint8).reshape(height, step)
    pixels = to_rgb(rows, width, message.encoding)
    pixels.flags.writeable = False
    return pixels
