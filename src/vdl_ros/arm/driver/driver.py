"""The arm's driver: its settings, the run time limits, and when motors have to be off."""

import dataclasses
import math
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec

from vdl_ros.arm.driver.guardian import REPLACED, SILENCE_S, Guard, GuardianError
from vdl_ros.arm.driver.run_time import RunTimeLimiter
from vdl_ros.arm.driver.usb import ArmUsbError, DeviceMissingError, Signs, encode
from vdl_ros.arm.joints import JOINTS, Motors
from vdl_ros.common.consent import MAX_GAP, is_program, named, time_since_boot
from vdl_ros.common.files import atomic_file
from vdl_ros.common.quoting import quoted, shown
from vdl_ros.common.settings import SettingError, setting

_SIGN = '1 if the bits 01 turn the joint forward, -1 if 10 do, as it is wired.'
# Somewhat longer than the joint's travel takes at 20 deg/s.
_RUN_TIME = 'Longest time in one direction less that in the other; then the motor only runs back.'


@dataclass(frozen=True)
class SafetyConfig:
    """Safety limits that stop motors, of the real and the simulated arm."""

    command_timeout: float = setting(
        0.5, 'All motors stop after this time without a command.', minimum=0.05, maximum=5.0,
        unit='s')
    refresh_period: float = setting(
        0.2, 'Period of repeating the last command, to detect a disconnected arm.', minimum=0.02,
        maximum=5.0, unit='s')
    base_max_run_time: float = setting(15.0, _RUN_TIME, minimum=1.0, maximum=60.0, unit='s')
    shoulder_max_run_time: float = setting(10.0, _RUN_TIME, minimum=1.0, maximum=60.0, unit='s')
    elbow_max_run_time: float = setting(18.0, _RUN_TIME, minimum=1.0, maximum=60.0, unit='s')
    wrist_max_run_time: float = setting(7.0, _RUN_TIME, minimum=1.0, maximum=60.0, unit='s')
    gripper_max_run_time: float = setting(2.5, _RUN_TIME, minimum=1.0, maximum=60.0, unit='s')

    return_weight: float = setting(
        1.5, 'Weight of a second in the other direction; a joint that lifts the arm is slower.',
        minimum=1.0, maximum=3.0)

    def max_run_time(self, motor: str) -> float:
        """Return how much longer, s, a motor may run in one direction than in the other."""
        return float(getattr(self, f'{motor}_max_run_time'))


@dataclass(frozen=True)
class UsbConfig:
    """The USB device of the real arm and its wiring."""

    autostart: bool = setting(True, 'Configure and activate as soon as the arm is connected.')
    usb_product: int = setting(
        0, 'USB product id: 0, or 1 for newer arms.', minimum=0, maximum=65535)
    usb_port: str = setting(
        '', 'USB port of the arm, such as 1-2.3, of those that `doctor` lists; empty: that of the '
        'only arm.')
    usb_backend: str = setting('', 'module:function that returns a pyusb backend; empty: libusb.')
    base_sign: int = setting(-1, _SIGN, minimum=-1, maximum=1)
    shoulder_sign: int = setting(-1, _SIGN, minimum=-1, maximum=1)
    elbow_sign: int = setting(-1, _SIGN, minimum=-1, maximum=1)
    wrist_sign: int = setting(-1, _SIGN, minimum=-1, maximum=1)
    gripper_sign: int = setting(-1, _SIGN, minimum=-1, maximum=1)

    @property
    def signs(self) -> Signs:
        values = {name: getattr(self, f'{name}_sign') for name in JOINTS}
        for name, value in values.items():
            if value == 0:
                raise SettingError(f'{name}_sign: 0 is not allowed: -1 or 1')
        return Signs(**values)


# How much later than this process the guardian switches off, after the last command and at the
# end of a run time, s.
_LATE_S = 0.05
# Time between attempts to reach an arm that has failed: its motors may be on, s.
_AGAIN_S = 0.1
# Who is first heard so long after an activation, s, may have commanded before: DDS finds it late.
_START_S = 10.0
# Several persons may have no name: one who lets go moves nothing for so long, s.
_LET_GO_S = 0.2
# The same refusal is logged again after this time, s, and at most this many different ones in it.
_REFUSAL_S, _REFUSALS = 5.0, 5


