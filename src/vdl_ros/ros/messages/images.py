"""
Conversion between NumPy images and ``sensor_msgs/Image`` or ``sensor_msgs/CompressedImage``.

Encodings of one byte per channel are converted here, others by ``cv_bridge`` where it is
installed. A ``uint8[]`` field is filled by one ``array.array``, never by element.
"""

from __future__ import annotations

import array
import importlib

import numpy as np
from builtin_interfaces.msg import Time
from numpy.typing import NDArray
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Header

from vdl_ros.camera import jpeg
from vdl_ros.camera.image_encodings import ENCODINGS, channels_of, to_rgb
from vdl_ros.common.quoting import quoted, shown

__all__ = ['CAMERA_FRAME', 'ImageError', 'from_image', 'to_compressed_image', 'to_image']

#: The camera's frame of the URDF, by REP-103: z into the image, x to its right, y down.
CAMERA_FRAME = 'camera_optical_frame'


class ImageError(ValueError):
    """An image that cannot be converted; the message names its property and what is allowed."""


def to_image(
    pixels: NDArray[np.uint8], stamp: Time, frame_id: str = CAMERA_FRAME, encoding: str = 'rgb8',
) -> Image:
    """
    Return the message of an image; its bytes are copied once.

    Args:
        pixels: uint8 [height, width, channels], or [height, width] for mono8.
        stamp: time of the exposure.
        frame_id: the camera's optical frame.
        encoding: one of ``image_encodings.ENCODINGS``.

    Raises:
        ImageError: another encoding, or pixels of another type or shape.
    """
    if encoding not in ENCODINGS:
        raise ImageError(
            f'image: encoding {quoted(encoding)} is not one of {", ".join(ENCODINGS)}')
    channels = channels_of(encoding)
    shape = pixels.shape if pixels.ndim == 3 else (*pixels.shape, 1)
    if pixels.dtype != np.uint8 or len(shape) != 3 or shape[2] != channels or not pixels.size:
        raise ImageError(f'image: {pixels.dtype.name} {pixels.shape} is not allowed for '
                         f'{encoding}: uint8 (height, width, {channels})')
    data = array.array('B')
    data.frombytes(np.ascontiguousarray(pixels).reshape(-1).data)
    return Image(header=Header(stamp=stamp, frame_id=frame_id), height=shape[0], width=shape[1],
                 encoding=encoding, is_bigendian=0, step=shape[1] * channels, data=data)


def to_compressed_image(
    pixels: NDArray[np.uint8], stamp: Time, quality: int, frame_id: str = CAMERA_FRAME,
) -> CompressedImage:
    """
    Return the message of an image as JPEG; its ``format`` is that of image_transport.

    Args:
        pixels: RGB, uint8 [height, width, 3].
        stamp: time of the exposure.
        quality: of the JPEG, 1 to 100.
        frame_id: the camera's optical frame.
    """
    return CompressedImage(
        header=Header(stamp=stamp, frame_id=frame_id), format='rgb8; jpeg compressed bgr8',
        data=array.array('B', jpeg.encode(pixels, quality)))


def from_image(message: Image | CompressedImage) -> NDArray[np.uint8]:
    """
    Return the image in a message, RGB, uint8 [height, width, 3].

    A message of rgb8 without padding is not copied: the result is a read-only view of it.

    Raises:
        ImageError: no pixels, fewer bytes in a row than its pixels need, a wrong number of bytes,
            an encoding that cannot be converted, or a compressed image that is damaged.
    """
    if isinstance(message, CompressedImage):
        try:
            return jpeg.decode(bytes(message.data))
        except jpeg.JpegError as error:
            raise ImageError(str(error)) from error
    height, width = int(message.height), int(message.width)
    if not height or not width:
        raise ImageError(f'image: {width} x {height} has no pixels')
    step, size = int(message.step), len(message.data)
    if size != step * height:
        raise ImageError(
            f'image: {size} bytes are not the {step * height} of {height} rows of {step}')
    if message.encoding not in ENCODINGS:
        return _by_cv_bridge(message)
    channels = channels_of(message.encoding)
    if step < width * channels:
        raise ImageError(f'image: {step} bytes a row are fewer than the {width * channels} of '
                         f'{width} pixels of {message.encoding}')
    rows = np.frombuffer(message.data, np.uint8).reshape(height, step)
    pixels = to_rgb(rows, width, message.encoding)
    pixels.flags.writeable = False
    return pixels


def _by_cv_bridge(message: Image) -> NDArray[np.uint8]:
    """Return the image of an encoding that needs more than reordering."""
    try:
        cv_bridge = importlib.import_module('cv_bridge')
    except ImportError:
        raise ImageError(
            f'image: encoding {quoted(message.encoding)} is not one of {", ".join(ENCODINGS)}; '
            'install cv_bridge to convert others') from None
    try:
        found = cv_bridge.CvBridge().imgmsg_to_cv2(message, desired_encoding='rgb8')
    # The exceptions depend on OpenCV's version; none may end the node.
    except (cv_bridge.CvBridgeError, RuntimeError, TypeError, ValueError, KeyError) as error:
        raise ImageError(f'image: encoding {quoted(message.encoding)}: '
                         f'{shown(" ".join(str(error).split()), 300)}') from error
    pixels = np.ascontiguousarray(found, np.uint8)
    if pixels.shape != (message.height, message.width, 3):
        raise ImageError(f'image: encoding {quoted(message.encoding)}: cv_bridge returned shape '
                         f'{pixels.shape}')
    pixels.flags.writeable = False
    return pixels
