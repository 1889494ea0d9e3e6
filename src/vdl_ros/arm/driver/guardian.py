"""Guardian process: stops the arm when its driver dies or hangs with motors on (docs/design.md).

It holds the read end of a pipe, which the kernel closes when the driver ends. It has a session of
its own and ignores the signals that end processes, so that it outlives the driver's process group.
The pipe carries words of a letter and a time: ``0`` or ``1``, the lamp, which a stop keeps; ``m``,
a heartbeat, motors may be on until this time since boot without another one; ``s``, they are off;
``g``, goodbye: they are off and the guardian ends. The guardian answers on its standard output
when it has started and to each heartbeat: the driver notices one that hangs. Until it is told
otherwise it takes motors to be on: it may replace one that died.
"""

import argparse
import contextlib
import math
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from vdl_ros.arm.driver.usb import (
    ArmUsbError,
    DeviceBusyError,
    DeviceMissingError,
    DisconnectedError,
    Signs,
    UsbArm,
    UsbPort,
    encode,
    load_backend,
)
from vdl_ros.arm.joints import Motors
from vdl_ros.common.children import GUARDIAN, MARK
from vdl_ros.common.consent import time_since_boot
from vdl_ros.common.quoting import cause

# Of one length: neither a write nor a read that takes whole words divides one.
WORD = struct.Struct('=cd')
_GOODBYE, _STILL, _ANSWER, _MOVING = b'g', b's', b'a', b'm'
# Longest wait while motors may be on, s: the kernel does not count a standstill within one.
_LOOK_S = 0.02
# The silence that counts as a hang, s. A transfer and the stop after it may both time out in
# between.
SILENCE_S = 0.4
# A guardian that does not answer for this time hangs, s; a busy machine delays it by less.
_ANSWER_S = 1.0
# Time for the imports, on a busy machine, and for the end of one that was killed, s.
_START_S, _KILLED_S = 30.0, 0.1
# A device that is missing for this time is unplugged, s; a hub that resets is back earlier.
_MISSING_S = 2.0
# Pauses between attempts to stop, s: at first short, because the dead driver's device is freed a
# moment later than its pipe.
_PAUSE_S, _MAX_PAUSE_S = 0.01, 0.1
# How long a driver waits for its guardian to end, s.
_END_S = 3.0
REPLACED = 'the guardian died or hangs; it is started again'


class GuardianError(OSError):
    """The guardian does not start, or is dead."""


class Guard:
    """Stops the arm if its driver dies or hangs; this one, of a simulated arm, does nothing."""

    @property
    def alive(self) -> bool:
        """Whether it has started and answers heartbeats."""
        return True

    def start(self, *, wait: bool = False) -> None:
        """Start it unless it is alive or starting; GuardianError: it is not alive yet.

        ``wait`` for it only with motors off: meanwhile nobody is heard who stops them.
        """

    def set_lamp(self, lit: bool) -> None:
        """Set the lamp's state that a stop keeps."""

    def heartbeat(self, duration: float) -> None:
        """Report for how long, s, motors may be on until the next call; 0: they are off.

        At most ``SILENCE_S``; call it many times a second.
        """

    def end(self, *, stopped: bool) -> None:
        """End it; unless the motors are known to be off, it first tries to stop them.

        Then GuardianError is raised if it does not answer; another one is started.
        """