class Link(Protocol):
    """An open device, such as ``usb.UsbArm``."""

    def send(self, packet: bytes) -> None: ...
    def close(self) -> None: ...


# Called with 'info', 'warning' or 'error', and one line.
Notice = Callable[[str, str], None]


class ArmDriver:
    """The commanded and the actual state of the arm's motors; called from one thread.

    Call :meth:`tick` at 50 Hz: watchdog, run time limits and reconnection depend on it.

    Motors are off, whatever is commanded, while the driver is not active; during an emergency stop
    and until its neutral command; ``command_timeout`` after the last command; in the direction in
    which a motor has reached its run time limit; and after a start or a reconnection until the
    sender of what is commanded has let go.

    Args:
        connect: opens the device or raises ArmUsbError.
        sent: called with every command that the device accepted.
        notice: called with one line for the user, once for each event.
        interrupted: called with a reason when the device goes or comes back, or commands are, or
            were, ignored.
        clock: monotonic, s; the arm follows its last command while the machine is suspended.
        senders_clock: that of who commands, s, if it is another one.
    """

    def __init__(self, config: SafetyConfig, signs: Signs, connect: Callable[[], Link],
                 guard: Guard, *, sent: Callable[[Motors], None], notice: Notice,
                 interrupted: Callable[[str], None] = lambda reason: None,
                 clock: Callable[[], float] = time_since_boot,
                 senders_clock: Callable[[], float] | None = None) -> None:
        self._config, self._signs = config, signs
        self._connect, self._guard = connect, guard
        self._on_sent, self._notice, self._clock = sent, notice, clock
        self._senders_clock = senders_clock or clock
        self._on_interrupted = interrupted
        self._link: Link | None = None
        self._opened = self._was_away = False
        self.active = False
        self.emergency = False
        self.fault = ''
        self.transfers = self.errors = self.refused = 0
        self._desired = Motors()
        self._commanded_at = -math.inf
        self.neutral_required = False
        # When senders last commanded a motor that is kept off until they let go, and when they
        # seem to have.
        self._held_back: dict[str, tuple[float, float]] = {}
        # When the others did, who have not let go either.
        self._moved: dict[str, float] = {}
        self._refusals: dict[str, float] = {}
        #: The command that the device follows; None: unknown, as the device reports nothing.
        self.sent: Motors | None = None
        self._sent_at, self._ticked_at = -math.inf, clock()
        self._run_time = RunTimeLimiter(config.max_run_time, config.return_weight)
        # Until when programs, and persons, who are heard for the first time since a start or a
        # reconnection count as commanding since before it; and who was heard.
        self._held_until = self._persons_held_until = -math.inf
        self._heard: set[str] = set()
        self._said, self._notices = True, list[str]()
        self._reported: dict[tuple[str, int], float] = {}
        self._next_try = -math.inf
        # What was logged since the device failed.
        self._faults: set[str] = set()

    @property
    def _stopped(self) -> bool:
        return self.sent is not None and not self.sent.moving

    @property
    def locked_out(self) -> dict[str, int]:
        return self._run_time.exhausted

    @property
    def state(self) -> str:
        if not self._opened:
            return 'closed'
        return 'fault' if self.fault else 'active' if self.active else 'inactive'

    def open(self) -> None:
        """Open the device, stop all motors, start the guard; or ArmUsbError, GuardianError.

        A device that is open is closed before.
        """
        self.close()
        self._desired = Motors()
        try:
            self._attach(wait=True)
        except (ArmUsbError, GuardianError) as error:
            self.fault, self._was_away = str(error), True
            raise
        self._opened, self.fault = True, ''

    def activate(self, *, held: bool = False) -> None:
        """Accept commands from now on; RuntimeError: the device is not open.

        With ``held``, who commands motion already has to let go first; programs have a consent.
        """
        if not self._opened:
            raise RuntimeError('activate() before open()')
        self._desired, self._commanded_at = self._desired.stopped(), -math.inf
        if held:
            self._hold(_START_S)
        self.active = True
        if self._was_away:
            self._on_interrupted('the driver was activated')

    def forget(self) -> None:
        """Stop the motors and forget their run times: the joints were moved to other places."""
        self._desired = self._desired.stopped()
        self._apply(self._clock(), always=True)
        self._run_time.reset(self._clock())

    def deactivate(self) -> bool:
        """Stop and ignore commands; return whether the device accepted the stop."""
        was_active, stopped = self.active, self._ignore()
        if was_active:
            self._on_interrupted('the driver was deactivated')
        return stopped

    def _ignore(self) -> bool:
        self.active, self._was_away = False, True
        self._desired = self._desired.stopped()
        self._apply(self._clock(), always=True)
        return self._stopped

    def close(self) -> bool:
        """Stop and release the device; return whether it accepted the stop. May be repeated."""
        if not self._opened:
            return True
        was_active, stopped = self.active, self._ignore()
        if self._link is not None:
            self._link.close()
        self._link, self._opened, self.sent, self.fault = None, False, None, ''
        try:
            # Without ``stopped`` it sends a stop itself.
            self._guard.end(stopped=stopped)
        except GuardianError as error:
            self._notice('error', f'motors may be on: {error}')
        if was_active:
            self._on_interrupted('the driver was closed')
        return stopped

    def command(self, motors: Motors, sender: str = '', age: float = 0.0) -> None:
        """Run the motors like this until the next command, for ``command_timeout`` at most.

        ``age``: for how long the command may have waited before it was read, s.
        """
        if not self.active:
            return
        now = self._clock()
        self._desired, self._commanded_at = self._hold_back(motors, sender), now - age
        self._apply(now)

    def keep_off(self, motors: Motors, sender: str) -> None:
        """Take note of a command that is not obeyed: its sender has not let go meanwhile."""
        self._hold_back(motors, sender)

    def expire(self, age: float) -> None:
        """Take note that the last command, unless it is newer, is ``age`` old, s of any clock.

        One of before a standstill moves nothing any more, whatever ``command_timeout`` is.
        """
        self._commanded_at = min(self._commanded_at, self._clock() - age)
        if age > MAX_GAP:
            self._desired = self._desired.stopped()

    def refuse(self, reason: str) -> None:
        """Stop because of an invalid command; log the reason at a limited rate."""
        now = self._clock()
        self.refused += 1
        self._desired = self._desired.stopped()
        self._apply(now)
        self._refusals = {text: at for text, at in self._refusals.items() if now - at < _REFUSAL_S}
        if reason not in self._refusals and len(self._refusals) < _REFUSALS:
            self._refusals[reason] = now
            self._notice('warning', f'command refused, motors off: {reason}')

    def _hold_back(self, motors: Motors, sender: str) -> Motors:
        """Return what a command may do in an emergency stop, and after it or a (new) connection.

        After a stop the first command that counts has all motors off. A sender that has commanded
        motion since before must send such a command itself, or pause.
        """
        timeout, now = self._config.command_timeout, self._senders_clock()
        self._held_back = {name: (at, off) for name, (at, off) in self._held_back.items()
                           if now - at < timeout and now - off < _LET_GO_S}
        self._moved = {name: at for name, at in self._moved.items() if now - at < timeout}
        until = self._held_until if is_program(sender) else self._persons_held_until
        is_first = now < until and sender not in self._heard
        if is_first:
            self._heard.add(sender)
        if not motors.moving:
            if sender:
                self._moved.pop(sender, None)
            held = self._held_back.pop(sender, None)
            if held is not None and not sender:
                self._held_back[sender] = held[0], min(held[1], now)
            self.neutral_required &= self.emergency
        elif self.emergency or self.neutral_required or sender in self._held_back or is_first:
            self._held_back[sender] = now, math.inf
            if is_first and not (self._said or is_program(sender)):
                self._said = True
                self._notices.append(f'{named(sender) or "arm/motors"}: motors off until it lets '
                                     'go: it may have commanded them since before this start')
            return motors.stopped()
        else:
            self._moved[sender] = now
        return motors

    def emergency_stop(self, engaged: bool, cause: str = '') -> None:
        """Keep all motors off while engaged, in any state, and then until a neutral command."""
        if engaged == self.emergency:
            return
        self.emergency, self.neutral_required = engaged, True
        # Who repeats a command slowly may do so next after the release.
        self._held_back = {
            name: (at, math.inf) for name, at in self._moved.items()} | self._held_back
        self._moved.clear()
        self._desired = self._desired.stopped()
        self._apply(self._clock())
        text = 'emergency stop: motors off' if engaged else 'emergency stop released'
        self._notice('warning' if engaged else 'info', f'{text} {cause}'.rstrip())

    def tick(self) -> None:
        """Check watchdog and run times, refresh the command, reconnect."""
        self._was_away |= not self.active
        now = self._clock()
        if now - self._ticked_at > MAX_GAP and self._commanded_at <= self._ticked_at:
            # Before anybody has called :meth:`expire`.
            self._desired = self._desired.stopped()
        self._ticked_at = now
        if not self._opened:
            return
        if self._link is not None and not self._guard.alive:
            self._fail(GuardianError(REPLACED))
        if self._link is not None:
            self._apply(now)
        elif now >= self._next_try:
            self._reattach()
        if self._stopped:
            self._guard.heartbeat(0.0)
        else:
            self._beat()

    def _beat(self) -> None:
        """Tell the guard for how long motors may be on if this process stands still from now."""
        left = 0.0
        if self._desired.moving:
            until = self._commanded_at + self._config.command_timeout
            left = max(0.0, min(until - self._clock(), self._run_time.left))
        left = min(SILENCE_S, left + _LATE_S)
        self._run_time.unattended = left
        self._guard.heartbeat(left)

    def _apply(self, now: float, always: bool = False) -> None:
        """Send the desired command if it differs from the last one or a refresh is due."""
        # Logged after the motors are off: writing to a terminal that is paused blocks.
        notices, self._notices = self._notices, []
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
        off: dict[str, Any] = {name: 0 for name, direction in self.locked_out.items()
                               if getattr(wanted, name) == direction}
        wanted = dataclasses.replace(wanted, **off)
        # The guardian may have stopped motors that are to run.
        always |= self._run_time.was_unattended and wanted.moving
        if always or wanted != self.sent or now - self._sent_at >= self._config.refresh_period:
            self._run_time.was_unattended = False
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
        # A device that takes the command may fail to say so.
        self._run_time.attempt(motors, self._clock())
        if motors.moving:
            # Before the transfer: this process may hang or die at any moment after it.
            self._beat()
        link.send(encode(motors, self._signs))
        now = self._clock()
        self._run_time.update(motors, now)
        self.sent, self._sent_at = motors, now
        self.transfers += 1
        self._on_sent(motors)

    def _fail(self, error: OSError) -> None:
        """Try to stop over the failing link, then close it."""
        self.errors += 1
        self.fault = str(error)
        self._faults = {self.fault}
        link, self._link, self.sent = self._link, None, None
        # Until it takes the next command the device follows the last one: its time is counted.
        if link is not None:
            try:
                self._send(link, self._desired.stopped())
            except ArmUsbError:
                self.sent = None
            link.close()
        # Retry at once: motors may be on.
        self._next_try = -math.inf
        motors = 'motors off' if self.sent else 'motors may be on'
        self._notice('error', f'{motors}: {self.fault}')
        # Who learns from the arm meanwhile would learn what never moved it.
        self._on_interrupted('the arm was disconnected')

    def _reattach(self) -> None:
        try:
            try:
                self._attach()
            finally:
                # While this fails, too: only it goes on when this process is killed. Until it has
                # started each attempt stops the motors, and this process hears who stops them.
                self._guard.start()
        except (ArmUsbError, GuardianError) as error:
            # Soon: its motors may be on, also while a hub that resets hides it.
            self._next_try = self._clock() + _AGAIN_S
            # The disconnection itself was logged already.
            if type(error) is not DeviceMissingError:
                self.fault = str(error)
                if self.fault not in self._faults:
                    self._faults.add(self.fault)
                    self._notice('error', self.fault)
            return
        self.fault = ''
        # A hand that plugs it in is near the arm: what is commanded now must be released first.
        # The same for a command that was held up on its way.
        self._desired = self._desired.stopped()
        self._hold()
        self._on_interrupted('the arm is connected again')
        self._notice('info', 'the arm is connected again, motors off; who commands them has to '
                     'let go first')

    def _hold(self, persons: float = 0.0) -> None:
        """Hold back who commands motion now, ``persons`` for so long, s, until it lets go."""
        now = self._senders_clock()
        self._held_until = now + self._config.command_timeout
        self._persons_held_until = max(
            self._persons_held_until, self._held_until, now + persons)
        self._heard.clear()
        self._said = not persons

    def _attach(self, *, wait: bool = False) -> None:
        """Open the device, motors off, and start the guard; raise ArmUsbError, GuardianError."""
        link = self._connect()
        try:
            self._send(link, self._desired.stopped())
            self._guard.start(wait=wait)
            self._guard.heartbeat(0.0)
        except (ArmUsbError, GuardianError):
            link.close()
            self.sent = None
            raise
        self._link = link


