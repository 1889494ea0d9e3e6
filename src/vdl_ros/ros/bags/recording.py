"""Between topics and a bag: finds topics, bounds what waits for the disk, counts what is lost."""

from __future__ import annotations

import fnmatch
import importlib
import queue
import threading

from rclpy.node import Node
from rclpy.qos import (
    DurabilityPolicy,
    HistoryPolicy,
    QoSProfile,
    ReliabilityPolicy,
)

from vdl_ros.ros.bags.bag_writer import BagError, BagWriter
from vdl_ros.ros.bags.recording_config import RecordConfig

__all__ = ['Recording', 'message_class']

_DEPTH = 100


def message_class(type_name: str) -> type:
    """
    Return the Python class of ``pkg/msg/Name``.

    Raises:
        BagError: it is not installed here.
    """
    package, _, name = type_name.partition('/msg/')
    try:
        found: type = getattr(importlib.import_module(f'{package}.msg'), name)
    except (AttributeError, ImportError, ValueError):
        raise BagError(f'{type_name}: its Python class is not installed here') from None
    return found


class Recording:
    """
    Subscribes to what matches and writes it in a thread of its own.

    Attributes:
        heard: messages that came.
        dropped: those of them that found no room.
        failure: why the writing ended early; None while it goes on.
    """

    def __init__(self, node: Node, config: RecordConfig, bag: BagWriter) -> None:
        """Record what ``node`` can hear into ``bag``; call :meth:`look` for new topics."""
        self._node, self._bag = node, bag
        self._patterns = [each.strip() for each in config.topics.split(',')]
        self._free = config.max_memory << 20
        self._bag_lock, self._budget_lock = threading.Lock(), threading.Lock()
        self._messages: queue.SimpleQueue[tuple[int, int, bytes] | None] = queue.SimpleQueue()
        self._known: set[str] = set()
        self.heard = self.dropped = 0
        self.failure: OSError | None = None
        self._thread = threading.Thread(target=self._write, name='bag')
        self._thread.start()

    def look(self) -> None:
        """Subscribe to topics that have appeared."""
        for name, types in self._node.get_topic_names_and_types():
            if name in self._known or not self._wanted(name):
                continue
            infos = self._node.get_publishers_info_by_topic(name)
            if not infos:
                continue
            self._known.add(name)
            try:
                kind = message_class(types[0])
                with self._bag_lock:
                    handle = self._bag.add_topic(
                        name, types[0], [info.qos_profile for info in infos])
            except BagError as error:
                self._node.get_logger().warning(f'{name} is not recorded: {error}')
                continue
            self._subscribe(name, kind, handle, [info.qos_profile for info in infos])
            self._node.get_logger().info(f'recording {name} ({types[0]})')

    def _wanted(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern)
                   or fnmatch.fnmatchcase(name.rsplit('/', 1)[-1], pattern)
                   for pattern in self._patterns)

    def _subscribe(
        self, name: str, kind: type, handle: int, offered: list[QoSProfile],
    ) -> None:
        """Ask for no more than every publisher offers, so that all of them are heard."""
        reliable = all(each.reliability == ReliabilityPolicy.RELIABLE for each in offered)
        latched = all(each.durability == DurabilityPolicy.TRANSIENT_LOCAL for each in offered)
        profile = QoSProfile(
            history=HistoryPolicy.KEEP_LAST, depth=_DEPTH,
            reliability=(ReliabilityPolicy.RELIABLE if reliable
                         else ReliabilityPolicy.BEST_EFFORT),
            durability=(DurabilityPolicy.TRANSIENT_LOCAL if latched
                        else DurabilityPolicy.VOLATILE))
        self._node.create_subscription(
            kind, name, lambda data: self._receive(handle, data), profile, raw=True)

    @property
    def most_waiting(self) -> int:
        """How many messages can have come that were not heard yet."""
        return _DEPTH * len(self._known)

    def _receive(self, handle: int, data: bytes) -> None:
        self.heard += 1
        with self._budget_lock:
            if self.failure is not None or len(data) > self._free:
                self.dropped += 1
                return
            self._free -= len(data)
        self._messages.put((handle, self._node.get_clock().now().nanoseconds, data))

    def _write(self) -> None:
        while (item := self._messages.get()) is not None:
            handle, stamp, data = item
            if self.failure is None:
                try:
                    with self._bag_lock:
                        self._bag.write(handle, stamp, data)
                except OSError as error:
                    self.failure = error
            with self._budget_lock:
                self._free += len(data)

    def close(self) -> None:
        """Write what waits, and end."""
        self._messages.put(None)
        self._thread.join()
