"""
Safety logic of the arm's driver: what to send, when, and when to stop. No ROS, no USB.

The arm follows its last command until the next one and has no sensors, so all protection is here:
the command timeout (watchdog), the run time limit of each motor, the emergency stop, and the
reaction to a failing device. A stop switches all motors off and leaves the lamp as it is.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any, Protocol

from vdl_ros.arm.driver.driver_config import SafetyConfig
from vdl_ros.arm.driver.guardian import GuardianError
from vdl_ros.arm.driver.protocol import Signs, encode
from vdl_ros.arm.driver.run_time import RunTimeLimiter
from vdl_ros.arm.driver.usb import ArmUsbError, DeviceMissingError
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.motor_command import Motors

__all__ = ['ArmDriver', 'Guard', 'Link', 'Notice']

# The same refusal is logged again after this time, s, and at most this many different ones in it.
_REFUSAL_S, _REFUSALS = 5.0, 5


class Link(Protocol):
    """An open device; ``usb.UsbArm``."""

    def send(self, packet: bytes) -> None:
        """Write one command, or raise ArmUsbError."""

    def close(self) -> None:
        """Release the device."""


class Guard(Protocol):
    """Stops the arm if this process dies or hangs; ``guardian.Guardian``."""

    @property
    def alive(self) -> bool:
        """Return whether it is running and answers heartbeats."""

    def start(self) -> None:
        """Start it unless it is alive, or raise GuardianError."""

    def set_lamp(self, lit: bool) -> None:
        """Set the lamp's state that a stop keeps."""

    def heartbeat(self, moving: bool) -> None:
        """Report whether motors may be on; while they are, silence means this process hangs."""

    def end(self, *, stopped: bool) -> None:
        """End it; without ``stopped`` it first tries to stop the motors."""


# Called with 'info', 'warning' or 'error', and one line.
Notice = Callable[[str, str], None]