class Guardian(Guard):
    """The driver's end of the pipe: starts and ends the process, sends heartbeats and lamp.

    Args:
        port: returns the USB port of the arm that the driver holds, when it starts the process.
    """

    def __init__(self, product: int, backend: str, port: Callable[[], str] = str) -> None:
        self._options = [f'--product={product}', f'--backend={backend}']
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._lamp = self._moving = False
        self._started_at = -math.inf
        # When the first heartbeat was sent that has no answer yet; -infinity: it starts.
        self._unanswered_at: float | None = None

    @property
    def alive(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            return False
        assert self._process.stdout is not None
        if self._unanswered_at is not None and self._process.stdout.read(4096):
            self._unanswered_at = None
        return (self._unanswered_at is None or time.monotonic() - self._unanswered_at < _ANSWER_S)

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def start(self, *, wait: bool = False) -> None:
        if self.alive:
            return
        if not self._is_starting:
            # It may hang.
            self._release(kill=True)
            self._launch()
        while wait and self._is_starting and not self.alive:
            self._await_answer()
        if wait and not self.alive:
            self._release(kill=True)
            raise GuardianError('the guardian does not start: without it the arm would go on '
                                'moving if this process died')
        if not self.alive:
            raise GuardianError(REPLACED)

    @property
    def _is_starting(self) -> bool:
        return (self._process is not None and self._process.poll() is None
                and self._unanswered_at == -math.inf
                and time.monotonic() - self._started_at < _START_S)

    def _await_answer(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        select.select([self._process.stdout], [], [], _MAX_PAUSE_S)

    def _launch(self) -> None:
        # Without the current folder: a usb.py there must not replace pyusb.
        environment = {**os.environ, 'PYTHONSAFEPATH': '1', MARK: GUARDIAN}
        try:
            self._process = subprocess.Popen(
                [sys.executable, '-m', 'vdl_ros.arm.driver.guardian', *self._options,
                 f'--port={self._port()}'],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment,
                start_new_session=True)
        except OSError as error:
            raise GuardianError(f'the guardian cannot be started: {error}') from error
        # A guardian that hangs must not block the driver.
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for stream in (self._process.stdin, self._process.stdout):
            os.set_blocking(stream.fileno(), False)
        self._started_at, self._unanswered_at = time.monotonic(), -math.inf
        self._moving = True
        self._send(b'01'[self._lamp:self._lamp + 1])

    def set_lamp(self, lit: bool) -> None:
        if lit != self._lamp:
            self._lamp = lit
            self._send(b'01'[lit:lit + 1])

    def heartbeat(self, duration: float) -> None:
        if duration:
            if self._unanswered_at is None:
                self._unanswered_at = time.monotonic()
            self._send(_MOVING, time_since_boot() + duration)
        elif self._moving:
            self._send(_STILL)
        self._moving = duration > 0.0

    def end(self, *, stopped: bool) -> None:
        if stopped:
            self._send(_GOODBYE)
        elif self.alive:
            self.heartbeat(SILENCE_S)
            while self.alive and self._unanswered_at is not None:
                self._await_answer()
        try:
            if not stopped:
                self.start()
        finally:
            self._release()

    def _send(self, letter: bytes, until: float = 0.0) -> None:
        if self._process is not None and self._process.stdin is not None:
            # A dead guardian shows in ``alive``.
            with contextlib.suppress(OSError, ValueError):
                self._process.stdin.write(WORD.pack(letter, until))

    def _release(self, *, kill: bool = False) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if kill:
            process.kill()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        # Without the wait it would stay a zombie. It goes on by itself if the device fails.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILLED_S if kill else _END_S)


def watch(descriptor: int, on_silence: Callable[[Motors], str | None],
          silence: float = SILENCE_S, answer: Callable[[], object] = bool,
          clock: Callable[[], float] = time_since_boot) -> Motors | None:
    """Wait until the other end of a pipe is closed; return the command that stops the arm.

    It leaves the lamp; None after a goodbye.

    Args:
        descriptor: the pipe's read end.
        on_silence: called with this command when motors may be on and the time that the driver
            said is over; again while the silence lasts, soon if it returns a problem.
        silence: until the first word, and between stops that succeed, s.
        answer: called after each heartbeat.
        clock: of the driver, too, s.
    """
    lamp = False
    pause: float | None = None
    due: float | None = clock() + silence
    while True:
        wait = None if due is None else min(max(0.0, due - clock()), _LOOK_S)
        if select.select([descriptor], [], [], wait)[0]:
            pause = None
            # All: after a standstill the newest heartbeat is the last one.
            read = os.read(descriptor, WORD.size << 13)
            if not read:
                return Motors(lamp=lamp)
            for letter, until in WORD.iter_unpack(read):
                if letter == _GOODBYE:
                    return None
                if letter == _MOVING:
                    due = until
                    answer()
                elif letter == _STILL:
                    due = None
                else:
                    lamp = letter == b'1'
        if due is not None and clock() >= due:
            pause = _longer(pause) if on_silence(Motors(lamp=lamp)) else None
            # A driver that stands still may have a transfer under way that comes after the stop.
            due = clock() + (silence if pause is None else pause)


def stop_arm(motors: Motors, connect: Callable[[], UsbArm],
             clock: Callable[[], float] = time.monotonic,
             pause: Callable[[float], None] = time.sleep,
             log: Callable[[str], None] = lambda text: None) -> str:
    """Send ``motors``; retry until they are accepted or the device is missing for two seconds.

    Return '' or why it counts as missing. ``log`` takes the first other problem.
    """
    missing_since: float | None = None
    length: float | None = None
    logged = False
    while True:
        left = math.inf
        try:
            _send_once(motors, connect)
            return ''
        except (DeviceMissingError, DisconnectedError) as error:
            now = clock()
            missing_since = now if missing_since is None else missing_since
            left = missing_since + _MISSING_S - now
            if left <= 0.0:
                missing = isinstance(error, DeviceMissingError)
                return 'the arm is not connected' if missing else str(error)
        except ArmUsbError as error:
            missing_since = None
            # A device that is still held, by the dead driver for a moment, is no news.
            if not logged and not isinstance(error, DeviceBusyError):
                logged = True
                log(str(error))
        length = _longer(length)
        pause(min(length, left))


def _send_once(motors: Motors, connect: Callable[[], UsbArm]) -> None:
    """Open the device, send ``motors`` and close it; raise ArmUsbError."""
    try:
        with contextlib.closing(connect()) as arm:
            # All off is the same for any signs.
            arm.send(encode(motors, Signs()))
    except ArmUsbError:
        raise
    except Exception as error:
        # Of a backend: it must not end the attempts to stop.
        raise ArmUsbError(f'usb_backend: {cause(error)}') from error


def _longer(pause: float | None) -> float:
    """Return the pause, s, that follows ``pause``; None: the first one."""
    return _PAUSE_S if pause is None else min(2.0 * pause, _MAX_PAUSE_S)


def main(args: Sequence[str] | None = None) -> int:
    """Watch standard input; return 0 if the motors are off in the end."""
    parser = argparse.ArgumentParser(
        prog='guardian', description='Stop the arm when standard input is closed.')
    parser.add_argument('--product', type=int, required=True)
    parser.add_argument('--backend', default='')
    parser.add_argument('--port', default='')
    options = parser.parse_args(args)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        backend: Any = load_backend(options.backend)
    except ValueError as error:
        print(f'guardian: {error}', file=sys.stderr)
        return 2

    silent = 'no heartbeat of the driver in time'
    problems: list[str] = []
    is_told = False

    port = UsbPort(options.product, backend, options.port, held=True)

    def connect() -> UsbArm:
        # Beside the driver, which may hold the device: it hangs, or a new one has started.
        return port.open(share=True)

    def on_silence(motors: Motors) -> str:
        nonlocal is_told
        try:
            _send_once(motors, connect)
        except ArmUsbError as error:
            if not problems:
                _log(f'{silent}; the motors could not be stopped yet: {error}')
            problems.append(str(error))
            return str(error)
        if problems or not is_told:
            _log(f'{silent}, motors stopped'
                 + (f' at attempt {len(problems) + 1}' if problems else ''))
        is_told = True
        problems.clear()
        return ''

    def answer() -> None:
        nonlocal is_told
        is_told = False
        # A driver that hangs reads nothing, one that has ended neither.
        with contextlib.suppress(OSError):
            os.write(sys.stdout.fileno(), _ANSWER)

    os.set_blocking(sys.stdout.fileno(), False)
    answer()
    why = 'the driver has ended'
    try:
        motors = watch(sys.stdin.fileno(), on_silence, answer=answer)
    except Exception as error:
        # A mistake in the program must not leave motors on.
        motors, why = Motors(), f'the guardian failed ({cause(error)})'
    if motors is None:
        return 0
    begin = time.monotonic()
    problem = stop_arm(motors, connect, log=lambda text: _log(
        f'{why}; the motors could not be stopped yet: {text}'))
    _log(f'{why} and the motors could not be stopped: {problem}' if problem else
         f'{why}, motors stopped in {(time.monotonic() - begin) * 1000:.0f} ms')
    return 1 if problem else 0


def _log(text: str) -> None:
    """Print a line unless printing would block."""
    # The reader of the driver's output may be dead too, the terminal paused, or there is none.
    with contextlib.suppress(Exception):
        if select.select([], [sys.stderr], [], 0)[1]:
            print(f'guardian: {text}', file=sys.stderr, flush=True)


if __name__ == '__main__':
    sys.exit(main())
