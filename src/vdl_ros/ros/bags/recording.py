"""Subscribe to topics and write them to a bag: discovery, a bounded queue, loss counts."""

from __future__ import annotations

import fnmatch
import queue
import threading
from collections.abc import Callable

from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

from vdl_ros.bags.reader import BagError
from vdl_ros.common.quoting import quoted
from vdl_ros.robots.contract import Contract
from vdl_ros.ros.bags.bag_writer import BagWriter
from vdl_ros.ros.bags.episode_bags import EpisodeBags
from vdl_ros.ros.bags.message_types import check_topic, message_class
from vdl_ros.ros.bags.qos_profiles import DEPTH, weakest
from vdl_ros.ros.bags.recording_config import RecordConfig

__all__ = ['Recording', 'topics_of']


def topics_of(contract: Contract, resolve: Callable[[str], str]) -> str:
    """Return the topics of all robots of a contract, separated by commas."""
    names = [name if name.startswith('/') or not (space := contract.topics_of(copy))
             else f'{space}/{name}'
             for copy in range(contract.copies) for name in contract.recorded]
    return ','.join(dict.fromkeys(map(resolve, names)))


class Recording:
    """
    Subscribes to topics that match and writes their messages in a thread of its own.

    Attributes:
        received: messages that arrived.
        dropped: those of them that did not fit into the memory limit.
        failure: why writing ended early; None while it continues.
    """

    def __init__(
        self, node: Node, config: RecordConfig, bag: BagWriter | EpisodeBags,
    ) -> None:
        """Start the writing thread; call :meth:`discover_topics` to subscribe."""
        self._node, self._bag = node, bag
        self._patterns = [each.strip() for each in config.topics.split(',')]
        self._free = config.max_memory << 20
        self._bag_lock, self._budget_lock = threading.Lock(), threading.Lock()
        self._messages: queue.SimpleQueue[
            tuple[int, int, bytes] | threading.Event | None] = queue.SimpleQueue()
        self._seen: set[str] = set()
        self.received = self.dropped = 0
        self.failure: OSError | None = None
        self._thread = threading.Thread(target=self._write, name='bag')
        self._thread.start()

    def discover_topics(self) -> None:
        """Subscribe to topics that are new since the last call."""
        for name, types in self._node.get_topic_names_and_types():
            if name in self._seen or not self._matches(name):
                continue
            try:
                check_topic(name)
                infos = self._node.get_publishers_info_by_topic(name)
                if not infos:
                    continue
                kind = message_class(types[0])
                with self._bag_lock:
                    handle = self._bag.add_topic(
                        name, types[0], [info.qos_profile for info in infos])
            except BagError as error:
                self._seen.add(name)
                self._node.get_logger().warning(f'{quoted(name)} is not recorded: {error}')
                continue
            self._seen.add(name)
            self._subscribe(name, kind, handle, [info.qos_profile for info in infos])
            self._node.get_logger().info(f'recording {name} ({types[0]})')

    def _matches(self, name: str) -> bool:
        """Return whether a pattern chooses a topic; compressed copies have to be named."""
        return any(fnmatch.fnmatchcase(name, pattern)
                   or fnmatch.fnmatchcase(name.rsplit('/', 1)[-1], pattern)
                   for pattern in self._patterns
                   if not name.endswith('/compressed') or pattern.endswith('compressed'))

    def _subscribe(
        self, name: str, kind: type, handle: int, offered: list[QoSProfile],
    ) -> None:
        """Request no more than every publisher offers, so that all match."""
        profile = weakest(
            all(each.reliability == ReliabilityPolicy.RELIABLE for each in offered),
            all(each.durability == DurabilityPolicy.TRANSIENT_LOCAL for each in offered))
        self._node.create_subscription(
            kind, name, lambda data: self._receive(handle, data), profile, raw=True)

    @property
    def most_queued(self) -> int:
        """The largest number of messages that the subscriptions can hold."""
        return DEPTH * len(self._seen)

    def _receive(self, handle: int, data: bytes) -> None:
        self.received += 1
        with self._budget_lock:
            if self.failure is not None or len(data) > self._free:
                self.dropped += 1
                return
            self._free -= len(data)
        self._messages.put((handle, self._node.get_clock().now().nanoseconds, data))

    def _write(self) -> None:
        while (item := self._messages.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
                continue
            handle, stamp, data = item
            if self.failure is None:
                try:
                    with self._bag_lock:
                        self._bag.write(handle, stamp, data)
                except OSError as error:
                    self.failure = error
            with self._budget_lock:
                self._free += len(data)

    def flush(self) -> None:
        """Wait until everything that was received is written."""
        written = threading.Event()
        self._messages.put(written)
        written.wait()

    def close(self) -> None:
        """Write the queued messages and end the thread."""
        self._messages.put(None)
        self._thread.join()
