"""Topics of the arm's driver, the same for the real and the simulated arm.

Subscribes: ``arm/motors``, ``arm/emergency_stop``. Publishes: ``arm/motors_sent``,
``arm/emergency_stop_state``, ``arm/emergency_stop_marker``, ``/diagnostics``, ``/statistics``.
"""

import math
import time
from collections.abc import Callable

from builtin_interfaces.msg import Time
from rclpy.clock import Clock
from rclpy.duration import Duration
from rclpy.publisher import Publisher
from std_msgs.msg import Empty, Header

from vdl_ros.arm.driver.driver import ArmDriver, EmergencyStop, Link, SafetyConfig
from vdl_ros.arm.driver.guardian import Guard
from vdl_ros.arm.driver.usb import Signs
from vdl_ros.arm.joints import JOINTS, MotorError, Motors
from vdl_ros.common.consent import (
    MAX_GAP,
    ROBOT_ENVIRONMENT,
    Consent,
    DelayDetector,
    Precedence,
    StandstillDetector,
    named,
    time_since_boot,
    unique_sender,
)
from vdl_ros.common.quoting import quoted, shown
from vdl_ros.msg import EmergencyStop as EmergencyStopMessage
from vdl_ros.msg import EmergencyStopRelease, EmergencyStopState, MotorCommand
from vdl_ros.ros import qos
from vdl_ros.ros.base_node import BaseNode, Diagnostics, Health
from vdl_ros.ros.messages.joint_messages import stop_marker, time_of
from vdl_ros.ros.process import state_file
from vdl_ros.ros.statistics.statistics import TopicStatistics

# Nodes of this package that have a publisher on arm/motors but rarely publish.
_MOSTLY_IDLE = ('viewer', 'teleop', 'arm_controller', 'policy')
_WARN_AGAIN_S = 5.0
_NAMED = 5  # publishers that a warning names
_COUNT_AGAIN_S = 1.0  # minimum time between two queries of the graph for publishers, s
# Another arm is there if it has been for so long: a driver that was killed disappears later, s.
_SECOND_ARM_S = 3.0


class CommandConflictDetector:
    """Detects two publishers that command the motors at the same time.

    Senders name themselves in their messages; for unnamed ones the ``publishers`` in the graph, by
    their full names, are counted. Senders that alternate within ``window``, s, conflict.
    """

    def __init__(self, window: float, publishers: Callable[[], list[str]]) -> None:
        self._window, self._publishers = window, publishers
        self._commanded_at: dict[str, float] = {}
        self._last = ''
        self._warned_at = -_WARN_AGAIN_S
        self._counted_at = -_COUNT_AGAIN_S

    def update(self, sender: str, now: float) -> str:
        """Return a warning or '' for a command of ``sender`` ('' if unnamed) at ``now``, s."""
        # Only those of the window: senders can invent names.
        self._commanded_at = {name: at for name, at in self._commanded_at.items()
                              if now - at < self._window}
        before = self._commanded_at.get(sender)
        others = [name for name in self._commanded_at if name != sender]
        back = sender != self._last and before is not None
        self._commanded_at[sender], self._last = now, sender
        if now - self._warned_at < _WARN_AGAIN_S:
            return ''
        if back and others:
            names = sorted(name or 'a sender without a name' for name in (sender, *others))
        elif not sender and now - self._counted_at >= _COUNT_AGAIN_S:
            self._counted_at = now
            names = sorted(name for name in self._publishers()
                           if name.rsplit('/', 1)[-1] not in _MOSTLY_IDLE
                           and not name.rsplit('/', 1)[-1].startswith(ROBOT_ENVIRONMENT))
        else:
            return ''
        if len(names) < 2:
            return ''
        self._warned_at = now
        more = f' and {len(names) - _NAMED} more' if len(names) > _NAMED else ''
        return (f'arm/motors: {len(names)} publishers at once: '
                f'{", ".join(map(named, names[:_NAMED]))}{more}')


