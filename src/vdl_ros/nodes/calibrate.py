"""Guided calibration: moves each joint, estimates what the arm is like, and writes a file.

It commands one motor at a time, and all motors off at the end. See docs/calibration.md.
"""

import select as io
import sys
import termios
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from rcl_interfaces.srv import GetParameters
from rclpy.exceptions import InvalidServiceNameException
from rclpy.executors import Executor
from sensor_msgs.msg import JointState

from vdl_ros.arm.calibration.calibration_file import write
from vdl_ros.arm.calibration.estimation import calibration_of, estimate, table
from vdl_ros.arm.calibration.moves import CalibrateConfig, CalibrationError, CalibrationMoves
from vdl_ros.arm.driver.usb import Signs
from vdl_ros.arm.geometry import GeometryConfig, Positions
from vdl_ros.arm.joints import JOINTS, MotorError, Motors
from vdl_ros.arm.simulation.scene import CollisionChecker, build_scene
from vdl_ros.common.command_line import say
from vdl_ros.common.quoting import cause
from vdl_ros.common.settings import SettingError
from vdl_ros.msg import ArmPose, MotorCommand
from vdl_ros.ros import qos
from vdl_ros.ros.arm.arm_topics import ArmConsent, MotorsPublisher, motors_from_message
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.messages.joint_messages import positions_of, seconds
from vdl_ros.ros.process import EXIT_OK, call_back

RATE_HZ = 50.0
EXIT_ABORTED = 1
# Time after which it says what it waits for, s.
SAY_S = 5.0
# Longest wait for the parameters of the arm's driver, s.
ASK_S = 30.0


