"""Command lines of programs: options, and what SIGINT and SIGTERM do."""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import queue
import signal
import threading
from collections.abc import Callable
from typing import NoReturn

__all__ = ['EXIT_BAD_INPUT', 'OneLineParser', 'number_above_0', 'set_by_signals',
           'signal_at_death_of', 'whole_number']


EXIT_BAD_INPUT = 2


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, without the usage, and exit status 2."""

    def error(self, message: str) -> NoReturn:
        """Exit with a line that says what is wrong."""
        self.exit(EXIT_BAD_INPUT, f'{self.prog}: {message}\n')


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """Return a function that parses a whole number from ``low`` to ``high``, for ``type``."""
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(
                f'{text!r} is not allowed: a whole number from {low} to {high}')
        return number
    return parse


def number_above_0(text: str) -> float:
    """Return a finite number above 0, for ``type``."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.0 < number < math.inf:
        raise argparse.ArgumentTypeError(f'{text!r} is not allowed: a number above 0')
    return number


_PR_SET_PDEATHSIG = 1


def set_by_signals(event: threading.Event, *numbers: int) -> None:
    """Install handlers that set ``event`` on the given signals; call in the main thread.

    A handler may interrupt the main thread while it sets or reads the event and holds the event's
    lock; a handler that acquired this lock would wait forever. So handlers only put into a
    ``SimpleQueue``, whose ``put`` is reentrant, and a thread sets the event.

    Args:
        event: set by that thread soon after a signal.
    """
    received: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set_event() -> None:
        received.get()
        event.set()

    threading.Thread(target=set_event, name='signals', daemon=True).start()
    for number in numbers:
        signal.signal(number, lambda *_: received.put(None))


def signal_at_death_of(parent: int, number: int) -> None:
    """Let the kernel send this process a signal when its parent dies, or now if it is dead.

    Args:
        parent: process id of the parent that started this process.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # it died while this process was starting
        signal.raise_signal(number)
