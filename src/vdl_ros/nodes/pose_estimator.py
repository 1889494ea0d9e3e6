"""Estimate the arm's pose from the camera's newest picture.

A pose has the stamp of its picture, so its age on ``/statistics`` is the latency from picture to
pose. With ``joint_states:=true`` the node tracks the joints, and publishes ``arm/joint_states``.
"""

import torch
from builtin_interfaces.msg import Time
from sensor_msgs.msg import JointState
from std_msgs.msg import Header

from vdl_ros.arm.geometry import GeometryConfig
from vdl_ros.arm.joints import JOINTS
from vdl_ros.camera.camera_config import ImageTransportConfig
from vdl_ros.msg import ArmPose, MotorCommand
from vdl_ros.pose.estimator import Estimate, PoseEstimator, crop_square, model_path
from vdl_ros.pose.joint_filter import JointTracker
from vdl_ros.pose.networks import JOINT_OUTPUTS, OUTPUTS
from vdl_ros.ros.arm.arm_topics import motors_from_message
from vdl_ros.ros.base_node import BaseNode, Diagnostics, Health
from vdl_ros.ros.messages.images import AnyImage, from_image, subscribe_to_images
from vdl_ros.ros.messages.joint_messages import seconds
from vdl_ros.ros.node_settings import PoseConfig, PoseModelConfig
from vdl_ros.ros.statistics.statistics import TopicStatistics

JOINT_NAMES = list(OUTPUTS[JOINT_OUTPUTS])


class PoseEstimatorNode(BaseNode):
    """Runs a :class:`PoseEstimator` on pictures and publishes its estimates."""

    NAME = 'pose_estimator'
    SETTINGS = (PoseModelConfig, PoseConfig, ImageTransportConfig, GeometryConfig)

    def __init__(self) -> None:
        super().__init__()
        config, network = self.settings(PoseConfig), self.settings(PoseModelConfig)
        torch.set_num_threads(network.pose_threads)
        path = model_path(network.model)
        self._estimator = PoseEstimator.load(path)
        self._count = self._confident = 0
        self._poses = self.pub('arm/pose')
        self._tracking: _JointTracking | None = None
        if config.joint_states:
            self._tracking = _JointTracking(self, config, self.settings(GeometryConfig))
        self._latency = TopicStatistics(self, 'arm/pose')
        Diagnostics(self, self._health)
        subscribe_to_images(
            self, self.settings(ImageTransportConfig).image_transport, self._on_image)
        self.get_logger().info(f'{self._estimator.name} of {path}')

    def _on_image(self, message: AnyImage) -> None:
        found = self._estimator.estimate(crop_square(from_image(message)))
        values, variance = found.values[0].tolist(), (found.std[0] ** 2).tolist()
        confident = bool(found.confident[0])
        self._poses.publish(ArmPose(
            header=Header(stamp=message.header.stamp, frame_id='base_link'), name=JOINT_NAMES,
            position=values[JOINT_OUTPUTS], variance=variance[JOINT_OUTPUTS],
            camera_distance=values[0], camera_elevation=values[1], camera_azimuth=values[2],
            camera_variance=variance[:3], confident=confident))
        if self._tracking is not None and found.readable[0]:
            self._tracking.update(message.header.stamp, found)
        self._latency.received(message.header.stamp)
        self._count += 1
        self._confident += confident

    def _health(self) -> Health:
        count, confident = self._count, self._confident
        self._count = self._confident = 0
        warning = ''
        if not count:
            warning = 'no pictures that can be read'
        elif 2 * confident < count:
            warning = f'{count - confident} of {count} estimates are not confident'
        return warning, {'pictures': count, 'confident': confident,
                         'messages refused': self.refused, 'model': self._estimator.name}


class _JointTracking:
    """Runs a :class:`JointTracker` and publishes the joints while they are certain enough."""

    def __init__(self, node: PoseEstimatorNode, config: PoseConfig, arm: GeometryConfig) -> None:
        geometry, count = arm.load(), len(JOINT_NAMES)
        assert list(JOINTS[:count]) == JOINT_NAMES
        self._tracker = JointTracker(
            geometry.lower[:count], geometry.upper[:count], geometry.velocity[:count])
        self._node, self._config = node, config
        self._states = node.pub('arm/joint_states')
        node.sub('arm/motors_sent', self._on_sent)

    def _on_sent(self, message: MotorCommand) -> None:
        motors = motors_from_message(message, lamp=False)
        self._tracker.command(
            seconds(message.header.stamp), [getattr(motors, name) for name in JOINT_NAMES])

    def update(self, stamp: Time, found: Estimate) -> None:
        track = self._tracker.update(
            seconds(stamp), found.values[0, JOINT_OUTPUTS], found.std[0, JOINT_OUTPUTS])
        if track.std.max() <= self._config.joint_std:
            self._states.publish(JointState(
                header=Header(stamp=stamp, frame_id='base_link'), name=JOINT_NAMES,
                position=track.positions.tolist()))


main = PoseEstimatorNode.main
