"""
Pictures on topics: numpy to ``sensor_msgs/Image`` and back.

Encodings with a byte for each channel are read here; for others ``cv_bridge`` is asked, where the
distribution has it. A ``uint8[]`` field is filled by one ``array.array``, never by element.
"""

from __future__ import annotations

import array
import importlib

import numpy as np
from builtin_interfaces.msg import Time
from numpy.typing import NDArray
from sensor_msgs.msg import Image
from std_msgs.msg import Header

__all__ = ['CAMERA_FRAME', 'ENCODINGS', 'ImageError', 'from_image', 'to_image']

#: The camera's frame by REP-103: z into the picture, x to its right, y down. As in the URDF.
CAMERA_FRAME = 'camera_optical_frame'

#: Channels by encoding, and which of them are red, green and blue.
ENCODINGS: dict[str, tuple[int, tuple[int, int, int]]] = {
    'rgb8': (3, (0, 1, 2)),
    'bgr8': (3, (2, 1, 0)),
    'rgba8': (4, (0, 1, 2)),
    'bgra8': (4, (2, 1, 0)),
    'mono8': (1, (0, 0, 0)),
}


class ImageError(ValueError):
    """A picture that cannot be read or sent; the message says what it is and should be."""


def to_image(
    pixels: NDArray[np.uint8], stamp: Time, frame_id: str = CAMERA_FRAME, encoding: str = 'rgb8',
) -> Image:
    """
    Return the message of a picture; its bytes are copied once.

    Args:
        pixels: uint8 [height, width, channels], or [height, width] of mono8.
        stamp: when it was taken.
        frame_id: the camera's optical frame.
        encoding: what the channels are, one of :data:`ENCODINGS`.

    Raises:
        ImageError: an encoding that is none of them, or pixels of another type or shape.
    """
    if encoding not in ENCODINGS:
        raise ImageError(f'image: encoding {encoding!r} is not one of {", ".join(ENCODINGS)}')
    channels = ENCODINGS[encoding][0]
    shape = pixels.shape if pixels.ndim == 3 else (*pixels.shape, 1)
    if pixels.dtype != np.uint8 or len(shape) != 3 or shape[2] != channels or not pixels.size:
        raise ImageError(f'image: {pixels.dtype.name} {pixels.shape} is not allowed for '
                         f'{encoding}: uint8 (height, width, {channels})')
    data = array.array('B')
    data.frombytes(np.ascontiguousarray(pixels).reshape(-1).data)
    return Image(header=Header(stamp=stamp, frame_id=frame_id), height=shape[0], width=shape[1],
                 encoding=encoding, is_bigendian=0, step=shape[1] * channels, data=data)


def from_image(message: Image) -> NDArray[np.uint8]:
    """
    Return the picture of a message, RGB, uint8 [height, width, 3].

    A message of rgb8 without padding is not copied: what is returned is a read-only view of it.

    Raises:
        ImageError: no pixels, fewer bytes in a row than its pixels need, a wrong number of bytes,
            or an encoding that cannot be read here.
    """
    height, width = int(message.height), int(message.width)
    if not height or not width:
        raise ImageError(f'image: {width} x {height} has no pixels')
    step, size = int(message.step), len(message.data)
    if size != step * height:
        raise ImageError(
            f'image: {size} bytes are not the {step * height} of {height} rows of {step}')
    if message.encoding not in ENCODINGS:
        return _by_cv_bridge(message)
    channels, order = ENCODINGS[message.encoding]
    if step < width * channels:
        raise ImageError(f'image: {step} bytes a row are fewer than the {width * channels} of '
                         f'{width} pixels of {message.encoding}')
    rows = np.frombuffer(message.data, np.uint8).reshape(height, step)
    pixels = rows[:, :width * channels].reshape(height, width, channels)
    if order != (0, 1, 2) or channels != 3:
        pixels = pixels[:, :, list(order)]
    pixels = np.ascontiguousarray(pixels)
    pixels.flags.writeable = False
    return pixels


def _by_cv_bridge(message: Image) -> NDArray[np.uint8]:
    """Return the picture of an encoding that needs more than reordering."""
    try:
        cv_bridge = importlib.import_module('cv_bridge')
    except ImportError:
        raise ImageError(
            f'image: encoding {message.encoding!r} is not one of {", ".join(ENCODINGS)}; '
            'with cv_bridge installed it could be read') from None
    try:
        found = cv_bridge.CvBridge().imgmsg_to_cv2(message, desired_encoding='rgb8')
    # What it raises depends on OpenCV's version; none of it may end the node.
    except (cv_bridge.CvBridgeError, RuntimeError, TypeError, ValueError, KeyError) as error:
        raise ImageError(f'image: encoding {message.encoding!r}: '
                         f'{" ".join(str(error).split())}') from error
    pixels = np.ascontiguousarray(found, np.uint8)
    if pixels.shape != (message.height, message.width, 3):
        raise ImageError(f'image: encoding {message.encoding!r}: cv_bridge made '
                         f'{pixels.shape} of it')
    pixels.flags.writeable = False
    return pixels
