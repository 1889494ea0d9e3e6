"""Signals that end a program: those of a user, and the kernel's when the parent dies."""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import threading

__all__ = ['set_by_signals', 'signal_at_death_of']

_PR_SET_PDEATHSIG = 1


def set_by_signals(event: threading.Event, *numbers: int) -> None:
    """
    Install handlers that set ``event`` on the given signals; call in the main thread.

    A handler may interrupt the main thread while it sets or reads the event and holds the event's
    lock; a handler that acquired this lock would wait forever. So handlers only put into a
    ``SimpleQueue``, whose ``put`` is reentrant, and a thread sets the event.

    Args:
        event: set by that thread soon after a signal.
        numbers: of the signals.
    """
    received: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set_event() -> None:
        received.get()
        event.set()

    threading.Thread(target=set_event, name='signals', daemon=True).start()
    for number in numbers:
        signal.signal(number, lambda *_: received.put(None))


def signal_at_death_of(parent: int, number: int) -> None:
    """
    Let the kernel send this process a signal when its parent dies, or now if it is dead already.

    Args:
        parent: process id of the parent that started this process.
        number: of the signal.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # it died while this process was starting
        signal.raise_signal(number)
