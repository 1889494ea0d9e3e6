"""Conversion between NumPy images and ``sensor_msgs/Image`` or ``sensor_msgs/CompressedImage``.

Encodings of one byte per channel are converted here, others by ``cv_bridge`` where it is
installed. A ``uint8[]`` field is filled by one ``array.array``, never by element.
"""

import array
import copy
import importlib
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from builtin_interfaces.msg import Time
from numpy.typing import ArrayLike, NDArray
from rclpy.node import Node
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from std_msgs.msg import Header

from vdl_ros.camera.camera_config import COMPRESSED
from vdl_ros.common import images
from vdl_ros.common.images import ImageError
from vdl_ros.common.quoting import quoted, shown
from vdl_ros.ros import qos

#: The camera's frame of the URDF, by REP-103: z into the image, x to its right, y down.
CAMERA_FRAME = 'camera_optical_frame'
_JPEG_QUALITY = 95
#: Both are converted by :func:`from_image`.
AnyImage: TypeAlias = Image | CompressedImage


def subscribe_to_images(
    node: Node, image_transport: str, on_image: Callable[[AnyImage], None],
) -> None:
    """Call ``on_image`` with each image; see ``ImageTransportConfig``."""
    qos.sub(node, 'camera/image_raw/compressed' if image_transport == COMPRESSED
            else 'camera/image_raw', on_image)


def to_image(pixels: NDArray[np.uint8], stamp: Time, frame_id: str = CAMERA_FRAME) -> Image:
    """Return the message of an image, RGB, uint8 [height, width, 3]; its bytes are copied once."""
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        raise ImageError(f'image: {pixels.dtype.name} {pixels.shape} is not allowed: '
                         'uint8 (height, width, 3)')
    data = array.array('B')
    data.frombytes(np.ascontiguousarray(pixels).reshape(-1).data)
    height, width, channels = pixels.shape
    return Image(header=Header(stamp=stamp, frame_id=frame_id), height=height, width=width,
                 encoding='rgb8', is_bigendian=0, step=width * channels, data=data)


def to_compressed_image(pixels: NDArray[np.uint8], stamp: Time) -> CompressedImage:
    """Return the message of an image, RGB, uint8 [height, width, 3], as JPEG."""
    return CompressedImage(
        header=Header(stamp=stamp, frame_id=CAMERA_FRAME), format='rgb8; jpeg compressed bgr8',
        data=array.array('B', images.encode(pixels, _JPEG_QUALITY)))


def from_image(message: Image | CompressedImage) -> NDArray[np.uint8]:
    """Return the image in a message as :func:`images.pixels_of`, of other encodings, too."""
    try:
        return images.pixels_of(message)
    except images.EncodingError as error:
        return _by_cv_bridge(message, error)


def _by_cv_bridge(message: Any, unknown: ImageError) -> NDArray[np.uint8]:
    try:
        cv_bridge = importlib.import_module('cv_bridge')
    except ImportError:
        raise ImageError(f'{unknown}; install cv_bridge to convert others') from None
    try:
        found = cv_bridge.CvBridge().imgmsg_to_cv2(message, desired_encoding='rgb8')
    # The exceptions depend on OpenCV's version; none may end the node.
    except Exception as error:
        raise ImageError(f'image: encoding {quoted(message.encoding)}: '
                         f'{shown(" ".join(str(error).split()), 300)}') from error
    pixels: NDArray[np.uint8] = np.ascontiguousarray(found, np.uint8)
    pixels.flags.writeable = False
    return pixels


def pinhole(matrix: ArrayLike, width: int, height: int) -> CameraInfo:
    """Return the message of a camera without distortion; ``matrix`` is [3, 3], pixels."""
    k = np.asarray(matrix, np.float64)
    p = np.hstack([k, np.zeros((3, 1))])
    return CameraInfo(width=width, height=height, distortion_model='plumb_bob', d=[0.0] * 5,
                      k=k.ravel(), r=np.eye(3).ravel(), p=p.ravel())


def uncalibrated(width: int, height: int) -> CameraInfo:
    """Return the message of an uncalibrated camera: K is zero, as the message defines."""
    return CameraInfo(width=width, height=height)


def stamped(info: CameraInfo, stamp: Time) -> CameraInfo:
    message = copy.copy(info)
    message.header = Header(stamp=stamp, frame_id=CAMERA_FRAME)
    return message
