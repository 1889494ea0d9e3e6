"""A scripted person, for trials without one: drives robots that stray to their targets.

It sees what a person would see, and drives as one would, by ``robot_I/teleop``, the topic
``takeover`` of diff_drive.yaml. The first episodes are its own, as demonstrations; after that it
helps once a robot has not come nearer for ``patience`` seconds.
Subscribes: ``robot_I/odom`` (nav_msgs/Odometry), ``robot_I/robot/target``
(geometry_msgs/PointStamped), ``robot_I/robot/status`` (std_msgs/String).
Publishes: ``robot_I/teleop`` (geometry_msgs/Twist).
Parameters: ``robots``, their number; ``first``, the number of episodes of each robot that it
drives from their begin; ``patience``.
"""

import math

import rclpy
from geometry_msgs.msg import Point, PointStamped, Twist
from nav_msgs.msg import Odometry
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from rclpy.qos import QoSDurabilityPolicy, QoSProfile
from std_msgs.msg import String

# Speeds as of the contract, m/s and rad/s.
FORWARD, TURN = 0.4, 2.0
# How much nearer a robot has to come within the patience, m.
NEARER = 0.1


class Person:
    """Watches one robot."""

    def __init__(self, node: Node, name: str, first: int, patience: float) -> None:
        self._first, self._patience = first, patience
        self._teleop = node.create_publisher(Twist, f'{name}/teleop', 1)
        latched = QoSProfile(depth=1, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
        node.create_subscription(PointStamped, f'{name}/robot/target', self._on_target, latched)
        node.create_subscription(String, f'{name}/robot/status', self._on_status, latched)
        node.create_subscription(Odometry, f'{name}/odom', self._on_odom, 5)
        self._target: Point | None = None
        self._is_running = self._helps = False
        self._episodes = 0
        # The least distance of this episode, and when it was reached, s.
        self._nearest, self._nearest_at = math.inf, 0.0

    def _on_target(self, message: PointStamped) -> None:
        self._target, self._nearest = message.point, math.inf
        self._episodes += 1
        self._helps = self._episodes <= self._first

    def _on_status(self, message: String) -> None:
        self._is_running = message.data.endswith('acts')

    def _on_odom(self, odometry: Odometry) -> None:
        if self._target is None or not self._is_running:
            # Who went on would keep the next episode from its begin.
            return
        stamp, pose = odometry.header.stamp, odometry.pose.pose
        now = stamp.sec + 1e-9 * stamp.nanosec
        x, y = self._target.x - pose.position.x, self._target.y - pose.position.y
        if math.hypot(x, y) < self._nearest - NEARER:
            self._nearest, self._nearest_at = math.hypot(x, y), now
        self._helps |= now - self._nearest_at > self._patience
        if not self._helps:
            return
        yaw = 2.0 * math.atan2(pose.orientation.z, pose.orientation.w)
        error = math.remainder(math.atan2(y, x) - yaw, math.tau)
        command = Twist()
        command.linear.x = FORWARD * max(0.0, math.cos(error))
        command.angular.z = max(-TURN, min(TURN, 3.0 * error))
        self._teleop.publish(command)


def main() -> None:
    """Run the node."""
    rclpy.init()
    node = Node('person')
    robots, first, patience = (
        node.declare_parameter(name, value).value
        for name, value in (('robots', 1), ('first', 3), ('patience', 4.0)))
    persons = [Person(node, f'robot_{index}', first, patience) for index in range(robots)]
    node.get_logger().info(f'{len(persons)} robots are watched')
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    except Exception:
        # A signal may end the context within a callback.
        if rclpy.ok():
            raise
    finally:
        rclpy.try_shutdown()


if __name__ == '__main__':
    main()
