"""Camera: images of the simulated arm, a device, a video or a folder of images.

The image, its JPEG while somebody subscribes to it, and its camera info have the same stamp.
"""

import threading

import numpy as np
from builtin_interfaces.msg import Time
from numpy.typing import NDArray
from rclpy.executors import Executor
from sensor_msgs.msg import CameraInfo

from vdl_ros.arm.geometry import GeometryConfig
from vdl_ros.camera.camera_config import SIMULATED, CameraConfig, CameraPlacement
from vdl_ros.ros.arm.camera_feeds import RealFeed, SimulatedFeed
from vdl_ros.ros.base_node import BaseNode, Diagnostics, Health
from vdl_ros.ros.messages.images import stamped, to_compressed_image, to_image
from vdl_ros.ros.process import EXIT_OK
from vdl_ros.ros.statistics.statistics import TopicStatistics


class CameraNode(BaseNode):
    """Publishes the images of its feed."""

    NAME = 'camera'
    SETTINGS = (CameraConfig, CameraPlacement, GeometryConfig)

    def __init__(self) -> None:
        super().__init__()
        config = self.settings(CameraConfig)
        self._images = self.pub('camera/image_raw')
        self._compressed = self.pub('camera/image_raw/compressed')
        self._infos = self.pub('camera/camera_info')
        self._source, self._published, self._size = config.source, 0, 'unknown'
        self.feed: SimulatedFeed | RealFeed
        if config.source == SIMULATED:
            geometry = self.settings(GeometryConfig).load(self.settings(CameraPlacement).arguments)
            self.feed = SimulatedFeed(self, config, geometry, self._publish)
        else:
            self.feed = RealFeed(self, config, self._publish)
        self._statistics = TopicStatistics(self, 'camera/image_raw')
        Diagnostics(self, self._health)

    def _publish(self, pixels: NDArray[np.uint8], info: CameraInfo, stamp: Time) -> None:
        image = to_image(pixels, stamp)
        self._infos.publish(stamped(info, stamp))
        self._images.publish(image)
        if self._compressed.get_subscription_count():
            self._compressed.publish(to_compressed_image(pixels, stamp))
        self._statistics.received(stamp)
        self._published += 1
        self._size = f'{image.width} x {image.height}'

    def _health(self) -> Health:
        warning, values = self.feed.health()
        return warning, {'source': self._source, 'size': self._size,
                         'images published': self._published, **values}

    def work(self, executor: Executor, stop: threading.Event) -> int:
        while not stop.is_set():
            executor.spin_once(timeout_sec=self.feed.poll_timeout)
            self.feed.poll()
        return EXIT_OK

    def stop(self) -> None:
        self.feed.close()


main = CameraNode.main
