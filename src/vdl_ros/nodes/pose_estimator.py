"""
Reads the arm's pose off the camera's pictures: the newest one, never a queue.

Subscribes: ``camera/image_raw`` (sensor_msgs/Image). Publishes: ``arm/pose`` (vdl_ros/ArmPose)
with the picture's stamp; ``arm/joint_states`` (sensor_msgs/JointState) of what it is confident of,
if asked; ``/diagnostics``; ``/statistics``: the age of a pose is the latency from picture to pose.
Parameters: docs/nodes.md, or ``ros2 run vdl_ros pose_estimator --help``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from rclpy.node import Node
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import Header

from vdl_ros.msg import ArmPose
from vdl_ros.pose.estimator import PoseEstimator
from vdl_ros.pose.framing import square
from vdl_ros.pose.labels import JOINT_OUTPUTS, OUTPUTS
from vdl_ros.pose.pose_config import PoseConfig
from vdl_ros.pose.weights import default_model
from vdl_ros.ros import qos
from vdl_ros.ros.diagnostics import Diagnostics, Health
from vdl_ros.ros.images import from_image
from vdl_ros.ros.process import (
    ProcessConfig,
    run_node,
    spin_node,
    take_settings,
)
from vdl_ros.ros.statistics import TopicStatistics
from vdl_ros.settings import select

SETTINGS = (PoseConfig, ProcessConfig)
JOINT_NAMES = list(OUTPUTS[JOINT_OUTPUTS])
_REASONS = 20


class PoseEstimatorNode(Node):
    """Gives a :class:`PoseEstimator` its pictures, and its estimates their topics."""

    def __init__(self) -> None:
        """
        Load the network.

        Raises:
            ValueError: a parameter or a model file that cannot be used.
        """
        super().__init__('pose_estimator')
        given, self.process = take_settings(self, *SETTINGS)
        config = select(PoseConfig, given)
        torch.set_num_threads(config.pose_threads)
        path = Path(config.model) if config.model else default_model()
        self._estimator = PoseEstimator.load(path)
        self._count = self._confident = self._refused = 0
        self._reasons: set[str] = set()
        self._poses = self.create_publisher(ArmPose, 'arm/pose', qos.TOPICS['arm/pose'])
        self._states = None
        if config.joint_states:
            self._states = self.create_publisher(
                JointState, 'arm/joint_states', qos.TOPICS['arm/joint_states'])
        self._latency = TopicStatistics(self, 'arm/pose')
        self._diagnostics = Diagnostics(self, self._health)
        self.create_subscription(Image, 'camera/image_raw', self._on_image,
                                 qos.subscription('camera/image_raw'))
        self.get_logger().info(f'{self._estimator.name} of {path}')

    def _on_image(self, message: Image) -> None:
        try:
            picture = square(from_image(message))
        except ValueError as error:
            self._refuse(str(error))
            return
        found = self._estimator.estimate(picture)
        values, variance = found.values[0].tolist(), (found.std[0] ** 2).tolist()
        confident = bool(found.confident[0])
        self._poses.publish(ArmPose(
            header=Header(stamp=message.header.stamp, frame_id='base_link'), name=JOINT_NAMES,
            position=values[JOINT_OUTPUTS], variance=variance[JOINT_OUTPUTS],
            camera_distance=values[0], camera_elevation=values[1], camera_azimuth=values[2],
            camera_variance=variance[:3], confident=confident))
        if self._states is not None and confident:
            self._states.publish(JointState(
                header=Header(stamp=message.header.stamp, frame_id='base_link'),
                name=JOINT_NAMES, position=values[JOINT_OUTPUTS]))
        self._latency.received(message.header.stamp)
        self._count += 1
        self._confident += confident

    def _refuse(self, reason: str) -> None:
        self._refused += 1
        if reason not in self._reasons and len(self._reasons) < _REASONS:  # once each
            self._reasons.add(reason)
            self.get_logger().error(f'camera/image_raw refused: {reason}')

    def _health(self) -> Health:
        count, confident = self._count, self._confident
        self._count = self._confident = 0
        warning = ''
        if not count:
            warning = 'no pictures that can be read'
        elif 2 * confident < count:
            warning = f'not sure where the arm is in {count - confident} of {count} pictures'
        return warning, {'pictures': count, 'confident': confident,
                         'pictures refused': self._refused, 'model': self._estimator.name}


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node('pose_estimator', PoseEstimatorNode, spin_node, SETTINGS, args)


if __name__ == '__main__':
    raise SystemExit(main())
