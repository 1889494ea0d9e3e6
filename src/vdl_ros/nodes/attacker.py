"""Attack the pose estimator: perturb the camera's images by the gradients of its network.

An image keeps its stamp. ``/diagnostics`` warns, always, that the attacker is there.
"""

import torch

from vdl_ros.attacks.attack_config import AttackConfig, SurrogateConfig
from vdl_ros.attacks.pose_attack import ImageAttack, warning
from vdl_ros.camera.camera_config import ImageTransportConfig
from vdl_ros.pose.estimator import PoseEstimator, model_path
from vdl_ros.ros.base_node import BaseNode, Diagnostics, Health
from vdl_ros.ros.messages.images import AnyImage, from_image, subscribe_to_images, to_image
from vdl_ros.ros.node_settings import PoseModelConfig
from vdl_ros.ros.statistics.statistics import TopicStatistics


class AttackerNode(BaseNode):
    """Runs an :class:`ImageAttack` on images and publishes the result."""

    NAME = 'attacker'
    SETTINGS = (AttackConfig, SurrogateConfig, PoseModelConfig, ImageTransportConfig)

    def __init__(self) -> None:
        super().__init__()
        self._config = config = self.settings(AttackConfig)
        network = self.settings(PoseModelConfig)
        surrogate = self.settings(SurrogateConfig).adversarial_checkpoint
        torch.set_num_threads(network.pose_threads)
        path = model_path(surrogate or network.model)
        self._attack = ImageAttack(config, PoseEstimator.load(path))
        self._attacked = self._unchanged = 0
        self._l2 = 0.0
        self._images = self.pub('camera/image_attacked')
        self._statistics = TopicStatistics(self, 'camera/image_attacked')
        Diagnostics(self, self._health)
        subscribe_to_images(
            self, self.settings(ImageTransportConfig).image_transport, self._on_image)
        self.get_logger().warning(f'{self._told} by the gradients of {path}')
        if text := warning(config):
            self.get_logger().warning(text)

    @property
    def _told(self) -> str:
        return (f'attacks the images of the camera: {self._config.adversarial_mode}, epsilon '
                f'{self._config.adversarial_epsilon:g}')

    def _on_image(self, message: AnyImage) -> None:
        found = self._attack.perturb(from_image(message))
        self._images.publish(to_image(found.pixels, message.header.stamp, message.header.frame_id))
        self._statistics.received(message.header.stamp)
        self._attacked += found.changed
        self._unchanged += not found.changed
        self._l2 = found.l2

    def _health(self) -> Health:
        return self._told, {
            'mode': self._config.adversarial_mode, 'epsilon': self._config.adversarial_epsilon,
            'images attacked': self._attacked, 'images unchanged': self._unchanged,
            'messages refused': self.refused, 'l2 of the last': f'{self._l2:.4f}'}


main = AttackerNode.main