class CalibrateNode(BaseNode):
    """Connects :class:`CalibrationMoves` to the arm's topics."""

    NAME = 'calibrate'
    SETTINGS = (CalibrateConfig, GeometryConfig)

    def __init__(self) -> None:
        super().__init__()
        self._config = self.settings(CalibrateConfig)
        self._output = Path(self._config.output)
        if not self._output.parent.is_dir() or self._output.is_dir():
            raise SettingError(
                f'output: {self._config.output!r} is not allowed: a file in a folder that exists')
        self._scene = build_scene(self.settings(GeometryConfig).load())
        self._moves = CalibrationMoves(
            CollisionChecker(self._scene), self._config.moves, self._config.names)
        self._failure = ''
        self._running, self._late, self._said = False, False, 0
        self._reading: tuple[float, Positions] | None = None
        self._driver = ''
        self._motors = MotorsPublisher(self, person=True)
        self._consent = ArmConsent(
            self, self._on_withdrawn, waits_for_driver=True, sender=self._motors.sender)
        self._topic = 'arm/pose' if self._config.feedback == 'camera' else 'arm/joint_states'
        # All of them, where the newest would be enough to control.
        self.sub(self._topic, self._on_reading, qos.SENSOR)
        self.sub('arm/motors_sent', self._on_sent)
        self.every(1.0 / RATE_HZ, self._update, simulated=True)

    @property
    def _missing(self) -> str:
        """What the arm has not sent yet."""
        arrived = ((self._topic, self._reading), ('arm/motors_sent', self._driver),
                   ('arm/emergency_stop_state', self._consent.stop_state))
        return ', '.join(topic for topic, message in arrived if not message)

    @property
    def _has_ended(self) -> bool:
        return self._moves.done or bool(self._failure)

    def stop(self) -> None:
        """Switch the motors off, for good."""
        if self._running:
            self._running = False
            self._motors.send(Motors())
            self._motors.wait_for_acks()

    def make_safe(self) -> None:
        self._fail('an error in this node')

    def _wired(self, executor: Executor, stop: threading.Event) -> Signs:
        """Return the driver's signs; those of the manual if it has none, as the twin."""
        service = f'{self._driver}/get_parameters'
        names = [f'{name}_sign' for name in JOINTS]
        try:
            # A message has named the driver.
            client = self.create_client(GetParameters, service)
            call, deadline = None, time.monotonic() + ASK_S
            while not stop.is_set() and time.monotonic() < deadline:
                if call is None and client.service_is_ready():
                    call = client.call_async(GetParameters.Request(names=names))
                call_back(executor, 0.05)
                if call is not None and call.done():
                    values = [each.integer_value for each in call.result().values]
                    return (Signs(**dict(zip(JOINTS, values, strict=True))) if any(values)
                            else Signs())
        except (AttributeError, InvalidServiceNameException, ValueError) as error:
            raise CalibrationError(f'{service}: no signs: {cause(error)}') from None
        raise CalibrationError(f'no answer of {service} for {ASK_S:g} s')

    def _on_reading(self, message: JointState | ArmPose) -> None:
        if isinstance(message, ArmPose) and not message.confident:
            return
        try:
            self._reading = seconds(message.header.stamp), positions_of(message)
        except ValueError as error:
            self._fail(f'{self._topic}: {error}')

    def _on_sent(self, message: MotorCommand) -> None:
        self._driver = message.sender
        if not self._running:
            return
        try:
            motors = motors_from_message(message, lamp=False)
            self._moves.accepted(seconds(message.header.stamp), motors)
        except (MotorError, CalibrationError) as error:
            self._fail(str(error))

    def _on_withdrawn(self, reason: str, moved: bool) -> None:
        self._failure = self._failure or reason
        # Without a command if somebody moves the arm: that would stop the other one.
        if self._running and not moved:
            self._motors.send(Motors())

    def _update(self) -> None:
        self._consent.update()
        if not self._running or self._has_ended or self._reading is None:
            return
        if self._consent.missing_viewer:
            self._fail(self._consent.missing_viewer)
            return
        now = self.now()
        # After a moment without updates, what arrived meanwhile may be next in the queue.
        was_late, self._late = self._late, now - self._reading[0] > self._config.moves.stale_after
        if self._late and not was_late:
            return
        try:
            self._motors.send(self._moves.update(now, *self._reading))
        except CalibrationError as error:
            self._fail(str(error))
        if self._moves.step != self._said:
            self._said = self._moves.step
            say(f'[{self._said}/{self._moves.steps + 1}] {self._moves.text}')

    def _fail(self, reason: str) -> None:
        if self._running and not self._failure:
            self._failure = reason
            self._motors.send(Motors())

    def work(self, executor: Executor, stop: threading.Event) -> int:
        said = False
        since = time.monotonic()
        if self._config.yes:
            self._failure = self._consent.ask()
        while self._missing and not (stop.is_set() or self._failure):
            call_back(executor, 0.1)
            if not said and time.monotonic() - since > SAY_S:
                said = True
                say(f'waiting for {self._missing}: is arm.launch.py running?')
            # Without limit only where somebody answers a question afterwards.
            if self._config.yes and time.monotonic() - since > ASK_S:
                self._failure = f'no message on {self._missing} for {ASK_S:g} s'
        if self._failure:
            return _end(self._failure, 'the arm did not move')
        try:
            wired = self._wired(executor, stop)
        except CalibrationError as error:
            return _end('interrupted' if stop.is_set() else str(error), 'the arm did not move')
        if not (stop.is_set() or self._config.yes):
            if not _agreed(executor, stop):
                return _end('nobody agreed', 'the arm did not move')
            self._failure = self._consent.ask()
        if self._failure:
            return _end(self._failure, 'the arm did not move')
        self._running = True
        while not (stop.is_set() or self._has_ended):
            call_back(executor, 0.1)
        self.stop()
        if stop.is_set():
            return _end('interrupted')
        if self._failure:
            return _end(self._failure)
        moves = self._moves
        say(f'[{moves.steps + 1}/{moves.steps + 1}] estimate and write')
        found = estimate(moves.recording, self._scene)
        lost = [name for name in moves.joints if name not in found]
        if lost:
            return _end(f'{", ".join(lost)}: too few good moves to estimate anything')
        result = calibration_of(found, self._scene, wired, self._config.feedback)
        try:
            write(self._output, result)
        except OSError as error:
            return _end(str(error))
        say(f'\n{table(found, wired)}\n')
        if '?' in table(found, wired):
            say("'?': too uncertain, not written; the setting keeps its default\n")
        for section in ('driver', 'simulation', 'controller'):
            values = [f'{name} {value:.4g}' for name, value in getattr(result, section).items()]
            say(f'{section}: {", ".join(values) or "nothing"}')
        say(f'\nwritten: {self._output}')
        return EXIT_OK


def _agreed(executor: Executor, stop: threading.Event) -> bool:
    """Ask the person at the terminal; keep receiving meanwhile."""
    if not sys.stdin.isatty():
        print('calibrate: nobody can be asked, standard input is not a terminal: --yes moves the '
              'arm without asking', file=sys.stderr)
        return False
    print('The arm is going to move for some minutes, each joint by itself, about its upright '
          'pose.\nKeep clear of it; Ctrl-C, or the emergency stop, ends it. Move it? [y/N] ',
          end='', flush=True)
    # An answer that was typed before the question is none.
    termios.tcflush(sys.stdin, termios.TCIFLUSH)
    while not stop.is_set():
        if io.select([sys.stdin], [], [], 0.05)[0]:
            return sys.stdin.readline().strip().lower() in ('y', 'yes')
        call_back(executor, 0.0)
    return False


def _end(reason: str, motors: str = 'motors off') -> int:
    print(f'calibrate: {reason}: {motors}, nothing written', file=sys.stderr)
    return EXIT_ABORTED


def main(args: Sequence[str] | None = None) -> int:
    """Run the node; ``--yes`` stands for its parameter."""
    words = list(sys.argv[1:] if args is None else args)
    if '--yes' in words:
        words.remove('--yes')
        words += ['--ros-args', '-p', 'yes:=true']
    return CalibrateNode.main(words)