class SecondArmDetector:
    """Detects another driver that obeys the same commands, as of a second ``arm.launch.py``.

    ``publishers`` returns the full names of all nodes that publish the state of a stop.
    """

    def __init__(self, publishers: Callable[[], list[str]]) -> None:
        self._publishers = publishers
        self._since = math.inf

    def update(self, now: float) -> str:
        names = self._publishers()
        if len(names) < 2:
            self._since = math.inf
            return ''
        self._since = min(self._since, now)
        if now - self._since < _SECOND_ARM_S:
            return ''
        some = ', '.join(map(shown, names[:_NAMED]))
        return (f'{len(names)} arms obey the same commands: {some}: end one, or give it a '
                'namespace or a ROS_DOMAIN_ID of its own')


class FloodDetector:
    """Detects so many messages that a person's stop may be delayed or lost among them."""

    def __init__(self) -> None:
        self._count, self._since = 0, -math.inf

    def update(self, now: float) -> bool:
        """Count a message that came at ``now``, s; return whether they are too many."""
        if now - self._since >= _FLOOD_S:
            self._count, self._since = 0, now
        self._count += 1
        return self._count > _FLOOD


_TICK_S = 0.02  # period of the driver's watchdog, s
# For a user who releases before any driver was there.
NOT_RELEASED = 'nothing to release: no driver has reported the state of the emergency stop'
# In each span, s, more messages than any person or program sends. DDS may lose others among them.
_FLOOD_S, _FLOOD = 0.1, 100
# So far back the wall clock is set by nobody who only corrects it, s.
_SET_BACK_S = 1.0
# Of a sender: the longest name of a node, and what tells its processes apart.
_MAX_SENDER = 300
# Longest wait for a node's last command to arrive, s; if it is lost, the driver's watchdog stops.
_ACK_S = 1.0


def motors_from_message(message: MotorCommand, lamp: bool) -> Motors:
    """Return the command in a message, which may leave the ``lamp`` as is; raises MotorError."""
    if message.lamp not in (-1, 0, 1):
        raise MotorError(f'lamp: {message.lamp} is not allowed: 1 on, -1 off, 0 unchanged')
    return Motors.of([getattr(message, name) for name in JOINTS],
                     lamp=message.lamp == 1 or (message.lamp == 0 and lamp))


def moves(message: MotorCommand) -> bool:
    return any(getattr(message, name) for name in JOINTS)


def wait_for_acks(*publishers: Publisher) -> None:
    """Wait until all published messages are acknowledged, in a node that is about to end."""
    for each in publishers:
        each.wait_for_all_acked(Duration(seconds=_ACK_S))


def message_from_motors(
    motors: Motors, stamp: Time, sender: str, *, with_lamp: bool = False,
) -> MotorCommand:
    lamp = (1 if motors.lamp else -1) if with_lamp else 0
    named = dict(zip(JOINTS, motors.values, strict=True))
    return MotorCommand(header=Header(stamp=stamp), sender=sender, lamp=lamp, **named)


class MotorsPublisher:
    """Publishes the commands of a node, which a ``person`` may start twice, on ``arm/motors``."""

    def __init__(self, node: BaseNode, *, person: bool = False) -> None:
        self._node, self.publisher = node, qos.pub(node, 'arm/motors')
        name = node.get_fully_qualified_name()
        self.sender = unique_sender(name) if person else name

    def send(self, motors: Motors, *, with_lamp: bool = False) -> None:
        self.publisher.publish(message_from_motors(
            motors, self._node.stamp(), self.sender, with_lamp=with_lamp))

    def wait_for_acks(self) -> None:
        wait_for_acks(self.publisher)


def stop_request(sender: str, reason: str) -> EmergencyStopMessage:
    # Not the node's time: simulated time can stand still, and each request has another stamp.
    return EmergencyStopMessage(header=Header(stamp=Clock().now().to_msg()),
                                sender=sender, reason=reason)


def release_request(
    sender: str, reason: str, state: EmergencyStopState,
) -> EmergencyStopRelease:
    """Return the message that releases the ``state`` that the driver published."""
    return EmergencyStopRelease(stop=state.header.stamp, sender=sender, reason=reason)


