"""Browser view of a training: curves, figures, what limits its speed, and the policy that acts.

It shows the learner and the policy renderer of its namespace, and publishes nothing.
"""

import time

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.subscription import Subscription
from sensor_msgs.msg import Image
from statistics_msgs.msg import MetricsMessage

from vdl_ros.common.quoting import shown
from vdl_ros.common.settings import select
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.msg import Policy
from vdl_ros.rl.settings import TrainConfig
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.messages.images import from_image
from vdl_ros.ros.node_settings import TrainingViewerConfig
from vdl_ros.ros.statistics.statistics import Scalar, read
from vdl_ros.ros.training.messages import policy_config
from vdl_ros.view.page_server import serve
from vdl_ros.view.training_page import TrainingPage, TrainingStatus

# Period of the figures and curves, s.
DRAW_S = 1.0
# Shortest time between two images, s, whatever publishes them.
IMAGE_S = 0.01
RENDERER = 'policy_renderer'


class TrainingViewerNode(BaseNode):
    """Shows what the nodes of a training report."""

    NAME = 'training_viewer'
    SETTINGS = (TrainingViewerConfig,)
    IS_BACKGROUND = True

    def __init__(self) -> None:
        super().__init__()
        config = self.settings(TrainingViewerConfig)
        self._server = serve(config.view_host, config.view_port, self.get_logger().warning,
                             allows='watch')
        self._page = TrainingPage(self._server.viser)
        self._status = TrainingStatus()
        self._namespace = self.get_fully_qualified_name().rpartition('/')[0]
        self._learner = ''
        self._images: Subscription | None = None
        self._image_at = 0.0
        self.sub('/statistics', self._on_statistics)
        self.sub('/diagnostics', self._on_diagnostics)
        self._policies: Subscription | None = self.sub('policy', self._on_policy)
        self.every(DRAW_S, self._draw)
        self.get_logger().info(f'view of the training: {self._server.url}')

    def stop(self) -> None:
        self._server.stop()

    def _on_policy(self, message: Policy) -> None:
        """Take the settings once: policies are large and frequent."""
        if self._policies is None:
            return
        config = policy_config(message)
        train = select(TrainConfig, config)
        self._status.env_id = shown(select(EnvConfig, config).env_id)
        self._status.algorithm, self._status.total_steps = train.algorithm, train.total_steps
        self._status.settings = config
        self.destroy_subscription(self._policies)
        self._policies = None

    def _on_statistics(self, message: MetricsMessage) -> None:
        scalar = read(message)
        if isinstance(scalar, Scalar) and scalar.node.rpartition('/')[0] == self._namespace:
            self._learner = scalar.node
            self._status.add(scalar.tag, scalar.value, time.monotonic())

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for each in message.status:
            warning = '' if each.level == DiagnosticStatus.OK else each.message
            if each.name == f'{self._namespace}/{RENDERER}':
                self._status.without_images = warning
            elif each.name == self._learner:
                self._status.warning = warning
                self._status.bottleneck = next(
                    (value.value for value in each.values
                     if value.key == 'bottleneck'), '')

    def _on_image(self, message: Image) -> None:
        now = time.monotonic()
        if now - self._image_at < IMAGE_S:
            return
        self._image_at = now
        self._page.show_image(from_image(message))

    def _draw(self) -> None:
        """Show the newest state, if a browser shows the page."""
        watched = self._page.watched
        if watched and self._images is None:
            self._images = self.sub('policy/image_raw', self._on_image)
        elif not watched and self._images is not None:
            self.destroy_subscription(self._images)
            self._images = None
        if not watched:
            return
        if not self.count_publishers(self.resolve_topic_name('policy/image_raw')):
            self._status.without_images = f'no {RENDERER} runs'
        self._page.show(self._status, time.monotonic())


main = TrainingViewerNode.main
