"""Lesson 3: a ROS 2 node of your own that moves the arm.

    ros2 launch vdl_ros arm.launch.py          # in another terminal
    python3 3_node.py

Subscribes to the joint states, turns the base until it has moved by 0.3 rad, at most ten seconds,
and switches all motors off. A command holds for half a second, so the node repeats it; if the node
dies, the driver's watchdog stops the arm.
Try: end it by Ctrl-C, or by `kill -9`, while the arm moves.
"""

import signal
import threading
import time

import rclpy
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import JointState

from vdl_ros.msg import MotorCommand
from vdl_ros.ros import qos

TURN = 0.3  # rad
LONGEST = 10.0  # s


class TurnBase(Node):
    """Turns the base by TURN."""

    def __init__(self) -> None:
        super().__init__('turn_base')
        self.start: float | None = None
        self.angle = 0.0
        self.motors = self.create_publisher(MotorCommand, 'arm/motors', qos.TOPICS['arm/motors'])
        self.create_subscription(
            JointState, 'arm/joint_states', self.on_joint_states,
            qos.subscription('arm/joint_states'))
        self.create_timer(0.1, self.command)

    def on_joint_states(self, message: JointState) -> None:
        self.angle = message.position[message.name.index('base')]
        self.start = self.angle if self.start is None else self.start

    @property
    def is_done(self) -> bool:
        return self.start is not None and self.angle - self.start >= TURN

    def command(self) -> None:
        if self.start is not None:
            self.send(base=0 if self.is_done else 1)

    def send(self, base: int) -> None:
        command = MotorCommand(sender=self.get_fully_qualified_name(), base=base)
        command.header.stamp = self.get_clock().now().to_msg()
        self.motors.publish(command)


# By Ctrl-C rclpy would close its publishers before the motors are off, so this handles it itself.
stop = threading.Event()
signal.signal(signal.SIGINT, lambda *_: stop.set())
rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
node, end = TurnBase(), time.monotonic() + LONGEST
try:
    while not (node.is_done or stop.is_set()) and time.monotonic() < end:
        rclpy.spin_once(node, timeout_sec=0.1)
finally:
    node.send(base=0)
    node.motors.wait_for_all_acked(Duration(seconds=1))
if stop.is_set():
    print('interrupted')
elif node.start is None:
    print('no joint states: does arm.launch.py run?')
else:
    print(f'the base turned from {node.start:.2f} to {node.angle:.2f} rad')