class ArmTopics:
    """Connects an :class:`ArmDriver` to topics.

    Args:
        real_time: whether time passes while the node does nothing.
        values: returns more values of diagnostics.
    """

    def __init__(
        self, node: BaseNode, config: SafetyConfig, signs: Signs, connect: Callable[[], Link],
        guard: Guard, *, clock: Callable[[], float] = time_since_boot, real_time: bool = True,
        values: Callable[[], dict[str, object]] = dict,
    ) -> None:
        self._node, self._values = node, values
        # Of senders: simulated time may pass faster than DDS finds one of them.
        self._clock = time_since_boot if real_time else clock
        self._name = node.get_fully_qualified_name()
        self._ticked_at = -_TICK_S
        # How long a command has waited is not known: the clocks of two hosts differ, and the
        # middleware of a process that stood still receives, or sends, afterwards what was sent
        # meanwhile.
        self._max_gap = min(config.command_timeout, MAX_GAP) if real_time else math.inf
        self._standstill = StandstillDetector(self._max_gap)
        self._standstill.update()
        self._is_settled = True
        self._delays = DelayDetector(self._max_gap)
        self._sent = qos.pub(node, 'arm/motors_sent')
        self._stop = EmergencyStop(state_file(node, 'emergency_stop', self._name), time.time_ns())
        self._stop.interrupt('the driver has started', time.time_ns())
        self.driver = ArmDriver(config, signs, connect, guard, sent=self._publish,
                                notice=self._log, interrupted=self._interrupt, clock=clock,
                                senders_clock=self._clock)
        node.every(_TICK_S, self._look)
        self._conflicts = CommandConflictDetector(
            config.command_timeout, lambda: self._publishers('arm/motors'))
        self._second_arm = SecondArmDetector(lambda: self._publishers('arm/emergency_stop_state'))
        self._warned_of_second = ''
        # Simulated time passes faster, and its motors harm nobody.
        self._flood = FloodDetector() if clock is time_since_boot else None
        self._offset = time.time() - time_since_boot()
        self._precedence = Precedence(config.command_timeout)
        # When a person began to command, by the clock of the machine, ns.
        self._commanded = 0
        self._stop_state = qos.pub(node, 'arm/emergency_stop_state')
        self._stop_marker = qos.pub(node, 'arm/emergency_stop_marker')
        self._published: EmergencyStopState | None = None
        state = self._stop.state
        self.driver.emergency_stop(state.engaged, f'before this start, {state}')
        self._publish_stop()
        self._statistics = TopicStatistics(node, 'arm/motors')
        Diagnostics(node, self._health)
        # The stop first: of messages that wait, the executor takes one of each in this order.
        qos.sub(node, 'arm/emergency_stop', self._on_stop)
        qos.sub(node, 'arm/emergency_stop_release', self._on_release)
        qos.sub(node, 'arm/motors', self._on_motors, qos.MOTORS)

    def stop(self) -> bool:
        """Switch the motors off and release the device; return whether it accepted the stop.

        The last message of ``arm/motors_sent`` says so, also when the process ends then.
        """
        stopped = self.driver.close()
        wait_for_acks(self._sent)
        return stopped

    def _look(self) -> None:
        """Look for pauses of this process: what was commanded before one is as old."""
        self._standstill.update()
        age = self._standstill.input_age
        if age:
            self.driver.expire(age)
        before, self._offset = self._offset, time.time() - time_since_boot()
        if self._flood and before - self._offset > _SET_BACK_S:
            self._engage(f'the clock was set back by {before - self._offset:.0f} s, for which '
                         'DDS may deliver nothing: start all programs again')
        if age > MAX_GAP and self._is_settled:
            self._interrupt('the driver stood still')
        self._is_settled = age <= MAX_GAP

    def _interrupt(self, reason: str) -> None:
        """Let programs that move the arm end that: a person has to ask them again."""
        self._stop.interrupt(reason, time.time_ns())
        self._publish_stop()

    def _tick(self) -> None:
        """Tick the driver: a flood of messages can starve the node's timers."""
        self._look()
        now = time.monotonic()
        if now - self._ticked_at >= _TICK_S:
            self._ticked_at = now
            self.driver.tick()

    def _check_flood(self, topic: str) -> None:
        """Engage the stop in a flood: one of a person could come seconds later, or never."""
        if self._flood and self._flood.update(time.monotonic()):
            self._engage(f'more than {_FLOOD / _FLOOD_S:.0f} messages/s, the last one on {topic}: '
                         'a stop could be lost')

    def _engage(self, reason: str) -> None:
        if not self._stop.state.engaged:
            self._stop.stop(0, self._name, reason, time.time_ns())
            self._follow_stop()

    def _on_motors(self, message: MotorCommand) -> None:
        self._check_flood('arm/motors')
        self._tick()
        self._statistics.received(message.header.stamp)
        sender = shown(message.sender, _MAX_SENDER)
        try:
            sent = self.driver.sent
            motors = motors_from_message(message, lamp=sent is not None and sent.lamp)
        except MotorError as error:
            self.driver.refuse(f'{named(sender) or "arm/motors"}: {error}')
            return
        # A person's program need not follow a simulated clock.
        delay = self._delays.delay(
            sender, *(_nanoseconds(each) * 1e-9
                      for each in (message.header.stamp, self._node.stamp())), time.time())
        if motors.moving and (delay or self._standstill.recent):
            self.driver.keep_off(motors, sender)
            why = (f'it came {delay:.1f} s later after its stamp than others did' if delay else
                   f'as this node has stood still for more than {self._max_gap:g} s')
            self.driver.refuse(f'{named(sender) or "arm/motors"}: it may be old, {why}')
            return
        now, needs_neutral = self._clock(), self.driver.neutral_required
        begins = self._precedence.begins(
            sender, now, moving=motors.moving, for_lamp=message.lamp != 0)
        if self._precedence.admits(sender, motors.moving, now):
            self.driver.command(motors, sender, self._standstill.input_age)
        elif motors.moving:
            self.driver.keep_off(motors, sender)
        if self._stop.state.engaged:
            # Who goes on after it begins then.
            self._precedence.forget()
        elif begins and (motors.moving or not needs_neutral):
            # A program that has just started may not have found this sender yet.
            self._commanded = max(time.time_ns(), self._commanded + 1)
            if self._precedence.ends_environment(now, moving=motors.moving):
                self._interrupt(f'{named(sender) or "a person"} switched the motors off')
        self._publish_stop()
        # After the command: writing a line to a terminal can block.
        warning = self._conflicts.update(sender, self._clock())
        if warning:
            self._node.get_logger().warning(warning)

    def _on_stop(self, message: EmergencyStopMessage) -> None:
        if self._stop.stop(_nanoseconds(message.header.stamp), message.sender, message.reason,
                           time.time_ns()):
            self._follow_stop()
        elif not self._stop.state.engaged:
            self._log('warning', f'emergency stop: one by {quoted(message.sender)} is ignored: '
                      'it seems to be from before this start, and was released')
        self._tick()

    def _on_release(self, message: EmergencyStopRelease) -> None:
        self._check_flood('arm/emergency_stop_release')
        why = ''
        if self._standstill.update():
            why = 'it may be old, as this node has stood still'
        elif self._stop.release(_nanoseconds(message.stop), message.sender, message.reason,
                                time.time_ns()):
            self._follow_stop()
        elif self._stop.state.engaged:
            why = f'it does not name the latest stop, {self._stop.state}'
        if why:
            self._node.get_logger().warning(
                f'emergency stop: a release by {quoted(message.sender)} is ignored: {why}',
                throttle_duration_sec=_WARN_AGAIN_S)
        self._tick()

    def _follow_stop(self) -> None:
        state = self._stop.state
        self.driver.emergency_stop(state.engaged, str(state))
        # After the motors are off: disk and terminal can block.
        try:
            self._stop.save()
        except OSError as error:
            self._log('warning', f'emergency stop: its state cannot be kept: {error}')
        self._publish_stop()

    def _publish_stop(self) -> None:
        state = self._stop.state
        message = EmergencyStopState(
            engaged=state.engaged, sender=state.sender, reason=state.reason,
            neutral_required=not state.engaged and self.driver.neutral_required,
            commanded=time_of(self._commanded))
        message.header.stamp = time_of(state.stamp)
        if message != self._published:
            self._published = message
            self._stop_state.publish(message)
            self._stop_marker.publish(stop_marker(message))

    def _publish(self, motors: Motors) -> None:
        if motors.moving:
            self._stop.on_motion()
        self._sent.publish(
            message_from_motors(motors, self._node.stamp(), self._name, with_lamp=True))

    def _log(self, level: str, text: str) -> None:
        # One call for each level: rclpy allows only one level for a line of code.
        if level == 'error':
            self._node.get_logger().error(text)
        elif level == 'warning':
            self._node.get_logger().warning(text)
        else:
            self._node.get_logger().info(text)

    def _publishers(self, topic: str) -> list[str]:
        return [f'{each.node_namespace.rstrip("/")}/{each.node_name}'
                for each in self._node.get_publishers_info_by_topic(topic)]

    def _warning_of_second_arm(self) -> str:
        warning = self._second_arm.update(time.monotonic())
        if warning and not self._warned_of_second:
            self._node.get_logger().warning(warning)
        self._warned_of_second = warning
        return warning

    def _health(self) -> Health:
        driver = self.driver
        second = self._warning_of_second_arm()
        warning = driver.fault or ('emergency stop' if driver.emergency else '') or second
        locked = ', '.join(
            f'{name} {direction:+d}' for name, direction in driver.locked_out.items())
        return warning, {
            'state': driver.state, 'motors': driver.sent or 'unknown',
            'locked out': locked or 'none',
            'emergency_stop': driver.emergency, 'commands sent': driver.transfers,
            'commands refused': driver.refused, 'errors': driver.errors, **self._values()}


