"""Signals that set an event, whatever the main thread is doing at that moment."""

from __future__ import annotations

import queue
import signal
import threading

__all__ = ['set_by_signals']


def set_by_signals(event: threading.Event, *numbers: int) -> None:
    """
    Let signals set ``event``, and do nothing else; for the main thread.

    A handler runs between any two steps of the main thread, which may be setting the event, for
    a signal before this one, or asking for it. It holds the event's lock then, and a handler
    that wanted the lock as well would wait for ever. So handlers only put into a queue, the one
    that can be put into at any time, and a thread sets the event.

    Args:
        event: what the signals set, a moment later.
        numbers: of the signals.
    """
    told: queue.SimpleQueue[None] = queue.SimpleQueue()

    def pass_on() -> None:
        told.get()
        event.set()

    threading.Thread(target=pass_on, name='signals', daemon=True).start()
    for number in numbers:
        signal.signal(number, lambda *_: told.put(None))
