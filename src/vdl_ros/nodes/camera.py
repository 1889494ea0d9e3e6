"""Camera: images of the simulated arm, a device, a video or a folder of images.

Subscribes with ``source:=sim``: ``arm/joint_states`` (sensor_msgs/JointState), ``arm/motors_sent``
(vdl_ros/MotorCommand). Publishes: ``camera/image_raw`` (sensor_msgs/Image, rgb8),
``camera/image_raw/compressed`` (sensor_msgs/CompressedImage, JPEG) while somebody subscribes,
``camera/camera_info`` (sensor_msgs/CameraInfo) with the same stamp, ``/diagnostics``, and on
``/statistics`` the period and age of the images when they are published.
Parameters: docs/nodes.md, or ``ros2 run vdl_ros camera --help``.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from builtin_interfaces.msg import Time
from numpy.typing import NDArray
from rclpy.node import Node
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from vdl_ros.arm.geometry import GeometryConfig
from vdl_ros.camera.camera_config import SIMULATED, CameraConfig, CameraPlacement
from vdl_ros.common.settings import select
from vdl_ros.ros import qos
from vdl_ros.ros.arm.camera_feeds import Feed, RealFeed, SimulatedFeed
from vdl_ros.ros.diagnostics import Diagnostics, Health
from vdl_ros.ros.messages.images import stamped, to_compressed_image, to_image
from vdl_ros.ros.node_settings import ProcessConfig
from vdl_ros.ros.process import EXIT_OK, make_executor, run_node, take_settings
from vdl_ros.ros.statistics.statistics import TopicStatistics

SETTINGS = (CameraConfig, CameraPlacement, GeometryConfig, ProcessConfig)


class CameraNode(Node):
    """Publishes the images of its feed.

    Raises:
        ValueError: a parameter, a description, a calibration or a file that cannot be used.
    """

    def __init__(self) -> None:
        super().__init__('camera')
        given, self.process = take_settings(self, *SETTINGS)
        config = select(CameraConfig, given)
        self._images = qos.create_publisher(self, Image, 'camera/image_raw')
        self._compressed = qos.create_publisher(
            self, CompressedImage, 'camera/image_raw/compressed')
        self._jpeg_quality = config.jpeg_quality
        self._infos = qos.create_publisher(self, CameraInfo, 'camera/camera_info')
        self._source, self._published, self._size = config.source, 0, 'unknown'
        self.feed: Feed
        if config.source == SIMULATED:
            geometry = select(GeometryConfig, given).load(
                select(CameraPlacement, given).arguments)
            self.feed = SimulatedFeed(self, config, geometry, self._publish)
        else:
            self.feed = RealFeed(self, config, self._publish)
        self._statistics = TopicStatistics(self, 'camera/image_raw')
        self._diagnostics = Diagnostics(self, self._health)

    def _publish(self, pixels: NDArray[np.uint8], info: CameraInfo, stamp: Time) -> None:
        image = to_image(pixels, stamp)
        self._infos.publish(stamped(info, stamp))
        self._images.publish(image)
        if self._compressed.get_subscription_count():
            self._compressed.publish(to_compressed_image(pixels, stamp, self._jpeg_quality))
        self._statistics.received(stamp)
        self._published += 1
        self._size = f'{image.width} x {image.height}'

    def _health(self) -> Health:
        warning, values = self.feed.health()
        return warning, {'source': self._source, 'size': self._size,
                         'images published': self._published, **values}


def watch(node: CameraNode, stop: threading.Event) -> int:
    """Publish images until ``stop`` is set."""
    executor = make_executor(node.process.executor)
    executor.add_node(node)
    while not stop.is_set():
        executor.spin_once(timeout_sec=node.feed.poll_timeout)
        node.feed.poll()
    executor.remove_node(node)
    node.feed.close()
    return EXIT_OK


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node('camera', CameraNode, watch, SETTINGS, args)


if __name__ == '__main__':
    raise SystemExit(main())