def _nanoseconds(stamp: Time) -> int:
    return int(stamp.sec * 10**9 + stamp.nanosec)


_UPDATE_S = 0.02


class ArmConsent(Consent):
    """Listens to ``arm/motors``, ``arm/emergency_stop_state`` and ``arm/viewer_alive``.

    ``sender`` is the node's own on ``arm/motors``, if it is not the node's full name.
    """

    def __init__(
        self, node: BaseNode, withdrawn: Callable[[str, bool], None], *,
        yields_to_programs: bool = True, waits_for_driver: bool = False,
        viewer_timeout: float = 0.0, sender: str = '',
    ) -> None:
        super().__init__(
            sender or node.get_fully_qualified_name(), withdrawn, viewer_timeout=viewer_timeout,
            yields_to_programs=yields_to_programs, waits_for_driver=waits_for_driver)
        #: None before the driver's first message.
        self.stop_state: EmergencyStopState | None = None
        node.sub('arm/motors', self._on_motors)
        node.sub('arm/emergency_stop_state', self._on_stop_state)
        node.sub('arm/viewer_alive', self._on_viewer_alive)
        # By the steady clock: a simulated one may be slower, or stand still.
        node.every(_UPDATE_S, self.update)

    def _on_motors(self, message: MotorCommand) -> None:
        self.on_command(message.sender, moving=self.goes_on(message.sender) or moves(message),
                        for_lamp=message.lamp in (-1, 1))

    def _on_stop_state(self, message: EmergencyStopState) -> None:
        self.stop_state = message
        stamp = message.header.stamp
        # What names nobody is no release, but what the driver says.
        self.on_stop(message.engaged, message.neutral_required, (stamp.sec, stamp.nanosec),
                     '' if message.engaged or message.sender else shown(message.reason),
                     (message.commanded.sec, message.commanded.nanosec))

    def _on_viewer_alive(self, _: Empty) -> None:
        self.on_viewer_alive()