class ArmDriver:
    """
    The commanded and the actual state of the arm's motors; called from one thread.

    Call :meth:`tick` at 50 Hz: watchdog, run time limits and reconnection depend on it.
    """

    def __init__(self, config: SafetyConfig, signs: Signs, connect: Callable[[], Link],
                 guard: Guard, *, sent: Callable[[Motors], None], notice: Notice,
                 clock: Callable[[], float] = time.monotonic) -> None:
        """
        Start closed and inactive.

        Args:
            config: settings.
            signs: how the arm is wired.
            connect: opens the device or raises ArmUsbError.
            guard: stops the arm if this process fails.
            sent: called with every command that the device accepted.
            notice: called with one line for the user, once for each event.
            clock: monotonic, s.
        """
        self._config, self._signs = config, signs
        self._connect, self._guard = connect, guard
        self._on_sent, self._notice, self._clock = sent, notice, clock
        self._link: Link | None = None
        self._opened = False
        self.active = False
        self.emergency = False
        self.fault = ''
        self.transfers = self.errors = self.refused = 0
        self._desired = Motors()
        self._commanded_at = -math.inf
        self.neutral_required = False
        # When senders last commanded a motor that an emergency stop keeps off.
        self._held_back: dict[str, float] = {}
        self._refusals: dict[str, float] = {}
        # None: unknown, as the device reports nothing.
        self._sent: Motors | None = None
        self._sent_at = -math.inf
        self._run_time = RunTimeLimiter(config.max_run_time, config.return_weight)
        # The directions that have to be released after a reconnection, and until when commands
        # count as older than that.
        self._unreleased: dict[str, int] = {}
        self._held_until = -math.inf
        self._reported: dict[tuple[str, int], float] = {}
        self._next_try = -math.inf

    @property
    def sent(self) -> Motors | None:
        """Return the command that the device follows; None if unknown."""
        return self._sent

    @property
    def locked_out(self) -> dict[str, int]:
        """Return by motor the direction that is locked out."""
        return {**self._unreleased, **self._run_time.exhausted}

    @property
    def state(self) -> str:
        """Return 'closed', 'fault', 'inactive' or 'active'."""
        if not self._opened:
            return 'closed'
        return 'fault' if self.fault else 'active' if self.active else 'inactive'

    def open(self) -> None:
        """
        Open the device, stop all motors, start the guard.

        Raises:
            ArmUsbError: the device cannot be used.
            GuardianError: the guard, which stops the arm if this process dies, does not start.
        """
        self._desired = Motors()
        try:
            self._attach()
        except (ArmUsbError, GuardianError) as error:
            self.fault = str(error)
            raise
        self._opened, self.fault = True, ''

    def activate(self) -> None:
        """Accept commands from now on."""
        self._desired, self._commanded_at = self._desired.stopped(), -math.inf
        self._unreleased.clear()
        self._held_until = -math.inf
        self._run_time.reset(self._clock())
        self.active = True

    def deactivate(self) -> bool:
        """Stop and ignore commands; return whether the device accepted the stop."""
        self.active = False
        self._desired = self._desired.stopped()
        self._apply(self._clock(), always=True)
        return self._stopped

    def close(self) -> bool:
        """Stop and release the device; return whether it accepted the stop. May be repeated."""
        if not self._opened:
            return True
        stopped = self.deactivate()
        if self._link is not None:
            self._link.close()
        self._link, self._opened, self._sent, self.fault = None, False, None, ''
        # Without ``stopped`` the guard sends a stop itself.
        self._guard.end(stopped=stopped)
        return stopped

    def command(self, motors: Motors, sender: str = '') -> None:
        """Run the motors like this until the next command, for ``command_timeout`` at most."""
        if not self.active:
            return
        motors = self._hold_back(motors, sender, self._clock())
        for name in JOINTS:
            if self._unreleased.get(name, 0) != getattr(motors, name):
                self._unreleased.pop(name, None)
        if not motors.moving:
            self._held_until = -math.inf
        elif self._clock() < self._held_until:
            self._require_release(motors)
        self._desired, self._commanded_at = motors, self._clock()
        self._apply(self._commanded_at)

    def refuse(self, reason: str) -> None:
        """Stop because of an invalid command; log the reason at a limited rate."""
        now = self._clock()
        self.refused += 1
        self._desired = self._desired.stopped()
        self._apply(now)
        self._refusals = {
            text: at for text, at in self._refusals.items() if now - at < _REFUSAL_S}
        if reason not in self._refusals and len(self._refusals) < _REFUSALS:
            self._refusals[reason] = now
            self._notice('warning', f'command refused, motors off: {reason}')

    def _hold_back(self, motors: Motors, sender: str, now: float) -> Motors:
        """
        Return what a command may do during and after an emergency stop.

        After the release the first command that counts has all motors off. A sender that has
        commanded motion since before it must send such a command itself, or pause.
        """
        timeout = self._config.command_timeout
        self._held_back = {name: at for name, at in self._held_back.items() if now - at < timeout}
        if not motors.moving:
            self._held_back.pop(sender, None)
            self.neutral_required &= self.emergency
        elif self.emergency or self.neutral_required or sender in self._held_back:
            self._held_back[sender] = now
            return motors.stopped()
        return motors

    def emergency_stop(self, engaged: bool, cause: str = '') -> None:
        """
        Keep all motors off while engaged, in any state, and then until a neutral command.

        ``cause`` is logged when ``engaged`` changes.
        """
        if engaged == self.emergency:
            return
        self.emergency, self.neutral_required = engaged, True
        self._desired = self._desired.stopped()
        self._apply(self._clock())
        text = 'emergency stop: motors off' if engaged else 'emergency stop released'
        self._notice('warning' if engaged else 'info', f'{text} {cause}'.rstrip())

    def tick(self) -> None:
        """Check watchdog and run times, refresh the command, reconnect."""
        if not self._opened:
            return
        now = self._clock()
        if self._link is not None and not self._guard.alive:
            self._fail(GuardianError('the guardian died or hangs; it is started again'))
        if self._link is not None:
            self._apply(now)
        elif now >= self._next_try:
            self._reattach()
        self._guard.heartbeat(not self._stopped)

    @property
    def _stopped(self) -> bool:
        return self._sent is not None and not self._sent.moving

    def _apply(self, now: float, always: bool = False) -> None:
        """Send the desired command if it differs from the last one or a refresh is due."""
        # Logged after the motors are off: writing to a terminal that is paused blocks.
        notices = []
        if self._desired.moving and now - self._commanded_at >= self._config.command_timeout:
            self._desired = self._desired.stopped()
            notices.append(f'no command for {self._config.command_timeout:g} s: motors off')
        if self._link is not None:
            notices += self._limit_run_time(now)
            self._update(self._link, now, always)
        for text in notices:
            self._notice('warning', text)

    def _update(self, link: Link, now: float, always: bool) -> None:
        wanted = self._desired
        if not self.active or self.emergency:
            wanted = wanted.stopped()
        off: dict[str, Any] = {
            name: 0 for name, direction in self.locked_out.items()
            if getattr(wanted, name) == direction}
        wanted = dataclasses.replace(wanted, **off)
        if always or wanted != self._sent or now - self._sent_at >= self._config.refresh_period:
            try:
                self._send(link, wanted)
            except ArmUsbError as error:
                self._fail(error)

    def _limit_run_time(self, now: float) -> list[str]:
        """Count the motors' time; return a line for each that has reached its limit."""
        self._run_time.advance(now)
        notices = []
        for name, direction in self._run_time.exhausted.items():
            wanted = getattr(self._desired, name) == direction
            # A sender may turn a motor back and forth at its limit, many times a second.
            if wanted and now - self._reported.get((name, direction), -math.inf) >= _REFUSAL_S:
                notices.append(
                    f'{name} ran {self._config.max_run_time(name):g} s more in one direction '
                    f'({direction:+d}) than in the other: off until it runs in the other')
            if wanted:
                self._reported[name, direction] = now
        return notices

    def _send(self, link: Link, motors: Motors) -> None:
        """Send and record a command; raise ArmUsbError."""
        self._guard.set_lamp(motors.lamp)
        if motors.moving:
            # Before the transfer: this process may hang or die at any moment after it.
            self._guard.heartbeat(True)
        # A device that takes the command may fail to say so.
        self._run_time.attempt(motors, self._clock())
        link.send(encode(motors, self._signs))
        now = self._clock()
        self._run_time.update(motors, now)
        self._sent, self._sent_at = motors, now
        self.transfers += 1
        self._on_sent(motors)

    def _fail(self, error: OSError) -> None:
        """Try to stop over the failing link, then close it."""
        self.errors += 1
        self.fault = str(error)
        link, self._link, self._sent = self._link, None, None
        # Until it takes the next command the device follows the last one: its time is counted.
        if link is not None:
            try:
                self._send(link, self._desired.stopped())
            except ArmUsbError:
                self._sent = None
            link.close()
        # Retry at once: motors may be on.
        self._next_try = -math.inf
        self._notice('error', f'motors off: {self.fault}')

    def _reattach(self) -> None:
        try:
            self._attach()
        except (ArmUsbError, GuardianError) as error:
            self._next_try = self._clock() + self._config.reconnect_period
            # The disconnection itself was logged already.
            if not isinstance(error, DeviceMissingError) and str(error) != self.fault:
                self.fault = str(error)
                self._notice('error', self.fault)
            return
        self.fault = ''
        # A hand that plugs it in is near the arm: what is commanded now must be released first.
        # The same for a command that was held up on its way.
        now, timeout = self._clock(), self._config.command_timeout
        if now - self._commanded_at >= timeout:
            self._held_until = now + timeout
        elif self.active:
            self._require_release(self._desired)
        waiting = ('; off until they are commanded off or in the other direction: '
                   + ', '.join(self._unreleased) if self._unreleased else '')
        self._notice('info', f'the arm is connected again, motors off{waiting}')

    def _require_release(self, motors: Motors) -> None:
        self._unreleased.update({
            name: getattr(motors, name) for name in JOINTS if getattr(motors, name)})

    def _attach(self) -> None:
        """Open the device, motors off, and start the guard; raise ArmUsbError, GuardianError."""
        link = self._connect()
        try:
            self._send(link, self._desired.stopped())
            self._guard.start()
        except (ArmUsbError, GuardianError):
            link.close()
            self._sent = None
            raise
        self._link = link
