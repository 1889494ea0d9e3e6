"""Keyboard control of the arm in a terminal; a motor runs while its key is held."""

import threading
import time

from rclpy.executors import Executor

from vdl_ros.arm.joints import Motors
from vdl_ros.arm.teleop.keyboard import Terminal
from vdl_ros.arm.teleop.teleop import HELP, REPORTS, Teleop, TeleopConfig
from vdl_ros.common.consent import StandstillDetector
from vdl_ros.common.quoting import shown
from vdl_ros.msg import EmergencyStopState
from vdl_ros.ros.arm.arm_topics import (
    NOT_RELEASED,
    MotorsPublisher,
    release_request,
    stop_request,
    wait_for_acks,
)
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.process import EXIT_OK

# Longest wait for input, s.
POLL_S = 0.01
# "All off" is repeated until teleop has run for so long, s: not all nodes have found it before.
FOUND_S, AGAIN_S = 3.0, 0.1


class TeleopNode(BaseNode):
    """Sends the commands of the keys, and nothing while no key is held."""

    NAME = 'teleop'
    SETTINGS = (TeleopConfig,)

    def __init__(self) -> None:
        super().__init__()
        config = self.settings(TeleopConfig)
        self.terminal = Terminal()
        self.keys = Teleop(config)
        self._standstill = StandstillDetector()
        self._period = 1.0 / config.rate
        self._sent, self._sent_lamp, self._sent_at = Motors(), 0, 0.0
        self._started = time.monotonic()
        self._is_off, self._off_at = False, 0.0
        self._name = self.get_fully_qualified_name()
        self._motors = MotorsPublisher(self, person=True)
        self._stop = self.pub('arm/emergency_stop')
        self._release = self.pub('arm/emergency_stop_release')
        self._stop_state: EmergencyStopState | None = None
        self.sub('arm/emergency_stop_state', self._on_stop_state)

    def process_input(self, data: bytes) -> None:
        """Execute the actions of keys and send the motors' command; ``data`` was read now."""
        actions = self.keys.feed(data, time.monotonic())
        self._standstill.update()
        if self._standstill.is_input_old:
            # Typed meanwhile, when nobody expects motion any more, or before a newer stop.
            self.keys.stop()
            actions = [each for each in actions if each != 'release']
        for action in actions:
            if action == 'help':
                self.terminal.log(HELP)
            elif action == 'enable':
                self.terminal.enable_reports(REPORTS)
            elif action == 'ask':
                self.terminal.ask()
            elif action == 'off':
                # Whatever was sent last: a program may move the arm. The first of who moved it
                # counts as letting go only, and one with the lamp as none.
                self._send(self.keys.motors(time.monotonic()))
                self._switch_all_off()
            elif action == 'stop':
                self._stop.publish(stop_request(self._name, 'key e'))
            elif self._stop_state is None:
                self.terminal.log(NOT_RELEASED)
            else:
                self._release.publish(release_request(self._name, 'key r', self._stop_state))
        now = time.monotonic()
        motors = self.keys.motors(now)
        self._is_off &= not motors.moving and now - self._started < FOUND_S
        if self._is_off and now - self._off_at >= AGAIN_S:
            self._switch_all_off()
        self._send(motors)
        self.terminal.set_status(self._status())

    def _switch_all_off(self) -> None:
        self._motors.send(Motors())
        self._is_off, self._off_at = True, time.monotonic()

    def switch_off(self) -> None:
        self.keys.stop()
        self._send(self.keys.motors(time.monotonic()))
        wait_for_acks(self._motors.publisher, self._stop, self._release)

    def _on_stop_state(self, message: EmergencyStopState) -> None:
        self._stop_state = message
        self.keys.set_emergency(message.engaged)
        # Keys that are held have been dropped: the next one that is pressed may move the arm.
        if message.neutral_required and not self.keys.motors(time.monotonic()).moving:
            self._send(Motors(lamp=self.keys.lamp == 1), again=True)

    def _send(self, motors: Motors, again: bool = False) -> None:
        """Send a command if it is new, or if a motor is on and a repetition is due."""
        now = time.monotonic()
        new = motors != self._sent or self.keys.lamp != self._sent_lamp
        if new or again or (motors.moving and now - self._sent_at >= self._period):
            self._sent, self._sent_lamp, self._sent_at = motors, self.keys.lamp, now
            self._motors.send(motors, with_lamp=self.keys.lamp != 0)

    def _status(self) -> str:
        if self._stop_state is not None and self._stop_state.engaged:
            by = f' by {shown(self._stop_state.sender)}' if self._stop_state.sender else ''
            return f'EMERGENCY STOP{by}: r releases it'
        hint = '' if self._motors.publisher.get_subscription_count() else ' (no arm is connected)'
        keys = '' if self.keys.releases else '; one key at a time'
        return f'{self._sent}{hint}   h help, Esc quit{keys}'

    def work(self, executor: Executor, stop: threading.Event) -> int:
        """Steer until a key or signal ends it, or the terminal is closed."""
        with self.terminal as terminal:
            try:
                terminal.log(HELP)
                while not stop.is_set() and not self.keys.quit:
                    data = terminal.read(POLL_S)
                    if data is None:
                        break
                    self.process_input(data)
                    executor.spin_once(timeout_sec=0.0)
            finally:
                self.switch_off()
        return EXIT_OK


main = TeleopNode.main
