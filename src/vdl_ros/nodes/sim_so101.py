"""Simulated SO-101: the topics of ros2_control's controllers, as the real arm has them.

Subscribes: ``forward_position_controller/commands`` (std_msgs/Float64MultiArray), positions of the
first five joints, or of all six, rad. Publishes: ``joint_states``. Service: ``~/set_pose``
(vdl_ros/SetJointPositions).
"""

import math
import time

from builtin_interfaces.msg import Time
from geometry_msgs.msg import PoseStamped
from rosgraph_msgs.msg import Clock as ClockMessage
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray, Header

from vdl_ros.arm.simulation.simulation import START, Pacer, PoseError, pose_by_name
from vdl_ros.envs.so101.twin import ROS_JOINTS, SO101Twin
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.messages.joint_messages import pose_message
from vdl_ros.ros.node_settings import TwinConfig
from vdl_ros.srv import SetJointPositions

# Between two messages of joints, simulated s; the longest time simulated at once, wall s.
PERIOD, _MAX_S = 0.02, 0.1
_COUNTS = 5, 6


class SimSO101Node(BaseNode):
    """Runs the twin at the pace of the wall clock, or a multiple of it."""

    NAME = 'sim_so101'
    SETTINGS = (TwinConfig,)
    ENDS_BY_BUGS = True

    def __init__(self) -> None:
        super().__init__()
        self._config = self.settings(TwinConfig)
        self._twin = SO101Twin(self._config.cube)
        self._pacer = Pacer(self._config.real_time_factor)
        self._states = self.pub('joint_states')
        self._cube = self.pub('cube/pose') if self._config.cube else None
        self._time = self.pub('/clock') if self._config.publish_clock else None
        self.sub('forward_position_controller/commands', self._on_commands)
        self.create_service(SetJointPositions, '~/set_pose', self._on_set_pose)
        # Even with use_sim_time: this node publishes that time.
        self.every(PERIOD / max(1.0, self._config.real_time_factor), self._keep_pace)
        self.get_logger().info('simulated SO-101 ready')

    def _keep_pace(self) -> None:
        """Simulate the wall time that has passed since the last call."""
        due = self._pacer.due(time.monotonic(), self._twin.time)
        for _ in range(math.floor(min(due, _MAX_S * self._config.real_time_factor) / PERIOD)):
            self._twin.step(PERIOD)
            if self._time is not None:
                self._time.publish(ClockMessage(clock=self.stamp()))
            self._publish()

    def _publish(self) -> None:
        header = Header(stamp=self.stamp(), frame_id='base_link')
        self._states.publish(JointState(
            header=header, name=list(ROS_JOINTS), position=self._twin.positions.tolist(),
            velocity=self._twin.velocities.tolist()))
        if self._cube is not None:
            assert self._twin.cube is not None
            self._cube.publish(PoseStamped(header=header, pose=pose_message(self._twin.cube)))

    def stamp(self) -> Time:
        """Return the time that this node publishes, if it does."""
        if not self._config.publish_clock:
            return super().stamp()
        nanoseconds = round(self._twin.time * 1e9)
        return Time(sec=nanoseconds // 10**9, nanosec=nanoseconds % 10**9)

    def _on_commands(self, message: Float64MultiArray) -> None:
        if len(message.data) not in _COUNTS or not all(map(math.isfinite, message.data)):
            self.refuse(f'forward_position_controller/commands: {len(message.data)} numbers are '
                        'not allowed: 5 or 6, finite')
            return
        self._twin.command(message.data)

    def _on_set_pose(
        self, request: SetJointPositions.Request, response: SetJointPositions.Response,
    ) -> SetJointPositions.Response:
        try:
            self._twin.reset(
                pose_by_name(request.name, request.position), list(request.cube) or START)
        except PoseError as error:
            response.message = str(error)
            return response
        self._publish()
        response.success = True
        return response


main = SimSO101Node.main
