"""The last seconds of a robot's topics, in memory, and the bags that incidents make of them."""

import itertools
import os
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from rclpy.qos import DurabilityPolicy, QoSProfile

from vdl_ros.bags.reader import BagError
from vdl_ros.ros.bags import bag_writer
from vdl_ros.ros.bags.bag_writer import BagWriter

# How much is kept, s and bytes, and how long after an incident it is written, s.
_KEPT_S, _KEPT_BYTES, _AFTER_S = 30.0, 48 << 20, 1.0
# And of latched messages that are older, bytes; no message that is larger.
_LATCHED_BYTES = 16 << 20
# Incidents of one kind make one bag in this time, s, of a source so many kinds: bags that are made
# of any texts must not take the place of earlier ones, of which the newest stay.
_AGAIN_S, _KINDS, _BAGS = 600.0, 5, 20
# Large, and a camera's or a training's, not a robot's.
_LARGE = {'sensor_msgs/msg/Image', 'sensor_msgs/msg/PointCloud2', 'vdl_ros/msg/Policy'}
_BAG = re.compile(r'\d{8}T\d{6}_\d+')


def leaves_out(type_name: str) -> bool:
    """Return whether a black box does not keep messages of a type: large, or of an action."""
    return type_name in _LARGE or '/msg/' not in type_name


class LastMessages:
    """The newest messages of topics, and the latest one of each latched topic; of two threads.

    The largest latched ones go first: a bag is replayed by small ones, as of the emergency stop.
    """

    def __init__(self) -> None:
        self._topics: list[tuple[str, str, list[QoSProfile]]] = []
        self._latched: dict[int, tuple[int, bytes]] = {}
        self._messages: deque[tuple[int, int, bytes]] = deque()
        self._bytes = 0
        self._lock = threading.Lock()

    def add_topic(self, name: str, type_name: str, profiles: list[QoSProfile]) -> int:
        bag_writer.definition(type_name)
        with self._lock:
            self._topics.append((name, type_name, profiles))
            return len(self._topics) - 1

    def write(self, handle: int, stamp_ns: int, data: bytes) -> None:
        if len(data) > _LATCHED_BYTES:
            return
        with self._lock:
            self._messages.append((handle, stamp_ns, data))
            self._bytes += len(data)
            while self._bytes > _KEPT_BYTES or self._messages[0][1] < stamp_ns - _KEPT_S * 1e9:
                old, at, gone = self._messages.popleft()
                self._bytes -= len(gone)
                if all(each.durability == DurabilityPolicy.TRANSIENT_LOCAL
                       for each in self._topics[old][2]):
                    self._latch(old, at, gone)

    def _latch(self, handle: int, stamp_ns: int, data: bytes) -> None:
        self._latched[handle] = stamp_ns, data
        sizes = {each: len(kept) for each, (_, kept) in self._latched.items()}
        while sum(sizes.values()) > _LATCHED_BYTES:
            largest = max(sizes, key=sizes.__getitem__)
            del sizes[largest], self._latched[largest]

    def save(self, path: Path, reason: str, distribution: str = '') -> int:
        """Write a bag with the label ``incident``; return the number of its messages."""
        with self._lock:
            topics, messages = list(self._topics), list(self._messages)
            latched = [(handle, *each) for handle, each in self._latched.items()]
        with BagWriter(path, compression='zstd', distribution=distribution) as bag:
            bag.labels = {'incident': reason}
            handles = [bag.add_topic(*topic) for topic in topics]
            for handle, stamp, data in (*sorted(latched, key=lambda each: each[1]), *messages):
                bag.write(handles[handle], stamp, data)
            return bag.count


class BlackBox:
    """Writes a bag a second after an incident, one for each kind of incident in ten minutes.

    In this time at most ``_KINDS`` kinds of each source leave one.

    Args:
        folder: of the bags; beside the newest ones it loses those of earlier times.
        save: makes a bag at a path, for a reason; returns the number of messages.
        tell: takes a line for the user.
        clock: monotonic, s.
    """

    def __init__(
        self, folder: Path, save: Callable[[Path, str], int], tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._save, self._tell, self._clock = folder, save, tell, clock
        self._happened: dict[tuple[str, str], float] = {}
        self._reasons: list[str] = []
        self._due = float('inf')

    def on_incident(self, reason: str, source: str = '') -> None:
        now, kind = self._clock(), (source, re.sub(r'\d+', '', reason))
        self._happened = {key: at for key, at in self._happened.items() if now - at < _AGAIN_S}
        count = sum(each[0] == source for each in self._happened)
        if kind in self._happened or count > _KINDS:
            return
        self._happened[kind] = now
        if count == _KINDS:
            # Said once: this one counts, too.
            self._tell(f'black box: no bag: more than {_KINDS} kinds of incidents in ten minutes '
                       f'({reason})')
            return
        self._reasons.append(reason)
        self._due = min(self._due, now + _AFTER_S)

    def look(self, *, ends: bool = False) -> None:
        """Write a bag if one is due, or waits when the process ``ends``."""
        if not self._reasons or (self._clock() < self._due and not ends):
            return
        reason, self._reasons, self._due = '; '.join(self._reasons), [], float('inf')
        try:
            path = self._next()
            count = self._save(path, reason)
            bags = sorted(each for each in self._folder.iterdir() if _BAG.fullmatch(each.name))
            for old in bags[:-_BAGS]:
                shutil.rmtree(old, ignore_errors=True)
        except (BagError, OSError) as error:
            self._tell(f'black box: no bag: {error} ({reason})')
            return
        self._tell(f'black box: {path}: {count} messages before: {reason}')

    def _next(self) -> Path:
        # Another launch of this robot has a black box, too.
        paths = (self._folder / f'{time.strftime("%Y%m%dT%H%M%S")}_{number}'
                 for number in itertools.count(os.getpid()))
        return next(path for path in paths if not path.exists())
