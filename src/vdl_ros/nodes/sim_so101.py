"""Simulated SO-101: the topics of ros2_control's controllers, as the real arm has them.

Subscribes: ``forward_position_controller/commands`` (std_msgs/Float64MultiArray), positions of the
first five joints, or of all six, rad; ``joint_trajectory_controller/joint_trajectory``
(trajectory_msgs/JointTrajectory) of one point. Joints that a command leaves out go on.
Publishes: ``joint_states``. Service: ``~/set_pose`` (vdl_ros/SetJointPositions).
"""

import math
import time

import numpy as np
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from vdl_ros.envs.so101.twin import ROS_JOINTS, SO101Twin
from vdl_ros.ros.arm.sim_node import SimNode
from vdl_ros.ros.messages.joint_messages import seconds
from vdl_ros.ros.node_settings import TwinConfig

# Between two messages of joints, simulated s; the longest time simulated at once, wall s.
PERIOD, _MAX_S = 0.02, 0.1
_COUNTS = 5, 6
_TRAJECTORY = 'joint_trajectory_controller/joint_trajectory'
# Longest way to a point, s.
_MAX_WAY_S = 60.0


class SimSO101Node(SimNode):
    """Runs the twin at the pace of the wall clock, or a multiple of it."""

    NAME = 'sim_so101'
    SETTINGS = (TwinConfig,)
    _twin: SO101Twin

    def __init__(self) -> None:
        super().__init__('joint_states', ROS_JOINTS)
        self.sub('forward_position_controller/commands', self._on_commands)
        self.sub(_TRAJECTORY, self._on_trajectory)
        # Even with use_sim_time: this node publishes that time.
        self.every(PERIOD / max(1.0, self._config.real_time_factor), self._keep_pace)
        self.get_logger().info('simulated SO-101 ready')

    def make_twin(self) -> SO101Twin:
        return SO101Twin(self._config.cube)

    def _keep_pace(self) -> None:
        """Simulate the wall time that has passed since the last call."""
        due = self._pacer.due(time.monotonic(), self._twin.time)
        for _ in range(math.floor(min(due, _MAX_S * self._config.real_time_factor) / PERIOD)):
            self._twin.step(PERIOD)
            self._publish_time()
            self._publish()

    def _on_commands(self, message: Float64MultiArray) -> None:
        if len(message.data) not in _COUNTS or not all(map(math.isfinite, message.data)):
            self.refuse(f'forward_position_controller/commands: {len(message.data)} numbers are '
                        'not allowed: 5 or 6, finite')
            return
        self._twin.command(message.data)

    def _on_trajectory(self, message: JointTrajectory) -> None:
        names, points = list(message.joint_names), message.points
        duration = seconds(points[0].time_from_start) if points else 0.0
        if (len(points) != 1 or len(points[0].positions) != len(names) or not 0 <= duration <= (
                _MAX_WAY_S) or {*names} - {*ROS_JOINTS} or len({*names}) < len(names) or (
                not all(map(math.isfinite, points[0].positions)))):
            self.refuse(f'{_TRAJECTORY}: {len(points)} points of {names} are not allowed: one, '
                        f'within {_MAX_WAY_S:g} s, with a finite position for each joint')
            return
        goals = dict(zip(names, points[0].positions, strict=True))
        self._twin.command(np.array([goals.get(name, math.nan) for name in ROS_JOINTS]), duration)


main = SimSO101Node.main
