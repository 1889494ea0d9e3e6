"""Write episodes to bags of their own, in one folder; messages between them are dropped."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from rclpy.qos import DurabilityPolicy, QoSProfile

from vdl_ros.bags.episodes import PREFIX, EpisodeLabels, find_bags
from vdl_ros.bags.reader import BagError
from vdl_ros.ros.bags.bag_writer import BagWriter, definition

__all__ = ['EpisodeBags']

# Folder of the episode that is being recorded.
_UNSAVED = 'unsaved'


class EpisodeBags:
    """
    Episodes of one folder; another thread may write meanwhile.

    An episode begins with the latest message of each latched topic.

    Attributes:
        path: the folder.
        count: messages of the current episode, or of the one before.
        saved: number of episodes in the folder.
    """

    def __init__(self, path: Path, *, compression: str = 'none', distribution: str = '') -> None:
        """
        Use a folder, with the episodes that it holds; make it if it does not exist.

        An episode that was neither saved nor discarded, because its recorder was killed, is
        removed.

        Raises:
            BagError: the folder holds something else, or cannot be made.
        """
        self.path, self.count = path, 0
        self._compression, self._distribution = compression, distribution
        self._lock = threading.Lock()
        self._topics: list[tuple[str, str, list[QoSProfile]]] = []
        self._latched: dict[int, bytes] = {}
        self._bag: BagWriter | None = None
        self._handles: dict[int, int] = {}
        try:
            path.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(path / _UNSAVED, ignore_errors=True)
            others = [each.name for each in path.iterdir() if not each.name.startswith(PREFIX)]
        except OSError as error:
            raise BagError(f'{path} cannot be made: {error.strerror}') from None
        if others:
            raise BagError(f'{path} holds {sorted(others)[0]}, which is no episode; name another '
                           'folder')
        found = [each for each in find_bags(path) if each != path]
        self.saved = len(found)
        self._number = int(found[-1].name.removeprefix(PREFIX)) + 1 if found else 0

    @property
    def name(self) -> str:
        """Return the name of the current episode, or of the next one."""
        return f'{PREFIX}{self._number:04d}'

    @property
    def is_recording(self) -> bool:
        """Return whether an episode is being recorded."""
        return self._bag is not None

    def add_topic(self, name: str, type_name: str, profiles: list[QoSProfile]) -> int:
        """
        Announce a topic; return its handle. See :meth:`BagWriter.add_topic`.

        Raises:
            BagError: the type is not installed here.
        """
        definition(type_name)
        with self._lock:
            self._topics.append((name, type_name, profiles))
            handle = len(self._topics) - 1
            if self._bag is not None:
                self._handles[handle] = self._bag.add_topic(name, type_name, profiles)
            return handle

    def write(self, handle: int, stamp_ns: int, data: bytes) -> None:
        """
        Write a message, if an episode is being recorded.

        Raises:
            OSError: the disk is full.
        """
        with self._lock:
            profiles = self._topics[handle][2]
            if all(each.durability == DurabilityPolicy.TRANSIENT_LOCAL for each in profiles):
                self._latched[handle] = data
            if self._bag is not None:
                self._bag.write(self._handles[handle], stamp_ns, data)
                self.count += 1

    def start(self, stamp_ns: int) -> None:
        """
        Begin an episode.

        Raises:
            BagError, OSError: the bag cannot be made.
        """
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
        """
        End the episode and keep it; return its folder.

        Raises:
            OSError: the disk is full.
        """
        bag, path = self._take(), self.path / self.name
        bag.labels = labels.texts()
        bag.close()
        bag.path.rename(path)
        bag.path.parent.rmdir()
        self.saved += 1
        self._number += 1
        return path

    def discard(self) -> None:
        """End the episode and remove it."""
        bag = self._take()
        bag.close()
        shutil.rmtree(bag.path.parent)

    def _take(self) -> BagWriter:
        with self._lock:
            assert self._bag is not None
            bag, self._bag = self._bag, None
            return bag
