"""Engages the emergency stop of the arm, or releases it with ``release`` (docs/arm.md).

Exit status 1: no driver answers, the arm does not, or the stop that was seen is not released.
"""

import threading
import time
from collections.abc import Sequence

from rclpy.executors import Executor

from vdl_ros.common.command_line import OneLineParser
from vdl_ros.msg import EmergencyStopState, MotorCommand
from vdl_ros.ros import qos
from vdl_ros.ros.arm.arm_topics import moves, release_request, stop_request
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.process import EXIT_OK, split_words

EXIT_NOT_DONE = 1
# Longest wait for the driver's answer, s.
_PATIENCE_S, _AGAIN_S = 10.0, 0.5
_REASON = 'ros2 run vdl_ros stop'


class StopNode(BaseNode):
    """Sends one request and waits until the driver says that it was done."""

    NAME = 'stop'

    def __init__(self, release: bool = False) -> None:
        super().__init__()
        self._release = release
        self._state: EmergencyStopState | None = None
        # Whether the driver has taken this stop: another one may follow.
        self._is_taken = release
        # Whether the arm has taken a command since then, and it has all motors off.
        self._are_off = False
        self._requests = self.pub('arm/emergency_stop' + ('_release' if release else ''))
        self._stop = stop_request(self.get_fully_qualified_name(), _REASON)
        self.sub('arm/emergency_stop_state', self._on_state)
        # The driver repeats what the arm follows, if the arm takes it. Not what it took earlier.
        self.sub('arm/motors_sent', self._on_sent, qos.COMMAND)
        if not release:
            self._requests.publish(self._stop)

    def work(self, executor: Executor, stop: threading.Event) -> int:
        seen: EmergencyStopState | None = None
        started = time.monotonic()
        deadline, again = started + _PATIENCE_S, started + _AGAIN_S
        while not stop.is_set() and time.monotonic() < deadline:
            executor.spin_once(timeout_sec=0.1)
            state = self._state
            # It could be lost among others: one that is not known to be taken is repeated.
            if not self._is_taken and time.monotonic() > again:
                again += _AGAIN_S
                self._requests.publish(self._stop)
            if state is None:
                continue
            # Of another stop, a release may be on its way.
            if state.engaged is not self._release and self._is_taken:
                if not (self._release or self._are_off):
                    continue
                self.get_logger().info('the emergency stop is ' + (
                    'engaged: all motors are off' if state.engaged else 'released'))
                return EXIT_OK
            if self._release and seen is None:
                seen = state
                self._requests.publish(
                    release_request(self.get_fully_qualified_name(), _REASON, seen))
            elif seen is not None and state.header.stamp != seen.header.stamp:
                self.get_logger().error(
                    f'not released: a newer stop by {state.sender or "nobody"}: {state.reason}')
                return EXIT_NOT_DONE
        if not stop.is_set():
            topic = self.resolve_topic_name('arm/emergency_stop_state')
            self.get_logger().error(
                f'no driver has answered on {topic} for {_PATIENCE_S:g} s'
                if self._release or self._state is None else
                'the emergency stop is engaged; whether the motors are off is not known: the arm '
                'does not answer' if self._state.engaged else
                f'the driver has not taken the stop for {_PATIENCE_S:g} s: use the power switch')
        return EXIT_NOT_DONE

    def _on_state(self, message: EmergencyStopState) -> None:
        # The first one may be of an earlier stop, or its release, by the same name.
        self._is_taken |= (
            self._state is not None and message.header.stamp != self._state.header.stamp
            and message.engaged and message.sender == self.get_fully_qualified_name())
        self._state, self._are_off = message, False

    def _on_sent(self, message: MotorCommand) -> None:
        self._are_off = not moves(message)


def main(args: Sequence[str] | None = None) -> int:
    parser = OneLineParser(
        prog='stop', description='Switch all motors of the arm off until the stop is released.')
    parser.add_argument('request', nargs='?', choices=('engage', 'release'), default='engage')
    options, words = split_words(parser, args)
    return StopNode.main(words, options.request == 'release')
