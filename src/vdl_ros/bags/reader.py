"""Read the messages of an MCAP bag in the order in which they were written, one at a time."""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard
from mcap.exceptions import EndOfFile, McapError
from mcap.records import Channel, Chunk, McapRecord, Message, Schema
from mcap.stream_reader import StreamReader, lz4  # type: ignore[attr-defined]

from vdl_ros.common.memory import memory_limit
from vdl_ros.common.plain_yaml import YamlError, parse_yaml, read_yaml

# What reading a damaged file raises.
_BROKEN = (McapError, EOFError, ValueError, RuntimeError, struct.error, zstandard.ZstdError,
          OverflowError, MemoryError)
# Bytes; recorders write chunks of about a megabyte, or of one larger message.
_MAX_CHUNK = 1 << 28


class BagError(ValueError):
    """A bag that cannot be read or written; the message is one line with the path."""


class _File(io.BufferedReader):
    """A file of which no more is read than it holds: a damaged length may claim any number."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))
        self._size = os.fstat(self.fileno()).st_size

    def read(self, size: int | None = -1) -> bytes:
        rest = max(self._size - self.tell(), 0)
        return super().read(rest if size is None or size < 0 else min(size, rest))


@dataclass(frozen=True)
class BagMessage:
    """One serialised message.

    Attributes:
        type: ``pkg/msg/Name``; of a topic that is not of ROS 2, something else.
        qos: profiles that the topic's publishers offered, as rosbag2 stores them.
    """

    topic: str
    type: str
    qos: list[dict[str, Any]]
    stamp_ns: int
    data: bytes


@dataclass
class BagTopic:
    """A topic of a bag; ``qos`` is what its publishers offered, as rosbag2 stores it."""

    name: str
    type: str
    qos: list[dict[str, Any]]
    count: int = 0


@dataclass(frozen=True)
class BagPart:
    """One file of a bag: its name, the times of its first and last message, its topics."""

    file: str
    start_ns: int
    end_ns: int
    topics: tuple[BagTopic, ...]

    @property
    def count(self) -> int:
        return sum(topic.count for topic in self.topics)


class BagReader:
    """A folder of .mcap files, or one; it can be iterated more than once. BagError: there is none.

    Attributes:
        cut_off: which file ends early or is damaged, and after how many messages; '' if none is.
            Known at the end of an iteration.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.cut_off = path, ''
        self._files = sorted(path.glob('*.mcap'), key=_order) if path.is_dir() else [path]
        if not self._files or not all(file.is_file() for file in self._files):
            raise BagError(f'{path}: no bag is there: a folder with a .mcap file, or the file')

    def __iter__(self) -> Iterator[BagMessage]:
        """Yield every whole message, file by file; BagError: there is none."""
        self.cut_off = ''
        total = 0
        for file in self._files:
            count = 0
            try:
                for message in self._read(file):
                    count, total = count + 1, total + 1
                    yield message
            except BagError:
                raise
            except _BROKEN as error:
                if not total:
                    raise BagError(
                        f'{file}: not an MCAP file, or no whole message is in it') from error
                self.cut_off = f'{file} is cut off or damaged after {count} messages'

    def _read(self, file: Path) -> Iterator[BagMessage]:
        schemas: dict[int, str] = {}
        channels: dict[int, Channel] = {}
        profiles: dict[int, list[dict[str, Any]]] = {}
        for record in _records(file):
            if isinstance(record, Schema):
                schemas[record.id] = record.name
            elif isinstance(record, Channel):
                channels[record.id] = record
            elif isinstance(record, Message):
                if record.channel_id not in channels:
                    raise McapError(f'no channel {record.channel_id}')
                channel = channels[record.channel_id]
                if channel.id not in profiles:
                    profiles[channel.id] = _offered(channel.metadata)
                encoding = channel.message_encoding
                name = schemas.get(channel.schema_id) if encoding == 'cdr' else None
                yield BagMessage(
                    channel.topic, name or encoding, profiles[channel.id], record.log_time,
                    record.data)


