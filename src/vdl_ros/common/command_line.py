"""Command lines of programs: options, exit statuses, output, and what signals do."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import math
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn, TypeVar

from vdl_ros.common.quoting import quoted

T = TypeVar('T')
EXIT_BAD_INPUT = 2
EXIT_DISK = 3  # what was to be kept could not be written
EXIT_INTERRUPTED = 130
# Errors of a disk, which say nothing about the input.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, without the usage, and exit status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_INPUT, f'{self.prog}: {message}\n')


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """Return a function that parses a whole number from ``low`` to ``high``, for ``type``."""
    return _parser(int, lambda found: low <= found <= high,
                   f'a whole number from {low} to {high}')


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


def run_tool(name: str, work: Callable[[], int | None]) -> int:
    """Return the exit status of ``work``; bad input, of which it raises one error, is one line."""
    try:
        return work() or 0
    except (ValueError, OSError) as error:
        print(f'{name}: {" ".join(str(error).split())}', file=sys.stderr)
        return status_of(error)


def status_of(error: Exception) -> int:
    """Return the exit status after a ValueError or OSError, or its cause, that ends a program."""
    is_of_disk = any(isinstance(each, OSError) and each.errno in _DISK_ERRORS
                     for each in (error, error.__cause__))
    return EXIT_DISK if is_of_disk else EXIT_BAD_INPUT


def say(text: str) -> None:
    """Print a line if possible: a terminal that was closed or a full disk must end no work."""
    with contextlib.suppress(OSError):
        print(text, flush=True)


_PR_SET_PDEATHSIG = 1


def set_by_signals(event: threading.Event, *numbers: int) -> None:
    """Install handlers that set ``event`` on the given signals; call in the main thread.

    SIGHUP, which comes when the terminal is closed, stays ignored if ``nohup`` ignores it.

    A handler may interrupt the main thread while it sets or reads the event and holds the event's
    lock; a handler that acquired this lock would wait forever. So handlers only put into a
    ``SimpleQueue``, whose ``put`` is reentrant, and a thread sets the event soon after.
    """
    received: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set_event() -> None:
        received.get()
        event.set()

    threading.Thread(target=set_event, name='signals', daemon=True).start()
    for number in numbers:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: received.put(None))


def stop_on_signals(parent: int | None = None) -> threading.Event:
    """Return an event that SIGINT, SIGTERM, SIGHUP and the death of ``parent`` set.

    Later signals do nothing. ``parent`` is the process id of the one that started this process, if
    it matters.
    """
    event = threading.Event()
    set_by_signals(event, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
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
