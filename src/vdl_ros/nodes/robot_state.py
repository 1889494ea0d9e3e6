"""Transforms of the arm's links: replaces robot_state_publisher on machines without it.

Subscribes: ``arm/joint_states`` (sensor_msgs/JointState), or ``arm/pose`` (vdl_ros/ArmPose) with
``source:=pose``. Publishes: ``robot_description`` (std_msgs/String, latched), ``/tf``,
``/tf_static`` (tf2_msgs/TFMessage). With ``source:=pose`` the frames belong to a second arm, have
``frame_prefix``, and no description is published.
Parameters: docs/nodes.md, or ``ros2 run vdl_ros robot_state --help``.
"""

from __future__ import annotations

from collections.abc import Sequence

from rcl_interfaces.msg import ParameterDescriptor, SetParametersResult
from rclpy.node import Node
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from tf2_msgs.msg import TFMessage

from vdl_ros.arm.geometry import ArmGeometry, GeometryConfig, GeometryError, parse
from vdl_ros.common.quoting import shown
from vdl_ros.common.settings import select
from vdl_ros.msg import ArmPose
from vdl_ros.ros import qos
from vdl_ros.ros.messages.joint_messages import ArmFrames, positions_of
from vdl_ros.ros.node_settings import ProcessConfig, RobotStateConfig
from vdl_ros.ros.process import run_node, spin_node, take_settings

SETTINGS = (RobotStateConfig, GeometryConfig, ProcessConfig)
# As in robot_state_publisher: the URDF text, which may be changed at run time.
DESCRIPTION = 'robot_description'


class RobotStateNode(Node):
    """Publishes the arm's description and frames.

    Raises:
        ValueError: a parameter or a description that cannot be used.
    """

    def __init__(self) -> None:
        super().__init__('robot_state')
        text = self._parameter_overrides.pop(DESCRIPTION, None)
        given, self.process = take_settings(self, *SETTINGS)
        self._config = select(RobotStateConfig, given)
        geometry = parse(text.value) if text is not None else select(GeometryConfig, given).load()
        self.declare_parameter(DESCRIPTION, geometry.urdf, ParameterDescriptor(
            description='The URDF text; an invalid one is refused and the old one stays.'))
        self._refusal = ''
        self._description = self.create_publisher(
            String, 'robot_description', qos.TOPICS['robot_description'])
        self._moving = qos.create_publisher(self, TFMessage, '/tf')
        self._fixed = self.create_publisher(TFMessage, '/tf_static', qos.TOPICS['/tf_static'])
        self._set_geometry(geometry)
        self.add_on_set_parameters_callback(self._on_parameters)
        if self._config.source == 'pose':
            qos.create_subscription(self, ArmPose, 'arm/pose', self._on_positions)
        else:
            qos.create_subscription(
                self, JointState, 'arm/joint_states', self._on_positions)

    def _set_geometry(self, geometry: ArmGeometry) -> None:
        """Use and publish ``geometry``."""
        self._frames = ArmFrames(geometry, self._config.frame_prefix)
        if self._config.source == 'joint_states':
            self._description.publish(String(data=geometry.urdf))
        self._fixed.publish(TFMessage(transforms=self._frames.fixed(
            self.get_clock().now().to_msg())))

    def _on_parameters(self, changed: list[Parameter]) -> SetParametersResult:
        for parameter in changed:
            if parameter.name == DESCRIPTION:
                try:
                    self._set_geometry(parse(str(parameter.value)))
                except GeometryError as error:
                    reason = shown(str(error), 300)
                    self.get_logger().error(f'robot_description refused: {reason}')
                    return SetParametersResult(successful=False, reason=reason)
        return SetParametersResult(successful=True)

    def _on_positions(self, message: JointState | ArmPose) -> None:
        try:
            positions = positions_of(message)
        except ValueError as error:
            if str(error) != self._refusal:  # log it once
                self._refusal = str(error)
                self.get_logger().error(f'positions refused: {error}')
            return
        self._moving.publish(TFMessage(
            transforms=self._frames.moving(positions, message.header.stamp)))


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node('robot_state', RobotStateNode, spin_node, SETTINGS, args)


if __name__ == '__main__':
    raise SystemExit(main())
