"""Conversion between NumPy images and ``sensor_msgs/Image`` or ``sensor_msgs/CompressedImage``.

Encodings of one byte per channel are converted here, others by ``cv_bridge`` where it is
installed. A ``uint8[]`` field is filled by one ``array.array``, never by element.
"""

from __future__ import annotations

import array
import copy
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
import numpy as np
from builtin_interfaces.msg import Time
from numpy.typing import ArrayLike, NDArray
from rclpy.node import Node
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from std_msgs.msg import Header

from vdl_ros.camera import encodings
from vdl_ros.camera.camera_config import COMPRESSED
from vdl_ros.camera.encodings import ENCODINGS, channels_of, to_rgb
from vdl_ros.common.plain_yaml import read_yaml
from vdl_ros.common.quoting import quoted, shown
from vdl_ros.common.settings import SettingError
from vdl_ros.ros import qos

#: The camera's frame of the URDF, by REP-103: z into the image, x to its right, y down.
CAMERA_FRAME = 'camera_optical_frame'
#: Both are converted by :func:`from_image`.
AnyImage: TypeAlias = Image | CompressedImage


def subscribe_to_images(
    node: Node, image_transport: str, on_image: Callable[[AnyImage], None],
) -> None:
    """Call ``on_image`` with each image; see ``ImageTransportConfig``."""
    qos.sub(node, 'camera/image_raw/compressed' if image_transport == COMPRESSED
            else 'camera/image_raw', on_image)


class ImageError(ValueError):
    """An image that cannot be converted; the message names its property and what is allowed."""


def to_image(
    pixels: NDArray[np.uint8], stamp: Time, frame_id: str = CAMERA_FRAME, encoding: str = 'rgb8',
) -> Image:
    """Return the message of an image of ``encodings.ENCODINGS``; its bytes are copied once.

    ``pixels`` are uint8 [height, width, channels], or [height, width] for mono8.
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


def to_compressed_image(pixels: NDArray[np.uint8], stamp: Time, quality: int) -> CompressedImage:
    """Return the message of an image, RGB, uint8 [height, width, 3], as JPEG."""
    return CompressedImage(
        header=Header(stamp=stamp, frame_id=CAMERA_FRAME), format='rgb8; jpeg compressed bgr8',
        data=array.array('B', encodings.encode(pixels, quality)))


def from_image(message: Image | CompressedImage) -> NDArray[np.uint8]:
    """Return the image in a message, RGB, uint8 [height, width, 3]; raises ImageError.

    A message of rgb8 without padding is not copied: the result is a read-only view of it.
    """
    try:
        if isinstance(message, CompressedImage):
            return encodings.decode(bytes(message.data))
        height, width = int(message.height), int(message.width)
        encodings.check_size(width, height)
    except encodings.JpegError as error:
        raise ImageError(str(error)) from error
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
    try:
        cv_bridge = importlib.import_module('cv_bridge')
    except ImportError:
        raise ImageError(
            f'image: encoding {quoted(message.encoding)} is not one of {", ".join(ENCODINGS)}; '
            'install cv_bridge to convert others') from None
    try:
        found = cv_bridge.CvBridge().imgmsg_to_cv2(message, desired_encoding='rgb8')
    # The exceptions depend on OpenCV's version; none may end the node.
    except Exception as error:
        raise ImageError(f'image: encoding {quoted(message.encoding)}: '
                         f'{shown(" ".join(str(error).split()), 300)}') from error
    pixels: NDArray[np.uint8] = np.ascontiguousarray(found, np.uint8)
    pixels.flags.writeable = False
    return pixels


_Size = Annotated[int, msgspec.Meta(gt=0, lt=2**16)]


class _Numbers(msgspec.Struct):
    data: list[float]


class _Calibration(msgspec.Struct):
    image_width: _Size
    image_height: _Size
    distortion_model: Literal['plumb_bob', 'rational_polynomial', 'equidistant']
    distortion_coefficients: _Numbers
    camera_matrix: _Numbers
    rectification_matrix: _Numbers
    projection_matrix: _Numbers


# Allowed numbers of coefficients by distortion model.
_COEFFICIENTS = {'plumb_bob': (4, 5), 'rational_polynomial': (8, 12, 14), 'equidistant': (4,)}


def pinhole(matrix: ArrayLike, width: int, height: int) -> CameraInfo:
    """Return the message of a camera without distortion; ``matrix`` is [3, 3], pixels."""
    k = np.asarray(matrix, np.float64)
    p = np.hstack([k, np.zeros((3, 1))])
    return _info(width, height, 'plumb_bob', np.zeros(5), k, np.eye(3), p)


def uncalibrated(width: int, height: int) -> CameraInfo:
    """Return the message of an uncalibrated camera: K is zero, as the message defines."""
    return CameraInfo(width=width, height=height)


def stamped(info: CameraInfo, stamp: Time) -> CameraInfo:
    message = copy.copy(info)
    message.header = Header(stamp=stamp, frame_id=CAMERA_FRAME)
    return message


def load_calibration(path: str) -> CameraInfo:
    """Return the message of a calibration file, YAML as ``camera_calibration`` writes it."""
    try:
        return _calibration(msgspec.convert(read_yaml(Path(path)), _Calibration))
    except ValueError as error:
        raise SettingError(
            f'calibration: {path}: {shown(" ".join(str(error).split()), 300)}') from None


def _calibration(given: _Calibration) -> CameraInfo:
    k = _array(given, 'camera_matrix', 9).reshape(3, 3)
    r = _array(given, 'rectification_matrix', 9).reshape(3, 3)
    p = _array(given, 'projection_matrix', 12).reshape(3, 4)
    for name, matrix in (('camera_matrix', k), ('projection_matrix', p)):
        if matrix[0, 0] <= 0.0 or matrix[1, 1] <= 0.0:
            raise ValueError(f'{name}: focal lengths {matrix[0, 0]:g}, {matrix[1, 1]:g} are '
                             'not allowed: more than 0')
        if matrix[1, 0] or list(matrix[2, :3]) != [0.0, 0.0, 1.0]:
            raise ValueError(f'{name}: not of the form fx s cx, 0 fy cy, 0 0 1')
    if np.abs(r @ r.T - np.eye(3)).max() > 1e-3 or np.linalg.det(r) < 0.0:
        raise ValueError('rectification_matrix: not a rotation')
    model = given.distortion_model
    d = _array(given, 'distortion_coefficients', *_COEFFICIENTS[model])
    return _info(given.image_width, given.image_height, model, d, k, r, p)


def _array(given: _Calibration, name: str, *counts: int) -> NDArray[np.float64]:
    data = np.array(getattr(given, name).data, np.float64)
    if len(data) not in counts or not np.isfinite(data).all():
        raise ValueError(f'{name}: {" or ".join(map(str, counts))} finite numbers are needed')
    return data


def _info(
    width: int, height: int, model: str, d: NDArray[np.float64], k: NDArray[np.float64],
    r: NDArray[np.float64], p: NDArray[np.float64],
) -> CameraInfo:
    return CameraInfo(width=width, height=height, distortion_model=model, d=d.tolist(),
                      k=k.ravel(), r=r.ravel(), p=p.ravel())
