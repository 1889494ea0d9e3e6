"""Simulated robots with differential drive, in MuJoCo: the usual topics, and nothing of vdl_ros.

Robot I has topics and service of its own, ``robot_I/...``, and no other robot in its world.
Subscribes: ``cmd_vel`` (geometry_msgs/Twist). Publishes: ``odom`` (nav_msgs/Odometry), ``/clock``
(rosgraph_msgs/Clock). Service: ``reset`` (std_srvs/Empty): to a random place.
Parameters: ``robots``, their number; ``speed``, simulated seconds per second.
"""

import math
import time
from functools import partial
from pathlib import Path

import mujoco
import numpy as np
import rclpy
from builtin_interfaces.msg import Time
from geometry_msgs.msg import Quaternion, Twist
from nav_msgs.msg import Odometry
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rosgraph_msgs.msg import Clock as ClockMessage
from std_srvs.srv import Empty

# As in diff_drive.xml, m.
WHEEL_RADIUS, TRACK = 0.04, 0.16
HEIGHT = 0.04
# The motors stop after this time without a command, s.
COMMAND_TIMEOUT = 0.5
# A robot is placed at most so far from the origin in x and y, m.
FIELD = 1.0
# Between two messages of odom and clock, simulated s.
PERIOD = 0.05


class Robot:
    """One robot in a world of its own."""

    def __init__(self, model: mujoco.MjModel, random: np.random.Generator) -> None:
        self._model, self._random = model, random
        self.data = mujoco.MjData(model)
        self.time = self._commanded_at = 0.0
        self.place()

    def place(self) -> None:
        """Put it somewhere, standing still."""
        at = self.time
        mujoco.mj_resetData(self._model, self.data)
        self.time = at
        x, y = self._random.uniform(-FIELD, FIELD, 2)
        half = 0.5 * self._random.uniform(-math.pi, math.pi)
        self.data.qpos[:7] = x, y, HEIGHT, math.cos(half), 0.0, 0.0, math.sin(half)
        mujoco.mj_forward(self._model, self.data)

    def command(self, forward: float, turn: float) -> None:
        """Drive with a speed, m/s, and turn left, rad/s."""
        if not (math.isfinite(forward) and math.isfinite(turn)):
            forward = turn = 0.0
        self._commanded_at = self.time
        self.data.ctrl[:] = (forward + np.array([-0.5, 0.5]) * TRACK * turn) / WHEEL_RADIUS

    def step(self) -> None:
        """Simulate ``PERIOD``."""
        if self.time - self._commanded_at > COMMAND_TIMEOUT:
            self.data.ctrl[:] = 0.0
        mujoco.mj_step(self._model, self.data, round(PERIOD / self._model.opt.timestep))
        self.time += PERIOD

    def odometry(self, stamp: Time) -> Odometry:
        """Return pose, and velocity in the robot's own axes."""
        message = Odometry(child_frame_id='base_link')
        message.header.stamp, message.header.frame_id = stamp, 'odom'
        x, y, z, qw, qx, qy, qz = self.data.qpos[:7].tolist()
        place, velocity = message.pose.pose.position, message.twist.twist
        place.x, place.y, place.z = x, y, z
        message.pose.pose.orientation = Quaternion(x=qx, y=qy, z=qz, w=qw)
        yaw = 2.0 * math.atan2(qz, qw)
        vx, vy, _, _, _, wz = self.data.qvel[:6].tolist()
        velocity.linear.x = math.cos(yaw) * vx + math.sin(yaw) * vy
        velocity.linear.y = math.cos(yaw) * vy - math.sin(yaw) * vx
        velocity.angular.z = wz
        return message


class Simulation(Node):
    """All robots, and their common clock."""

    def __init__(self) -> None:
        super().__init__('diff_drive')
        count = self.declare_parameter('robots', 1).value
        self._speed = float(self.declare_parameter('speed', 1.0).value)
        model = mujoco.MjModel.from_xml_path(str(Path(__file__).with_name('diff_drive.xml')))
        random = np.random.default_rng(self.declare_parameter('seed', 0).value)
        self._robots = [Robot(model, random) for _ in range(count)]
        self._odometry = []
        for index, robot in enumerate(self._robots):
            name = f'robot_{index}'
            self._odometry.append(self.create_publisher(Odometry, f'{name}/odom', 5))
            self.create_subscription(Twist, f'{name}/cmd_vel', partial(self._drive, robot), 1)
            self.create_service(Empty, f'{name}/reset', partial(self._reset, robot))
        self._clock = self.create_publisher(ClockMessage, '/clock', 5)
        self._time, self._due = 0.0, time.monotonic()
        # Not a timer of this node's clock, which may be simulated.
        self.create_timer(PERIOD / self._speed, self._step,
                          clock=Clock(clock_type=ClockType.STEADY_TIME))
        self.get_logger().info(f'{count} robots, {self._speed:g} times real time')

    def _drive(self, robot: Robot, message: Twist) -> None:
        robot.command(message.linear.x, message.angular.z)

    def _reset(
        self, robot: Robot, request: Empty.Request, response: Empty.Response,
    ) -> Empty.Response:
        robot.place()
        return response

    def _step(self) -> None:
        self._time += PERIOD
        nanoseconds = round(self._time * 1e9)
        stamp = Time(sec=nanoseconds // 10**9, nanosec=nanoseconds % 10**9)
        for robot, publisher in zip(self._robots, self._odometry, strict=True):
            robot.step()
            publisher.publish(robot.odometry(stamp))
        self._clock.publish(ClockMessage(clock=stamp))


def main() -> None:
    """Run the node."""
    # Ctrl-C raises KeyboardInterrupt.
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    try:
        rclpy.spin(Simulation())
    except KeyboardInterrupt:
        pass
    finally:
        rclpy.try_shutdown()


if __name__ == '__main__':
    main()
