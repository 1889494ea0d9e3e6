"""
What the driver of the arm decides: what to send, when, and when to stop. No ROS, no USB.

The arm obeys its last command until the next one and measures nothing, so everything that keeps it
from hurting itself is here: the watchdog, the time a motor may run one way, the emergency stop,
and what happens when the device fails. A stop switches all motors off and leaves the lamp.
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
from vdl_ros.arm.driver.usb import ArmUsbError, DeviceMissingError
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.motor_command import Motors

__all__ = ['ArmDriver', 'Guard', 'Link', 'Notice']

# Between two attempts to find a device that is gone, s; an attempt costs the executor some ms.
_RETRY_S = 0.25
# A refused command is said again after so long, s; and of so many different ones in that time.
_REFUSAL_S, _REFUSALS = 5.0, 5


class Link(Protocol):
    """An open device; ``usb.UsbArm``."""

    def send(self, packet: bytes) -> None:
        """Write one command, or raise ArmUsbError."""

    def close(self) -> None:
        """Release the device."""


class Guard(Protocol):
    """Who stops the arm if this process dies or hangs; ``guardian.Guardian``."""

    @property
    def alive(self) -> bool:
        """Return whether it would."""

    def start(self) -> None:
        """Start it unless it is alive, or raise GuardianError."""

    def lamp(self, lit: bool) -> None:
        """Say which lamp a stop would leave."""

    def beat(self, moving: bool) -> None:
        """Say whether motors may be on; while they are, silence means that this process hangs."""

    def end(self, *, stopped: bool) -> None:
        """Let it go; without ``stopped`` it tries to stop the motors."""


# Called with 'info', 'warning' or 'error', and one line.
Notice = Callable[[str, str], None]


class ArmDriver:
    """
    The arm's motors as they shall be and as they are; called from one thread.

    :meth:`tick` has to be called often (50 Hz): watchdog, run times and reconnection depend on it.
    """

    def __init__(self, config: SafetyConfig, signs: Signs, connect: Callable[[], Link],
                 guard: Guard, *, sent: Callable[[Motors], None], notice: Notice,
                 clock: Callable[[], float] = time.monotonic) -> None:
        """
        Prepare, closed and inactive.

        Args:
            config: settings.
            signs: how the arm is wired.
            connect: opens the device or raises ArmUsbError.
            guard: of this process.
            sent: called with every command that the device has taken.
            notice: called with what a person should know, once for each event.
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
        self._heard = -math.inf
        self._refusals: dict[str, float] = {}
        # None: unknown. The device does not say.
        self._sent: Motors | None = None
        self._sent_at = -math.inf
        self._since: dict[str, tuple[int, float]] = {}
        self._held: dict[str, int] = {}
        self._next_try = -math.inf

    @property
    def sent(self) -> Motors | None:
        """Return what the device obeys; None if nobody knows."""
        return self._sent

    @property
    def held(self) -> dict[str, int]:
        """Return motors that are kept off in a direction until they are commanded otherwise."""
        return dict(self._held)

    @property
    def state(self) -> str:
        """Return 'closed', 'fault', 'inactive' or 'active'."""
        if not self._opened:
            return 'closed'
        return 'fault' if self.fault else 'active' if self.active else 'inactive'

    def open(self) -> None:
        """
        Open the device, stop whatever it was doing, start the guard.

        Raises:
            ArmUsbError: the device cannot be used.
            GuardianError: nobody would stop it if this process died.
        """
        self._desired = Motors()
        try:
            self._attach()
        except (ArmUsbError, GuardianError) as error:
            self.fault = str(error)
            raise
        self._opened, self.fault = True, ''

    def activate(self) -> None:
        """Obey commands that come from now on."""
        self._desired, self._heard = self._desired.stopped(), -math.inf
        self._held.clear()
        self.active = True

    def deactivate(self) -> bool:
        """Stop; obey nothing. Return whether the device has taken the stop."""
        self.active = False
        self._desired = self._desired.stopped()
        self._apply(self._clock(), always=True)
        return self._stopped

    def close(self) -> bool:
        """Stop and release the device; return whether the stop was taken. Harmless if closed."""
        if not self._opened:
            return True
        stopped = self.deactivate()
        if self._link is not None:
            self._link.close()
        self._link, self._opened, self._sent, self.fault = None, False, None, ''
        # A guard that is not told of a stop tries to send one.
        self._guard.end(stopped=stopped)
        return stopped

    def command(self, motors: Motors) -> None:
        """Let the motors do this until the next command, at most ``command_timeout``."""
        if not self.active:
            return
        if self.emergency:
            motors = motors.stopped()
        for name in JOINTS:
            if self._held.get(name, 0) != getattr(motors, name):
                self._held.pop(name, None)
        self._desired, self._heard = motors, self._clock()
        self._apply(self._heard)

    def refuse(self, reason: str) -> None:
        """Stop because a command could not be understood; say so, but not often."""
        now = self._clock()
        self.refused += 1
        self._desired = self._desired.stopped()
        self._apply(now)
        self._refusals = {
            text: at for text, at in self._refusals.items() if now - at < _REFUSAL_S}
        if reason not in self._refusals and len(self._refusals) < _REFUSALS:
            self._refusals[reason] = now
            self._notice('warning', f'command refused, motors off: {reason}')

    def emergency_stop(self, engaged: bool) -> None:
        """Keep all motors off while engaged, in any state; afterwards a new command is needed."""
        if engaged == self.emergency:
            return
        self.emergency = engaged
        self._desired = self._desired.stopped()
        self._apply(self._clock())
        self._notice('warning' if engaged else 'info',
                     'emergency stop: motors off' if engaged else 'emergency stop released')

    def tick(self) -> None:
        """Do what time asks for: watchdog, run times, refresh, reconnection."""
        if not self._opened:
            return
        now = self._clock()
        if self._link is not None and not self._guard.alive:
            self._fail(GuardianError('the guardian died; it is started again'))
        if self._link is not None:
            self._apply(now)
        elif now >= self._next_try:
            self._reattach()
        self._guard.beat(not self._stopped)

    @property
    def _stopped(self) -> bool:
        return self._sent is not None and not self._sent.moving

    def _apply(self, now: float, always: bool = False) -> None:
        """Send what is wanted if it differs from what was sent, or is due again."""
        # Said when the motors are off: who writes to a terminal that is held waits for it.
        notices = []
        if self._desired.moving and now - self._heard >= self._config.command_timeout:
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
            name: 0 for name, way in self._held.items() if getattr(wanted, name) == way}
        wanted = dataclasses.replace(wanted, **off)
        if always or wanted != self._sent or now - self._sent_at >= self._config.refresh_period:
            try:
                self._send(link, wanted)
            except ArmUsbError as error:
                self._fail(error)

    def _limit_run_time(self, now: float) -> list[str]:
        """Hold what has run too long; return what to say of it."""
        notices = []
        for name, (way, since) in self._since.items():
            limit = self._config.max_run_time(name)
            if now - since >= limit and name not in self._held:
                self._held[name] = way
                notices.append(f'{name} ran {limit:g} s one way ({way:+d}): off until it is '
                               'commanded off or the other way')
        return notices

    def _send(self, link: Link, motors: Motors) -> None:
        """Send, and write down what was sent; raise ArmUsbError."""
        self._guard.lamp(motors.lamp)
        if motors.moving:
            # Before: from the transfer on nothing here may be relied on.
            self._guard.beat(True)
        link.send(encode(motors, self._signs))
        now = self._clock()
        for name in JOINTS:
            way = getattr(motors, name)
            if not way:
                self._since.pop(name, None)
            elif self._since.get(name, (0, 0.0))[0] != way:
                self._since[name] = (way, now)
        self._sent, self._sent_at = motors, now
        self.transfers += 1
        self._on_sent(motors)

    def _fail(self, error: OSError) -> None:
        """Stop by what is left of the link, and give it up."""
        self.errors += 1
        self.fault = str(error)
        link, self._link, self._sent = self._link, None, None
        self._since.clear()
        if link is not None:
            try:
                self._send(link, self._desired.stopped())
            except ArmUsbError:
                self._sent = None
            link.close()
        # At once: motors may be on.
        self._next_try = -math.inf
        self._notice('error', f'motors off: {self.fault}')

    def _reattach(self) -> None:
        try:
            self._attach()
        except (ArmUsbError, GuardianError) as error:
            self._next_try = self._clock() + _RETRY_S
            # That it is gone was said already, in fewer words.
            if not isinstance(error, DeviceMissingError) and str(error) != self.fault:
                self.fault = str(error)
                self._notice('error', self.fault)
            return
        self.fault = ''
        # Whoever plugs it in has a hand near it: what is commanded now has to be let go first.
        fresh = self._clock() - self._heard < self._config.command_timeout
        if self.active and fresh:
            self._held.update({name: getattr(self._desired, name) for name in JOINTS
                               if getattr(self._desired, name)})
        waiting = '; off until they are commanded off or the other way: ' + ', '.join(
            self._held) if self._held else ''
        self._notice('info', f'the arm is back, motors off{waiting}')

    def _attach(self) -> None:
        """Open the device with all motors off and a guard; raise ArmUsbError or GuardianError."""
        link = self._connect()
        try:
            self._send(link, self._desired.stopped())
            self._guard.start()
        except (ArmUsbError, GuardianError):
            link.close()
            self._sent = None
            raise
        self._link = link
