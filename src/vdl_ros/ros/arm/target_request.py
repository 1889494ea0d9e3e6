"""Ask the node ``policy`` to bring ``tool0`` to a place, and wait until it is there.

Publishes: ``arm/target``, and ``arm/motors`` once, all off, if the policy is not to go on with it.
Subscribes: ``arm/target_status``.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence

from geometry_msgs.msg import PointStamped
from rclpy.executors import Executor
from rclpy.node import Node

from vdl_ros.arm.joints import Motors
from vdl_ros.msg import MotorCommand, TargetStatus
from vdl_ros.ros import qos
from vdl_ros.ros.arm.arm_topics import message_from_motors, wait_for_acks
from vdl_ros.ros.node_settings import ProcessConfig
from vdl_ros.ros.process import EXIT_OK, make_executor, spin_until, take_settings

__all__ = ['EXIT_FAILED', 'TargetRequest', 'TargetRequestNode']

EXIT_FAILED = 1
# How long a policy may take to answer, and from when on that is said, s.
ANSWER_S, PATIENCE_S = 60.0, 2.0
# Motors may be off for so long, such as while joint states are missing, before it is a failure, s.
PAUSED_S = 5.0
# A target that nobody has taken is sent again after this time, s.
REPEAT_S = 2.0
# Targets that differ by less are the same, m.
SAME = 1e-6


class TargetRequestNode(Node):
    """Sends a target and knows what the policy makes of it.

    Raises:
        ValueError: a parameter that cannot be used.
    """

    def __init__(self) -> None:
        super().__init__('go_to')
        _, self.process = take_settings(self, ProcessConfig)
        self.status: TargetStatus | None = None
        self._targets = self.create_publisher(
            PointStamped, 'arm/target', qos.TOPICS['arm/target'])
        self._motors = self.create_publisher(MotorCommand, 'arm/motors', qos.TOPICS['arm/motors'])
        self.create_subscription(TargetStatus, 'arm/target_status', self._on_status,
                                 qos.TOPICS['arm/target_status'])

    @property
    def is_answered(self) -> bool:
        """Return whether there is a policy, which can be stopped too."""
        return self.status is not None and all(
            each.get_subscription_count() for each in (self._targets, self._motors))

    def send(self, place: Sequence[float]) -> None:
        """Send the target; what was known of another one is forgotten."""
        self.status = None
        message = PointStamped()
        message.header.stamp = self.get_clock().now().to_msg()
        message.header.frame_id = 'base_link'
        message.point.x, message.point.y, message.point.z = map(float, place)
        self._targets.publish(message)

    def switch_off(self) -> None:
        """Switch all motors off, as a person does: the policy gives its target up."""
        # Before it has the target it would not give it up.
        wait_for_acks(self._targets)
        self._motors.publish(message_from_motors(
            Motors(), self.get_clock().now().to_msg(), self.get_fully_qualified_name()))
        wait_for_acks(self._motors)

    def _on_status(self, message: TargetStatus) -> None:
        self.status = message


class TargetLostError(Exception):
    """The policy does not follow this target any more; the arm may be somebody else's."""


class TargetRequest:
    """Brings ``tool0`` of the arm of a node to a place, float64 [3], m.

    Args:
        place: in ``base_link``, m.
        timeout: for the way, s.
    """

    def __init__(self, place: Sequence[float], timeout: float) -> None:
        self._place, self._timeout = tuple(place), timeout

    def __call__(self, node: TargetRequestNode, stop: threading.Event) -> int:
        """Ask, and return the exit status; the motors are off if it was given up here."""
        executor = make_executor(node.process.executor)
        executor.add_node(node)
        log = node.get_logger()
        try:
            if not spin_until(lambda: node.is_answered, executor, stop, PATIENCE_S):
                log.info('waiting for a policy, such as that of arm.launch.py policy:=reach')
            if not spin_until(lambda: node.is_answered, executor, stop, ANSWER_S):
                if not stop.is_set():
                    log.error(f'no policy for {ANSWER_S:g} s: is arm.launch.py policy:=reach '
                              'running?')
                return EXIT_FAILED
            try:
                reason = self._follow(node, executor, stop)
            except TargetLostError as ended:
                log.error(str(ended))
                return EXIT_FAILED
            except BaseException:
                node.switch_off()
                raise
            if reason:
                node.switch_off()
                log.error(reason)
                return EXIT_FAILED
            assert node.status is not None
            log.info(f'tool0 is {1000.0 * node.status.distance:.0f} mm from '
                     f'({", ".join(f"{each:g}" for each in self._place)}) m, after '
                     f'{node.status.time_to_target:.1f} s; the policy holds it there')
            return EXIT_OK
        finally:
            executor.remove_node(node)

    def _follow(
        self, node: TargetRequestNode, executor: Executor, stop: threading.Event,
    ) -> str:
        """Send the target until it is taken, and wait; return why to give it up, '' if reached.

        Raises:
            TargetLostError: the policy has given it up, or has another one.
        """
        end = time.monotonic() + self._timeout
        due, paused_since, is_taken = 0.0, math.inf, False
        while not stop.is_set():
            now = time.monotonic()
            if not is_taken and now > due:
                node.send(self._place)
                due = now + REPEAT_S
            executor.spin_once(timeout_sec=0.1)
            status = node.status
            if now > end:
                away = '' if status is None else f', {100.0 * status.distance:.1f} cm away'
                return f'not reached within {self._timeout:g} s{away}: motors off'
            if status is None:
                continue
            is_mine = all(abs(mine - other) < SAME for mine, other in zip(
                self._place, status.target, strict=True))
            is_taken |= is_mine
            if status.state == 'idle' and status.reason:
                raise TargetLostError(f'motors off: {status.reason}')
            if is_taken and not is_mine:
                raise TargetLostError('another target has replaced this one')
            if is_mine and status.success:
                return ''
            if status.state != 'paused':
                paused_since = math.inf
            elif (paused_since := min(paused_since, now)) < now - PAUSED_S:
                return f'motors off: {status.reason}'
        return 'interrupted: motors off'
