"""A scripted person who teaches the simulated arm its tasks, by the motors as ``teleop`` does.

It sees what a person would see: the target, the arm, the cube, and who acts; to *reach* it acts
as the policy that ships. The first episodes are its own, as demonstrations; after that it helps
once the arm to the cube, or what moves to the target, has not come nearer for ``patience``
seconds, until it is there.
"""

import argparse
import math

import numpy as np
import rclpy
from geometry_msgs.msg import PointStamped, PoseStamped
from numpy.typing import NDArray
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import String

from benchmarks.arm_scripts import SCRIPTS, Script, Sight
from vdl_ros.arm.geometry import load
from vdl_ros.arm.joints import JOINTS, Motors
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.common.files import find_resource
from vdl_ros.envs.owi535.arm_env import IN_FLIGHT, RATE, JointReading
from vdl_ros.envs.owi535.reach import MOTORS, ReachObserver
from vdl_ros.envs.owi535.robot_tasks import Past
from vdl_ros.play.saved_policy import load_policy
from vdl_ros.ros import qos
from vdl_ros.ros.arm.arm_topics import message_from_motors
from vdl_ros.ros.dds import transport
from vdl_ros.ros.messages.joint_messages import pose_of, positions_of, seconds

# How much nearer the arm has to come within the patience, m.
NEARER = 0.02


class Person(Node):
    """Watches one arm; times are those of its joint states, s.

    ``script`` moves a cube; None: the arm itself has to reach the target.
    """

    def __init__(
        self, first: int, patience: float, script: type[Script] | None = None,
    ) -> None:
        super().__init__('scripted_person')
        geometry = load()
        self._first, self._patience = first, patience
        self._script = script(geometry) if script else None
        self._kinematics = Kinematics(geometry)
        self._observer, self._past = ReachObserver(geometry), Past()
        self._act = load_policy(find_resource('models/reach.pt')).act()
        self._commands = np.zeros((IN_FLIGHT, len(JOINTS)), np.int8)
        self._motors = qos.pub(self, 'arm/motors')
        self._target: NDArray[np.float64] | None = None
        self._cube: NDArray[np.float64] | None = None
        self._is_running = self._helps = False
        self._episodes = 0
        self._nearest, self._nearest_at, self._looked_at = math.inf, 0.0, -math.inf
        self._sent = np.zeros(len(JOINTS), np.int8)
        qos.sub(self, 'robot/target', self._on_target)
        qos.sub(self, 'robot/status', self._on_status)
        qos.sub(self, 'cube/pose', self._on_cube)
        qos.sub(self, 'arm/joint_states', self._on_joints)

    def _on_target(self, message: PointStamped) -> None:
        self._target = np.array([message.point.x, message.point.y, message.point.z])
        self._nearest, self._looked_at = math.inf, -math.inf
        self._past, self._commands = Past(), np.zeros_like(self._commands)
        self._episodes += 1
        self._helps = self._episodes <= self._first

    def _on_status(self, message: String) -> None:
        self._is_running = message.data.endswith('acts')

    def _on_cube(self, message: PoseStamped) -> None:
        self._cube = pose_of(message.pose)[:3]

    def _on_joints(self, message: JointState) -> None:
        now = seconds(message.header.stamp)
        target, cube = self._target, self._cube
        if target is None or not self._is_running or (self._script and cube is None):
            self._send(np.zeros_like(self._sent))
            return
        # It looks as often as a policy does.
        if now - self._looked_at < 1.0 / RATE - 1e-6:
            return
        self._looked_at = now
        positions = positions_of(message)
        tool = self._kinematics.pose(positions)[:3, 3]
        moved = tool if cube is None or self._script is None else cube
        distance = float(np.linalg.norm(moved - target) + np.linalg.norm(moved - tool))
        if distance < self._nearest - NEARER:
            self._nearest, self._nearest_at = distance, now
        self._helps |= now - self._nearest_at > self._patience
        if not self._helps:
            return
        directions = self._choose(JointReading(positions, np.array(now)), moved, target)
        self._commands = np.concatenate([directions[None], self._commands[:-1]])
        self._send(directions)

    def _choose(
        self, reading: JointReading, cube: NDArray[np.float64], target: NDArray[np.float64],
    ) -> NDArray[np.int8]:
        """Return the directions of the script, or of the policy that ships, int8 [5]."""
        if self._script is not None:
            return self._script.act(Sight(reading.positions, cube, target, self._commands))
        observation = self._observer.observe(
            reading, self._past.before(reading), reading.stamp, self._commands[:, :len(MOTORS)],
            target)
        actions = self._act(observation[None], np.zeros(1, np.bool_), np.zeros(1))[0]
        return np.append(actions - 1, 0).astype(np.int8)

    def _send(self, directions: NDArray[np.int8]) -> None:
        """Command; all off is said once."""
        if directions.any() or self._sent.any():
            self._sent = directions
            self._motors.publish(message_from_motors(
                Motors(*directions.tolist()), self.get_clock().now().to_msg(),
                self.get_fully_qualified_name()))


def main() -> None:
    parser = argparse.ArgumentParser(prog='arm_person')
    parser.add_argument('--first', type=int, default=20, help='episodes that it moves alone')
    parser.add_argument('--patience', type=float, default=4.0, help='s')
    parser.add_argument('--task', choices=('reach', *SCRIPTS), default='reach')
    options = parser.parse_args()
    transport.configure()
    rclpy.init(args=[])
    try:
        rclpy.spin(Person(options.first, options.patience, SCRIPTS.get(options.task)))
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    except Exception:
        # A signal may end the context within a callback.
        if rclpy.ok():
            raise
    finally:
        rclpy.try_shutdown()