# Stops of so many requests are known again when a publisher repeats them after a start.
_REMEMBERED = 64
# Longest sender and reason, characters.
_MAX_LENGTH = 200
# End of the times that a message can contain, ns since 1970.
_END = 2**31 * 10**9


class StopState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state: ``stamp`` is the time of the latest change, ns since 1970, 0 before the first.

    ``sender`` is the node that requested the change, ``reason`` one line.
    """

    engaged: bool = False
    stamp: Annotated[int, msgspec.Meta(ge=0, lt=_END)] = 0
    sender: str = ''
    reason: str = ''

    def __str__(self) -> str:
        return f'by {quoted(self.sender)}: {quoted(self.reason)}'


class _File(msgspec.Struct):
    state: StopState
    # Senders and stamps of the latest stops.
    known: list[tuple[str, int]]


class EmergencyStop:
    """Decides about requests; ``now`` is a time in ns since 1970 on the driver's clock.

    Args:
        path: the file; it may be missing. One that cannot be read, or written, counts as engaged.
    """

    def __init__(self, path: Path, now: int) -> None:
        self._path = path
        found, problem = _File(StopState(), []), ''
        try:
            there = next(each for each in (path, *path.parents) if os.path.lexists(each))
            if path.is_file():
                found = msgspec.json.decode(path.read_bytes(), type=_File)
            elif there == path or not there.is_dir():
                # A pipe would block, and a link may lead to a disk that is not there.
                raise OSError
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
            problem = f'{path} cannot be read: {type(error).__name__}'
        self.state, self._known = found.state, found.known[-_REMEMBERED:]
        self._started, self._repeated = now, set(self._known)
        if not problem:
            try:
                self.save()
            except OSError as error:
                # The next start would not know of a stop.
                problem = f'{path} cannot be written: {type(error).__name__}'
        if problem:
            self.state = StopState(True, now, '', problem)

    def stop(self, stamp: int, sender: str, reason: str, now: int) -> bool:
        """Engage; return False for one that was answered before this start, which is ignored.

        Soon after a start publishers repeat each request once; another one that has the same
        ``stamp``, on the sender's clock, is new. 0: it has none.
        """
        sender = shown(sender, _MAX_LENGTH)
        if stamp:
            if (sender, stamp) in self._repeated and now - self._started < _START_S * 1e9:
                self._repeated.remove((sender, stamp))
                return False
            self._known = [*self._known, (sender, stamp)][-_REMEMBERED:]
        self._change(True, sender, reason, now)
        return True

    def on_motion(self) -> None:
        """Take each request for a new one from now on: it must stop the arm."""
        self._repeated.clear()

    def release(self, releases: int, sender: str, reason: str, now: int) -> bool:
        """Release the state with the stamp ``releases``; return whether it was in force."""
        if not self.state.engaged or releases != self.state.stamp:
            return False
        self._change(False, shown(sender, _MAX_LENGTH), reason, now)
        return True

    def interrupt(self, reason: str, now: int) -> None:
        """Let the state have another stamp, which ends what programs do with the arm."""
        if self.state.engaged:
            self._change(True, self.state.sender, self.state.reason, now)
        else:
            self._change(False, '', reason, now)

    def _change(self, engaged: bool, sender: str, reason: str, now: int) -> None:
        # Always a new stamp: a release of an earlier state does not count any more. Two starts
        # with the same file need two stamps, also where the clock was set back.
        stamp = now if now > self.state.stamp else self.state.stamp + 1 + secrets.randbelow(10**6)
        self.state = StopState(engaged, stamp, sender, shown(reason, _MAX_LENGTH))

    def save(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(self._path) as partial:
                partial.write_bytes(msgspec.json.encode(_File(self.state, self._known)))
        except OSError:
            if self.state.engaged:
                # It may say that it is released. An empty one needs no space, and is engaged.
                self._path.write_bytes(b'')
            raise
