"""Attack the pose estimator: perturb the camera's images by the gradients of its network.

Subscribes: ``camera/image_raw`` (sensor_msgs/Image), or with ``image_transport:=compressed``
``camera/image_raw/compressed`` (sensor_msgs/CompressedImage). Publishes: ``camera/image_attacked``
(sensor_msgs/Image, rgb8) with the same stamp; on ``/diagnostics``, always as a warning, that it is
there; ``/statistics``: the age of an image when it is published.
Parameters: docs/nodes.md, or ``ros2 run vdl_ros attacker --help``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from rclpy.node import Node
from sensor_msgs.msg import Image

from vdl_ros.attacks.attack_config import AttackConfig, SurrogateConfig
from vdl_ros.attacks.pose_attack import ImageAttack, warning
from vdl_ros.camera.camera_config import ImageTransportConfig
from vdl_ros.common.settings import select
from vdl_ros.pose.estimator import PoseEstimator, model_path
from vdl_ros.ros import qos
from vdl_ros.ros.arm.camera_feeds import AnyImage, subscribe_to_images
from vdl_ros.ros.diagnostics import Diagnostics, Health
from vdl_ros.ros.messages.images import from_image, to_image
from vdl_ros.ros.node_settings import PoseModelConfig, ProcessConfig
from vdl_ros.ros.process import run_node, spin_node, take_settings
from vdl_ros.ros.statistics.statistics import TopicStatistics

SETTINGS = (AttackConfig, SurrogateConfig, PoseModelConfig, ImageTransportConfig, ProcessConfig)


class AttackerNode(Node):
    """Runs an :class:`ImageAttack` on images and publishes the result.

    Raises:
        ValueError: a parameter, a mode or a model file that cannot be used.
    """

    def __init__(self) -> None:
        super().__init__('attacker')
        given, self.process = take_settings(self, *SETTINGS)
        self._config = config = select(AttackConfig, given)
        network = select(PoseModelConfig, given)
        surrogate = select(SurrogateConfig, given).adversarial_checkpoint
        torch.set_num_threads(network.pose_threads)
        path = model_path(surrogate or network.model)
        self._attack = ImageAttack(config, PoseEstimator.load(path))
        self._attacked = self._unchanged = self._refused = 0
        self._l2 = 0.0
        self._images = qos.create_publisher(self, Image, 'camera/image_attacked')
        self._statistics = TopicStatistics(self, 'camera/image_attacked')
        self._diagnostics = Diagnostics(self, self._health)
        subscribe_to_images(
            self, select(ImageTransportConfig, given).image_transport, self._on_image)
        self.get_logger().warning(f'{self._told} by the gradients of {path}')
        if text := warning(config):
            self.get_logger().warning(text)

    @property
    def _told(self) -> str:
        return (f'attacks the images of the camera: {self._config.adversarial_mode}, epsilon '
                f'{self._config.adversarial_epsilon:g}')

    def _on_image(self, message: AnyImage) -> None:
        try:
            found = self._attack.perturb(from_image(message))
        except ValueError as error:
            self._refused += 1
            self.get_logger().error(f'camera/image_raw refused: {error}',
                                    throttle_duration_sec=5.0)
            return
        self._images.publish(to_image(
            found.pixels, message.header.stamp, message.header.frame_id))
        self._statistics.received(message.header.stamp)
        self._attacked += found.changed
        self._unchanged += not found.changed
        self._l2 = found.l2

    def _health(self) -> Health:
        return self._told, {
            'mode': self._config.adversarial_mode, 'epsilon': self._config.adversarial_epsilon,
            'images attacked': self._attacked, 'images unchanged': self._unchanged,
            'messages refused': self._refused, 'l2 of the last': f'{self._l2:.4f}'}


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node('attacker', AttackerNode, spin_node, SETTINGS, args)


if __name__ == '__main__':
    raise SystemExit(main())
