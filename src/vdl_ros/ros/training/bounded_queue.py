"""A queue of messages from the executor's thread, bounded by their number and their bytes."""

from __future__ import annotations

import os
import queue
import threading
from typing import Generic, TypeVar

__all__ = ['BoundedQueue', 'memory_budget']

T = TypeVar('T')


def memory_budget() -> int:
    """Return the bytes of messages that may wait: a quarter of the memory, at least 1 GiB."""
    return max(1 << 30, os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') // 4)


class BoundedQueue(Generic[T]):
    """A first-in, first-out queue between two threads."""

    def __init__(self, max_items: int, max_bytes: int | None = None) -> None:
        """Create an empty queue; ``max_bytes`` is :func:`memory_budget` by default."""
        self.max_items = max_items
        self.max_bytes = memory_budget() if max_bytes is None else max_bytes
        self._items: queue.Queue[tuple[T, int]] = queue.Queue(max_items)
        self._lock = threading.Lock()
        self._bytes = 0

    def put(self, item: T, num_bytes: int) -> None:
        """
        Append an item; do not wait.

        Raises:
            queue.Full: too many items, or too many bytes, are waiting.
        """
        with self._lock:
            if self._bytes + num_bytes > self.max_bytes:
                raise queue.Full
            self._items.put_nowait((item, num_bytes))
            self._bytes += num_bytes

    def get(self, timeout: float) -> T:
        """
        Return the next item; wait up to ``timeout`` s.

        Raises:
            queue.Empty: there is none.
        """
        item, num_bytes = self._items.get(timeout=timeout)
        with self._lock:
            self._bytes -= num_bytes
        return item

    def __len__(self) -> int:
        """Return the number of items."""
        return self._items.qsize()

    def __str__(self) -> str:
        """Return what is waiting, for a log line."""
        with self._lock:
            return f'{len(self)} messages of {self._bytes} bytes are waiting'
