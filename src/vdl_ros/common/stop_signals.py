"""Signal handlers that set an event without deadlock."""

from __future__ import annotations

import queue
import signal
import threading

__all__ = ['set_by_signals']


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