def _records(file: Path) -> Iterator[McapRecord]:
    """Yield the records of a file and of its chunks; BagError: a chunk is too large."""
    most = min(_MAX_CHUNK, memory_limit())
    # Not by the index: a bag that was cut off has none.
    with _File(file) as stream:
        for record in StreamReader(stream, emit_chunks=True, validate_crcs=True).records:
            if not isinstance(record, Chunk):
                yield record
                continue
            if record.uncompressed_size > most:
                raise BagError(f'{file}: a chunk of {record.uncompressed_size} bytes is not '
                               f'allowed: at most {most}')
            with contextlib.suppress(EndOfFile):  # of the chunk
                yield from StreamReader(
                    io.BytesIO(_unpacked(record)), skip_magic=True, emit_chunks=True).records


def _unpacked(chunk: Chunk) -> bytes:
    """Return the records of a chunk, no more than its size says."""
    data, size = chunk.data, chunk.uncompressed_size
    if chunk.compression == 'zstd':
        # zstandard would allocate what the data say of themselves, if they do.
        says = zstandard.get_frame_parameters(data).content_size
        if says in (size, zstandard.CONTENTSIZE_UNKNOWN):
            data = zstandard.decompress(data, size)
    elif chunk.compression == 'lz4':
        data = lz4.LZ4FrameDecompressor().decompress(data, size + 1)
    elif chunk.compression:
        raise McapError('unknown compression')
    if len(data) != size:
        raise McapError('two sizes of a chunk')
    if chunk.uncompressed_crc and zlib.crc32(data) != chunk.uncompressed_crc:
        raise McapError('wrong checksum')
    return data


def read_part(file: Path) -> BagPart:
    """Return what one file of a bag holds, up to where it was cut off."""
    topics: dict[str, BagTopic] = {}
    start, end = math.inf, 0
    with contextlib.suppress(BagError):  # no whole message is in it
        for message in BagReader(file):
            topic = topics.setdefault(
                message.topic, BagTopic(message.topic, message.type, message.qos))
            topic.count += 1
            start, end = min(start, message.stamp_ns), max(end, message.stamp_ns)
    return BagPart(file.name, int(start) if topics else 0, end, tuple(topics.values()))


def _offered(metadata: dict[str, str]) -> list[dict[str, Any]]:
    """Return the profiles in a channel's metadata; none if they cannot be read."""
    try:
        found = parse_yaml(metadata.get('offered_qos_profiles', '')) or []
    except YamlError:
        return []
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _order(file: Path) -> tuple[int, str]:
    """Return the number of a bag's part, and its name, to sort by."""
    number = re.search(r'_(\d+)$', file.stem)
    return int(number.group(1)) if number else -1, file.name


#: Begin of the name of an episode's folder; four digits or more follow.
PREFIX = 'episode_'
# Characters of a label that are read.
_MAX_LABEL = 1000


@dataclass(frozen=True)
class EpisodeLabels:
    """What a person says of an episode.

    Attributes:
        task: what the robot does, in words; '' if unknown.
        success: whether it was done; None if unknown.
        robot: name of the robot's contract; '' if unknown.
    """

    task: str = ''
    success: bool | None = None
    robot: str = ''

    def texts(self) -> dict[str, str]:
        """Return the labels for ``custom_data``."""
        return {'task': self.task, 'success': str(bool(self.success)).lower(),
                'robot': self.robot}


def find_bags(path: Path) -> list[Path]:
    """Return the bags of a folder of episodes, in their order; any other path is one bag."""
    found = [each for each in path.glob(f'{PREFIX}*')
             if each.is_dir() and each.name.removeprefix(PREFIX).isdigit()]
    return sorted(found, key=lambda each: int(each.name.removeprefix(PREFIX))) or [path]


def read_labels(bag: Path) -> EpisodeLabels:
    """Return the labels in metadata.yaml, unknown ones without it; BagError: it is damaged."""
    file = bag / 'metadata.yaml'
    try:
        content = read_yaml(file) if file.is_file() else {}
    except YamlError as error:
        raise BagError(f'{file}: {error}') from None
    for name in ('rosbag2_bagfile_information', 'custom_data'):
        content = content.get(name) if isinstance(content, dict) else None
    if not isinstance(content, dict):
        return EpisodeLabels()
    task, success, robot = (
        str(content.get(name, ''))[:_MAX_LABEL] for name in ('task', 'success', 'robot'))
    return EpisodeLabels(
        ' '.join(task.split()), {'true': True, 'false': False}.get(success.lower()), robot)
