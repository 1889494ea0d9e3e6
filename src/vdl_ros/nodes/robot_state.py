"""Transforms of the arm's links: replaces robot_state_publisher on machines without it.

With ``source:=pose`` the frames belong to a second arm, have ``frame_prefix``, and no description
is published.
"""

from rcl_interfaces.msg import ParameterDescriptor
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from tf2_msgs.msg import TFMessage

from vdl_ros.arm.geometry import GeometryConfig, parse
from vdl_ros.common.settings import Scalar
from vdl_ros.msg import ArmPose
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.messages.joint_messages import ArmFrames, positions_of
from vdl_ros.ros.node_settings import RobotStateConfig

# As in robot_state_publisher: the URDF text.
DESCRIPTION = 'robot_description'


class RobotStateNode(BaseNode):
    """Publishes the arm's description and frames."""

    NAME = 'robot_state'
    SETTINGS = (RobotStateConfig, GeometryConfig)

    def __init__(self) -> None:
        super().__init__()
        self._config = self.settings(RobotStateConfig)
        geometry = (parse(self._text.value) if self._text is not None
                    else self.settings(GeometryConfig).load())
        self.declare_parameter(DESCRIPTION, geometry.urdf, ParameterDescriptor(
            description='The URDF text.', read_only=True))
        self._frames = ArmFrames(geometry, self._config.frame_prefix)
        if self._config.source == 'joint_states':
            self.pub('robot_description').publish(String(data=geometry.urdf))
        self.pub('/tf_static').publish(TFMessage(transforms=self._frames.fixed(self.stamp())))
        self._moving = self.pub('/tf')
        self.sub(f'arm/{self._config.source}', self._on_positions)

    def take_settings(self) -> dict[str, Scalar]:
        """Keep the text of the description, which is no setting."""
        self._text = self._parameter_overrides.pop(DESCRIPTION, None)
        return super().take_settings()

    def _on_positions(self, message: JointState | ArmPose) -> None:
        self._moving.publish(TFMessage(transforms=self._frames.moving(
            positions_of(message), message.header.stamp)))


main = RobotStateNode.main
