"""
The topics of an arm, the same for the real one and its twin: whoever owns one listens here.

Subscribes: ``arm/motors`` (vdl_ros/MotorCommand), ``arm/emergency_stop`` (std_msgs/Bool, latched).
Publishes: ``arm/motors_sent`` (vdl_ros/MotorCommand), ``/diagnostics``, ``/statistics``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from builtin_interfaces.msg import Time
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.publisher import Publisher
from std_msgs.msg import Bool, Header

from vdl_ros.arm.driver.driver import ArmDriver, Guard, Link
from vdl_ros.arm.driver.driver_config import SafetyConfig
from vdl_ros.arm.driver.protocol import Signs
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.motor_command import MotorError, Motors, short
from vdl_ros.msg import MotorCommand
from vdl_ros.ros import qos
from vdl_ros.ros.diagnostics import Diagnostics, Health
from vdl_ros.ros.statistics.topic_statistics import TopicStatistics

__all__ = [
    'ArmTopics', 'CommandConflictDetector', 'deliver', 'message_from_motors',
    'motors_from_message',
]

# Nodes of this package that may publish on arm/motors and mostly do not.
_MOSTLY_IDLE = ('viewer', 'teleop', 'arm_controller')
_WARN_AGAIN_S = 5.0
# Soon after its start a driver hears what was latched before, one word soon after the other, s.
_STARTING_S, _GATHERING_S = 15.0, 1.0
# The driver's watchdog is looked after so often, s.
_WATCH_S = 0.02
# The graph is asked for publishers so often at the most, s.
_COUNT_AGAIN_S = 1.0
# The last command of a node is waited for so long, s; if it is lost, the driver's watchdog stops.
_LAST_S = 1.0


def motors_from_message(message: MotorCommand, lamp: bool) -> Motors:
    """
    Return what a message commands.

    Args:
        message: any.
        lamp: whether it is lit now, for messages that leave it as it is.

    Raises:
        MotorError: a motor or the lamp has a value other than -1, 0, 1.
    """
    if message.lamp not in (-1, 0, 1):
        raise MotorError(f'lamp: {message.lamp} is not allowed: 1 on, -1 off, 0 as it is')
    return Motors.of([getattr(message, name) for name in JOINTS],
                     lamp=message.lamp == 1 or (message.lamp == 0 and lamp))


def deliver(*publishers: Publisher) -> None:
    """Wait until what was published has arrived, for a node that is about to end."""
    for each in publishers:
        each.wait_for_all_acked(Duration(seconds=_LAST_S))


def message_from_motors(
    motors: Motors, stamp: Time, sender: str, *, with_lamp: bool = False,
) -> MotorCommand:
    """
    Return the message of a command.

    Args:
        motors: what the motors shall do.
        stamp: the moment of the command.
        sender: full name of the commanding node.
        with_lamp: the lamp is commanded as well, not only the motors.
    """
    lamp = (1 if motors.lamp else -1) if with_lamp else 0
    named = dict(zip(JOINTS, motors.values, strict=True))
    return MotorCommand(header=Header(stamp=stamp), sender=sender, lamp=lamp, **named)


class CommandConflictDetector:
    """
    Notices that two publishers command the motors at the same time.

    A message does not say where it came from, so senders name themselves; for those that do not,
    the publishers in the graph are counted.
    """

    def __init__(self, window: float, publishers: Callable[[], list[str]]) -> None:
        """
        Notice nothing yet.

        Args:
            window: senders that alternate within so long command at the same time, s.
            publishers: returns the full names of all nodes that publish commands.
        """
        self._window, self._publishers = window, publishers
        self._heard: dict[str, float] = {}
        self._last = ''
        self._warned_at = -_WARN_AGAIN_S
        self._counted_at = -_COUNT_AGAIN_S

    def heard(self, sender: str, now: float) -> str:
        """Return a warning, or '', for a command of ``sender``, '' if unnamed, at ``now``, s."""
        before = self._heard.get(sender)
        others = [name for name, at in self._heard.items()
                  if name != sender and now - at < self._window]
        back = (sender != self._last and before is not None and now - before < self._window)
        self._heard[sender], self._last = now, sender
        if now - self._warned_at < _WARN_AGAIN_S:
            return ''
        if back and others:
            names = sorted(name or 'a sender without a name' for name in (sender, *others))
        elif not sender and now - self._counted_at >= _COUNT_AGAIN_S:
            self._counted_at = now
            names = sorted(name for name in self._publishers()
                           if name.rsplit('/', 1)[-1] not in _MOSTLY_IDLE)
        else:
            return ''
        if len(names) < 2:
            return ''
        self._warned_at = now
        return f'arm/motors: {len(names)} publishers at once: {", ".join(names)}'


class ArmTopics:
    """Gives an :class:`ArmDriver` its topics; ``driver`` is the driver."""

    def __init__(
        self, node: Node, config: SafetyConfig, signs: Signs, connect: Callable[[], Link],
        guard: Guard, *, clock: Callable[[], float] = time.monotonic,
        stamp: Callable[[], Time] | None = None,
        values: Callable[[], dict[str, object]] = dict,
    ) -> None:
        """
        Listen; the driver obeys once it is open and active.

        Args:
            node: whose topics they are.
            config: of the driver.
            signs: how the arm is wired.
            connect: as of ArmDriver.
            guard: as of ArmDriver.
            clock: as of ArmDriver.
            stamp: time for the messages; by default the node's.
            values: more for ``/diagnostics``.
        """
        self._node, self._clock, self._values = node, clock, values
        self._stamp = stamp or (lambda: node.get_clock().now().to_msg())
        self._name = node.get_fully_qualified_name()
        self._born, self._first_word_at = time.monotonic(), math.inf
        self._watched_at = -math.inf
        self._sent = node.create_publisher(
            MotorCommand, 'arm/motors_sent', qos.TOPICS['arm/motors_sent'])
        self.driver = ArmDriver(config, signs, connect, guard, sent=self._publish,
                                notice=self._notice, clock=clock)
        self._senders = CommandConflictDetector(config.command_timeout, self._publishers)
        self._statistics = TopicStatistics(node, 'arm/motors')
        self._diagnostics = Diagnostics(node, self._health)
        node.create_subscription(
            MotorCommand, 'arm/motors', self._on_motors, qos.TOPICS['arm/motors'])
        node.create_subscription(
            Bool, 'arm/emergency_stop', self._on_emergency_stop,
            qos.subscription('arm/emergency_stop'))

    def _watch(self) -> None:
        """Look after the motors: a flood of messages must not keep the node's timer from it."""
        now = time.monotonic()
        if now - self._watched_at >= _WATCH_S:
            self._watched_at = now
            self.driver.tick()

    def _on_motors(self, message: MotorCommand) -> None:
        self._watch()
        self._statistics.received(message.header.stamp)
        sender = message.sender if message.sender.isprintable() else short(message.sender)
        try:
            sent = self.driver.sent
            motors = motors_from_message(message, lamp=sent is not None and sent.lamp)
        except MotorError as error:
            self.driver.refuse(f'{sender or "arm/motors"}: {error}')
            return
        self.driver.command(motors)
        # After the motors were told: a line to a terminal can take for ever.
        warning = self._senders.heard(sender, self._clock())
        if warning:
            self._node.get_logger().warning(warning)

    def _on_emergency_stop(self, message: Bool) -> None:
        self._watch()
        # A stop is latched by whoever engaged it, and so is a release: who starts hears the last
        # word of each, in any order.
        now = time.monotonic()
        self._first_word_at = min(self._first_word_at, now)
        early = now - self._born < _STARTING_S and now - self._first_word_at < _GATHERING_S
        if not message.data and self.driver.emergency and early:
            self._node.get_logger().warning('emergency stop: engaged before this start, so a '
                                            'release from before does not count')
            return
        self.driver.emergency_stop(message.data)

    def _publish(self, motors: Motors) -> None:
        self._sent.publish(
            message_from_motors(motors, self._stamp(), self._name, with_lamp=True))

    def _notice(self, level: str, text: str) -> None:
        # One call for each level: rclpy refuses another level from the same line.
        if level == 'error':
            self._node.get_logger().error(text)
        elif level == 'warning':
            self._node.get_logger().warning(text)
        else:
            self._node.get_logger().info(text)

    def _publishers(self) -> list[str]:
        found = self._node.get_publishers_info_by_topic('arm/motors')
        return [f'{each.node_namespace.rstrip("/")}/{each.node_name}' for each in found]

    def _health(self) -> Health:
        driver = self.driver
        warning = driver.fault or ('emergency stop' if driver.emergency else '')
        held = ', '.join(f'{name} {way:+d}' for name, way in driver.held.items())
        return warning, {
            'state': driver.state, 'motors': driver.sent or 'unknown', 'held off': held or 'none',
            'emergency_stop': driver.emergency, 'commands sent': driver.transfers,
            'commands refused': driver.refused, 'errors': driver.errors, **self._values()}
