"""Write captured frames to a bag, in several files if the capture is interrupted and resumed.

``capture.yaml`` in the bag's folder holds the settings; a capture with others cannot resume it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from vdl_ros.bags.reader import BagError, BagPart, BagReader, closed_part
from vdl_ros.ros import qos
from vdl_ros.ros.bags.bag_writer import BagWriter

__all__ = ['CaptureBag']

Types = Mapping[str, str]
_FILE = 'capture.yaml'


class CaptureBag:
    """Writes frames; each is one message on each of the topics.

    Args:
        topics: type as ``pkg/msg/Name`` by name, in the order in which a frame is written.
        settings: values that must be equal to resume.
        compression: none, lz4 or zstd.

    Attributes:
        frames: in the bag, those of earlier parts included.

    Raises:
        BagError: the folder holds something else, or a capture with other settings.
        OSError: it cannot be written.
    """

    def __init__(
        self, path: Path, topics: Types, settings: Mapping[str, object], compression: str,
    ) -> None:
        self._path, self._topics, self._compression = path, dict(topics), compression
        self._settings = dict(settings)
        self._parts: list[BagPart] = []
        if (path / _FILE).is_file():
            self._compare(settings)
            self._parts = [self._part(file) for file in sorted(
                path.glob('*.mcap'), key=lambda file: int(file.stem.rsplit('_', 1)[-1]))]
        elif path.exists():
            raise BagError(f'{path} exists and is no capture; name another folder')
        self.frames = sum(part.count for part in self._parts) // len(self._topics)
        self._bag: BagWriter | None = None
        self._handles: dict[str, int] = {}

    def write(self, stamp_ns: int, parts: Mapping[str, bytes]) -> None:
        """Write a frame: serialised messages by topic.

        Raises:
            OSError: the disk is full; the frames before stay.
        """
        if self._bag is None:
            self._bag = self._begin()
        for topic, handle in self._handles.items():
            self._bag.write(handle, stamp_ns, parts[topic])
        self.frames += 1

    def close(self) -> None:
        """Write index and metadata; a bag without new frames stays as it is."""
        if self._bag is not None:
            self._bag.close()

    def _begin(self) -> BagWriter:
        """Begin a part, at its first frame."""
        bag = BagWriter(self._path, compression=self._compression, earlier=self._parts)
        (self._path / _FILE).write_text(yaml.safe_dump(self._settings, sort_keys=False))
        self._handles = self._add_topics(bag)
        return bag

    def _add_topics(self, bag: BagWriter) -> dict[str, int]:
        return {name: bag.add_topic(f'/{name}', kind, [qos.TOPICS[name]])
                for name, kind in self._topics.items()}

    def _compare(self, settings: Mapping[str, object]) -> None:
        begun = yaml.safe_load((self._path / _FILE).read_text())
        for name, value in settings.items():
            if begun.get(name) != value:
                raise BagError(
                    f'{name}: {value!r} is not allowed: the capture in {self._path} was begun '
                    f'with {begun.get(name)!r}; name another folder')

    def _part(self, file: Path) -> BagPart:
        """Return a part; repair it unless it was closed with whole frames."""
        part = closed_part(file)
        if part is not None and len({topic.count for topic in part.topics}) == 1 and {
                topic.name.lstrip('/') for topic in part.topics} == set(self._topics):
            return part
        return self._repair(file)

    def _repair(self, file: Path) -> BagPart:
        """Write a part again, with an index and whole frames only."""
        number = int(file.stem.rsplit('_', 1)[-1])
        folder = self._path / 'mending'
        for left in folder.glob('*'):
            left.unlink()
        if folder.exists():
            folder.rmdir()
        repaired = BagWriter(folder, compression=self._compression)
        handles = self._add_topics(repaired)
        frame: list[tuple[int, int, bytes]] = []
        try:
            for message in BagReader(file):
                frame.append((handles[message.topic.lstrip('/')], message.stamp_ns, message.data))
                if len(frame) == len(self._topics):
                    for handle, stamp_ns, data in frame:
                        repaired.write(handle, stamp_ns, data)
                    frame.clear()
        except BagError:
            pass  # no whole message is in it
        repaired.close()
        part = repaired.parts[-1]
        (folder / part.file).replace(file)
        (folder / 'metadata.yaml').unlink()
        folder.rmdir()
        return BagPart(f'{self._path.name}_{number}.mcap', part.start_ns, part.end_ns, part.topics)
