"""What nodes of simulated arms share: their joints, cube and time as messages, and new poses."""

from collections.abc import Sequence
from typing import Any

from builtin_interfaces.msg import Time
from geometry_msgs.msg import PoseStamped
from rclpy.publisher import Publisher
from rosgraph_msgs.msg import Clock as ClockMessage
from sensor_msgs.msg import JointState
from std_msgs.msg import Header

from vdl_ros.arm.simulation.simulation import START, Pacer, PoseError, pose_by_name
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.messages.joint_messages import pose_message, time_of
from vdl_ros.ros.node_settings import TwinConfig
from vdl_ros.srv import SetJointPositions


class SimNode(BaseNode):
    """A simulated arm: joints, cube and time of ``_twin`` as messages; ``~/set_pose`` places both.

    Args:
        topic: of the joints, by the names ``joints``.
    """

    ENDS_BY_BUGS = True
    _config: TwinConfig
    _twin: Any

    def __init__(self, topic: str, joints: Sequence[str]) -> None:
        super().__init__()
        self._config, self._joints = self.settings(self.SETTINGS[0]), list(joints)
        self._twin = self.make_twin()
        self._pacer = Pacer(self._config.real_time_factor)
        self._states = self.pub(topic)
        self._cube: Publisher | None = self.pub('cube/pose') if self._config.cube else None
        self._time: Publisher | None = self.pub('/clock') if self._config.publish_clock else None
        self.create_service(SetJointPositions, '~/set_pose', self._on_set_pose)

    def make_twin(self) -> Any:
        raise NotImplementedError

    def _publish(self) -> None:
        header = Header(stamp=self.stamp(), frame_id='base_link')
        self._states.publish(JointState(
            header=header, name=self._joints, position=self._twin.joint_positions.tolist(),
            velocity=self._twin.joint_velocities.tolist()))
        if self._cube is not None:
            self._cube.publish(PoseStamped(header=header, pose=pose_message(self._twin.cube)))

    def _publish_time(self) -> None:
        if self._time is not None:
            self._time.publish(ClockMessage(clock=self.stamp()))

    def stamp(self) -> Time:
        """Return the time that this node publishes, if it does."""
        if not self._config.publish_clock:
            return super().stamp()
        return time_of(round(self._twin.time * 1e9))

    def _on_set_pose(
        self, request: SetJointPositions.Request, response: SetJointPositions.Response,
    ) -> SetJointPositions.Response:
        try:
            self._twin.reset(
                pose_by_name(request.name, request.position), list(request.cube) or START)
        except PoseError as error:
            response.message = str(error)
            return response
        self.on_reset()
        self._publish()
        response.success = True
        return response

    def on_reset(self) -> None:
        """Forget what was before."""
