"""Command lines of programs: options, exit statuses, output, and what signals do."""

import _signal  # type: ignore[import-not-found]
import argparse
import contextlib
import ctypes
import errno
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar

from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import suggestion

T = TypeVar('T')
EXIT_BAD_INPUT = 2
EXIT_DISK = 3  # what was to be kept could not be written
EXIT_INTERRUPTED = 130
# Errors of a disk, which say nothing about the input.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, without the usage, and exit status 2."""

    def error(self, message: str) -> NoReturn:
        _, unknown, words = message.partition('unrecognized arguments: ')
        if unknown:
            message += suggestion(words.split()[0], self._option_string_actions)
        self.exit(EXIT_BAD_INPUT, f'{self.prog}: {message}\n')


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """Return a function that parses a whole number from ``low`` to ``high``, for ``type``."""
    return _parser(int, lambda found: low <= found <= high, f'a whole number from {low} to {high}')


def number(low: float, high: float, what: str = '') -> Callable[[str], float]:
    """Return a function that parses a number from ``low`` to ``high``, for ``type``."""
    return _parser(float, lambda found: low <= found <= high,
                   f'from {low:g} to {high:g}{" " * bool(what)}{what}')


def _parser(kind: Callable[[str], T], is_allowed: Callable[[T], bool],
            allowed: str) -> Callable[[str], T]:
    def parse(text: str) -> T:
        with contextlib.suppress(ValueError):
            if is_allowed(found := kind(text)):
                return found
        raise argparse.ArgumentTypeError(f'{quoted(text)} is not allowed: {allowed}')
    return parse


#: Parses a finite number above 0, for ``type``.
number_above_0 = _parser(float, lambda found: 0.0 < found < math.inf, 'a number above 0')


def aligned(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """Return a line for each row; cells of the columns in ``right`` are at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ['  '.join(
        cell.rjust(width) if number in right else cell.ljust(width)
        for number, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in rows]


def run_tool(name: str, work: Callable[[], int | None], unmade: Path | None = None) -> int:
    """Return the exit status of ``work``; bad input, of which it raises one error, is one line.

    So is an interrupt, if it is known that it leaves the file or folder ``unmade``.
    """
    try:
        return work() or 0
    except KeyboardInterrupt:
        if unmade is None:
            raise
        print(f'\n{name}: interrupted: {unmade} was not made', file=sys.stderr)
        return EXIT_INTERRUPTED
    except (ValueError, OSError) as error:
        print(f'{name}: {" ".join(str(error).split())}', file=sys.stderr)
        return status_of(error)


def status_of(error: Exception) -> int:
    """Return the exit status after a ValueError or OSError, or its cause, that ends a program."""
    # Not isinstance, which asks the error: that of an environment may raise.
    is_of_disk = any(issubclass(type(each), OSError) and getattr(each, 'errno', 0) in _DISK_ERRORS
                     for each in (error, error.__cause__))
    return EXIT_DISK if is_of_disk else EXIT_BAD_INPUT


def say(text: str, file: TextIO | None = None) -> None:
    """Print a line if possible: a closed terminal, a full disk or a bad stream must end no work.

    An environment may have closed the stream, or replaced it or ``print`` by anything.
    """
    with contextlib.suppress(Exception):
        stream: Any = file or sys.stdout
        stream.write(f'{text}\n')
        stream.flush()


_PR_SET_PDEATHSIG = 1


def set_by_signals(event: threading.Event, *numbers: int) -> None:
    """Install handlers that set ``event`` on the given signals; call in the main thread.

    SIGHUP, which comes when the terminal is closed, stays ignored if ``nohup`` ignores it.

    A handler may interrupt the main thread while it sets or reads the event and holds the event's
    lock; a handler that acquired this lock would wait forever. So a thread sets the event. Python
    writes the number of each signal to its pipe at once, even if the main thread is in a call of
    C that does not return; handlers only write it again, for foreign code may take the pipe's
    place.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def wait() -> None:
        try:
            while os.read(reader, 1)[0] not in numbers:
                pass
        except (OSError, IndexError):
            _end_deaf()
        finally:
            # Also if foreign code raises something in all threads: a later signal has no effect.
            event.set()

    threading.Thread(target=wait, name='signals', daemon=True).start()
    for number in numbers:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _forward)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _hearing.update(process=os.getpid(), writer=writer)
    _ours[:] = [_signal.getsignal(number) for number in _SIGNALS]
    _native.update({number: _action(number) for number in _SIGNALS})


