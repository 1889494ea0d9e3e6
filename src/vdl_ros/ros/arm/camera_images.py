"""Subscribe to the images of the camera, as they are or compressed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from rclpy.node import Node
from sensor_msgs.msg import CompressedImage, Image

from vdl_ros.camera.camera_config import COMPRESSED
from vdl_ros.ros import qos_overrides

__all__ = ['AnyImage', 'subscribe_to_images']

#: Both are converted by ``ros.messages.images.from_image``.
AnyImage: TypeAlias = Image | CompressedImage


def subscribe_to_images(
    node: Node, image_transport: str, on_image: Callable[[AnyImage], None],
) -> None:
    """Call ``on_image`` with each image; see ``ImageTransportConfig``."""
    if image_transport == COMPRESSED:
        qos_overrides.create_subscription(
            node, CompressedImage, 'camera/image_raw/compressed', on_image)
    else:
        qos_overrides.create_subscription(node, Image, 'camera/image_raw', on_image)
