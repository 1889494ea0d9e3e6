"""Record topics into one bag, or each episode into a bag of its own."""

import fnmatch
import queue
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

from vdl_ros.bags.reader import PREFIX, BagError, EpisodeLabels, find_bags
from vdl_ros.common.files import LOCK_FILE, lock_folder
from vdl_ros.common.quoting import quoted
from vdl_ros.robots.contract import Contract
from vdl_ros.ros.bags import bag_writer
from vdl_ros.ros.bags.bag_writer import DEPTH, BagWriter

_UNSAVED = 'unsaved'  # folder of the episode that is being recorded


class EpisodeBags:
    """Episodes of one folder, which is locked; messages between them are dropped.

    Another thread may write. An episode begins with the latest message of each latched topic. One
    that was neither saved nor discarded, because its recorder was killed, is removed. ``count`` is
    the number of messages of the current episode, or of the one before.
    """

    def __init__(self, path: Path, *, compression: str = 'none', distribution: str = '') -> None:
        self.path, self.count = path, 0
        self._compression, self._distribution = compression, distribution
        self._lock = threading.Lock()
        self._topics: list[tuple[str, str, list[QoSProfile]]] = []
        self._latched: dict[int, bytes] = {}
        self._bag: BagWriter | None = None
        self._handles: dict[int, int] = {}
        try:
            others = [each.name for each in (path.iterdir() if path.exists() else ())
                      if not each.name.startswith(PREFIX)
                      and each.name not in (_UNSAVED, LOCK_FILE)]
            if others:
                raise BagError(
                    f'{path} holds {min(others)}, which is no episode; name another folder')
            self._folder_lock = lock_folder(path)
            shutil.rmtree(path / _UNSAVED, ignore_errors=True)
        except OSError as error:
            raise BagError(f'{path} cannot be made: {error.strerror}') from None
        found = [each for each in find_bags(path) if each != path]
        self.saved = len(found)
        self._number = int(found[-1].name.removeprefix(PREFIX)) + 1 if found else 0

    @property
    def name(self) -> str:
        """Return the name of the current episode, or of the next one."""
        return f'{PREFIX}{self._number:04d}'

    @property
    def is_recording(self) -> bool:
        return self._bag is not None

    def add_topic(self, name: str, type_name: str, profiles: list[QoSProfile]) -> int:
        bag_writer.definition(type_name)
        with self._lock:
            self._topics.append((name, type_name, profiles))
            handle = len(self._topics) - 1
            if self._bag is not None:
                self._handles[handle] = self._bag.add_topic(name, type_name, profiles)
            return handle

    def write(self, handle: int, stamp_ns: int, data: bytes) -> None:
        """Write a message, if an episode is being recorded; OSError if the disk is full."""
        with self._lock:
            profiles = self._topics[handle][2]
            if all(each.durability == DurabilityPolicy.TRANSIENT_LOCAL for each in profiles):
                self._latched[handle] = data
            if self._bag is not None:
                self._bag.write(self._handles[handle], stamp_ns, data)
                self.count += 1

    def start(self, stamp_ns: int) -> None:
        """Begin an episode; BagError or OSError if the bag cannot be made."""
        with self._lock:
            assert self._bag is None
            bag = BagWriter(
                self.path / _UNSAVED / self.name, compression=self._compression,
                distribution=self._distribution)
            self._handles = {handle: bag.add_topic(*topic)
                             for handle, topic in enumerate(self._topics)}
            for handle, data in self._latched.items():
                bag.write(self._handles[handle], stamp_ns, data)
            self._bag, self.count = bag, len(self._latched)

    def save(self, labels: EpisodeLabels) -> Path:
        bag, path = self._take(), self.path / self.name
        bag.labels = labels.texts()
        bag.close()
        bag.path.rename(path)
        bag.path.parent.rmdir()
        self.saved += 1
        self._number += 1
        return path

    def discard(self) -> None:
        bag = self._take()
        bag.close()
        shutil.rmtree(bag.path.parent)

    def _take(self) -> BagWriter:
        with self._lock:
            assert self._bag is not None
            bag, self._bag = self._bag, None
            return bag


def topics_of(contract: Contract, resolve: Callable[[str], str]) -> str:
    names = [contract.full(name, copy)
             for copy in range(contract.copies) for name in contract.recorded]
    return ','.join(dict.fromkeys(map(resolve, names)))


class Bag(Protocol):
    """What takes messages, such as a BagWriter."""

    def add_topic(self, name: str, type_name: str, profiles: list[QoSProfile]) -> int: ...
    def write(self, handle: int, stamp_ns: int, data: bytes) -> None: ...


class Recording:
    """Subscribes to topics that match and writes their messages in a thread of its own.

    ``dropped`` ones did not fit into ``max_bytes``; ``failure`` is why writing ended early. Types
    that ``leaves_out`` chooses are not recorded.
    """

    def __init__(
        self, node: Node, topics: str, bag: Bag,
        leaves_out: Callable[[str], bool] = lambda type_name: False, max_bytes: int = 256 << 20,
    ) -> None:
        self._node, self._bag, self._leaves_out = node, bag, leaves_out
        self._patterns = [each.strip() for each in topics.split(',')]
        self._free = max_bytes
        self._bag_lock, self._budget_lock = threading.Lock(), threading.Lock()
        self._messages: queue.SimpleQueue[
            tuple[int, int, bytes] | threading.Event | None] = queue.SimpleQueue()
        self._seen: set[str] = set()
        self.received = self.dropped = 0
        self.failure: OSError | None = None
        # A daemon: a node that fails before it closes this must end.
        self._thread = threading.Thread(target=self._write, name='bag', daemon=True)
        self._thread.start()

    def discover_topics(self) -> None:
        for name, types in self._node.get_topic_names_and_types():
            if name in self._seen or not self.matches(name) or self._leaves_out(types[0]):
                continue
            try:
                bag_writer.check_topic(name)
                infos = self._node.get_publishers_info_by_topic(name)
                if not infos:
                    continue
                kind = bag_writer.message_class(types[0])
                offered = [info.qos_profile for info in infos]
                with self._bag_lock:
                    handle = self._bag.add_topic(name, types[0], offered)
            except BagError as error:
                self._seen.add(name)
                self._node.get_logger().warning(f'{quoted(name)} is not recorded: {error}')
                continue
            self._seen.add(name)
            # No more than every publisher offers, so that all match.
            profile = bag_writer.weakest(
                all(each.reliability == ReliabilityPolicy.RELIABLE for each in offered),
                all(each.durability == DurabilityPolicy.TRANSIENT_LOCAL for each in offered))
            self._node.create_subscription(
                kind, name, partial(self._receive, handle), profile, raw=True)
            self._node.get_logger().info(f'recording {name} ({types[0]})')

    def matches(self, name: str) -> bool:
        """Return whether a pattern chooses a topic; compressed copies have to be named."""
        return any(fnmatch.fnmatchcase(name, pattern)
                   or fnmatch.fnmatchcase(name.rsplit('/', 1)[-1], pattern)
                   for pattern in self._patterns
                   if not name.endswith('/compressed') or pattern.endswith('compressed'))

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
        self._messages.put(None)
        self._thread.join()