def hears_signals() -> bool:
    """Return whether SIGINT sets an event in this process, and raises no KeyboardInterrupt."""
    return signal.getsignal(signal.SIGINT) is _forward


def handlers_to_restore() -> list[Any]:
    """Return the handlers that are to be in place after code of others has run."""
    return _ours or [_signal.getsignal(number) for number in _SIGNALS]


def is_deaf() -> bool:
    """Return whether code of others has taken SIGINT; it takes 0.1 us."""
    return bool(_ours) and _signal.getsignal(_signal.SIGINT) is not _ours[0]


def restore_native_handlers() -> None:
    """Install the handlers of signals again that a native library has replaced, in any thread."""
    for number, ours in _native.items():
        # Python's table does not know it.
        if _signal.getsignal(number) is _forward and _handler(_action(number)) != _handler(ours):
            _libc.sigaction(number, ours, None)


def _action(number: int) -> Any:
    found = ctypes.create_string_buffer(_ACTION_BYTES)
    _libc.sigaction(number, None, found)
    return found


def _handler(action: Any) -> bytes:
    return bytes(action.raw[:ctypes.sizeof(ctypes.c_void_p)])


def restore_signals(handlers: list[Any]) -> None:
    """Install the handlers of before again, if this is the main thread, which alone can.

    Those that end the program also where Python knows no others: a native library, as Java's,
    takes the signals itself.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number, handler in zip(_SIGNALS, handlers, strict=True):
        # None: one that Python does not know.
        if handler is not None:
            _signal.signal(number, handler)
    if hears_signals():
        signal.set_wakeup_fd(_hearing['writer'], warn_on_full_buffer=False)


# The process whose signals go to a pipe, and the pipe's end.
_hearing = {'process': 0, 'writer': 0}
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Their handlers in that process, and those of the kernel, by number: the structs of sigaction(2),
# of which the handler comes first.
_ours: list[Any] = []
_native: dict[int, Any] = {}
_libc, _ACTION_BYTES = ctypes.CDLL(None), 256
# The process of a thread that forks, and the signals that the thread had blocked before.
_forker = threading.local()


def _forward(number: int, frame: object) -> None:
    if os.getpid() == _hearing['process']:
        try:
            os.write(_hearing['writer'], bytes([number]))
        except BlockingIOError:
            pass
        except OSError:
            _end_deaf()


def _end_deaf() -> NoReturn:
    say('signals: their pipe was closed, by an environment for example, which may only close what '
        'it has opened: the process ends', sys.stderr)
    # A restart does not help.
    os._exit(EXIT_BAD_INPUT)


def _before_fork() -> None:
    # A signal between the fork and the end of _in_fork would go to the pipe of the parent.
    _forker.blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    _forker.process = os.getpid()
    _forker.is_main = threading.current_thread() is threading.main_thread()


def _after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forker.blocked)


def _in_fork() -> None:
    """Let a worker that an environment forks end by SIGTERM, and with its parent; not by SIGINT.

    A Ctrl-C reaches it too, and its parent closes it.
    """
    if _forker.process == _hearing['process']:
        _ours.clear()
        _native.clear()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is _forward:
                signal.signal(number, signal.SIG_DFL)
        # The kernel sends it at the end of the thread that forks.
        if _forker.is_main:
            signal_at_death_of(_forker.process, signal.SIGKILL)
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_fork)


def stop_on_signals(parent: int | None = None) -> threading.Event:
    """Return an event that SIGINT, SIGTERM, SIGHUP and the death of ``parent`` set.

    Later signals do nothing. ``parent`` is the process id of the one that started this process, if
    it matters.
    """
    event = threading.Event()
    set_by_signals(event, *_SIGNALS)
    if parent:
        signal_at_death_of(parent, signal.SIGTERM)
    return event


def interrupt_on_signals() -> None:
    """Let SIGTERM and SIGHUP raise a KeyboardInterrupt in the main thread, as SIGINT does."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def signal_at_death_of(parent: int, number: int) -> None:
    """Let the kernel send this process a signal when its parent dies, or now if it is dead."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # it died while this process was starting
        signal.raise_signal(number)
