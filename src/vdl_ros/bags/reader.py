"""Read the messages of an MCAP bag in the order of time, one at a time."""

import contextlib
import heapq
import io
import os
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import zstandard
from mcap.exceptions import EndOfFile, McapError
from mcap.reader import make_reader
from mcap.records import Channel, Chunk, ChunkIndex, McapRecord, Message, Schema
from mcap.stream_reader import StreamReader, lz4  # type: ignore[attr-defined]
from mcap.summary import Summary

from vdl_ros.common.memory import memory_limit
from vdl_ros.common.plain_yaml import YamlError, parse_yaml, read_yaml
from vdl_ros.common.quoting import shown

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
        self._most = memory_limit()

    def check_size(self, size: int, what: str, most: int = _MAX_CHUNK) -> None:
        """Check the bytes that something of this file takes in memory; BagError: too many."""
        if size > (most := min(most, self._most)):
            raise BagError(f'{self.name}: {what} of {size} bytes is not allowed: at most {most}')

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


class BagReader:
    """A folder of .mcap files, or one; it can be iterated more than once. BagError: there is none.

    Of a folder, metadata.yaml names the files, if there is one.

    Attributes:
        faults: a line for each file that is missing, left out, damaged or ends early. The last
            two are known at the end of an iteration.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files, self._left_out = _find_files(path)
        self.faults = list(self._left_out)

    def __iter__(self) -> Iterator[BagMessage]:
        """Yield every whole message, file by file, in the order of time; BagError: there is none.

        A file without an index, such as of a recorder that was killed, is read in its own order.
        """
        self.faults = list(self._left_out)
        total, broken = 0, None
        for file in self._files:
            count = 0
            try:
                with _File(file) as stream:
                    for message in _messages(stream):
                        count, total = count + 1, total + 1
                        yield message
            except BagError:
                raise
            except OSError as error:
                raise BagError(f'{file} cannot be read: {error.strerror}') from None
            except _BROKEN as error:
                broken = broken or error
                self.faults.append(f'{file} is cut off or damaged after {count} messages: what '
                                   'follows in it is left out')
        if broken and not total:
            raise BagError(f'{self._files[0]}: not an MCAP file, or no whole message is in it'
                           ) from broken


def _find_files(path: Path) -> tuple[list[Path], list[str]]:
    """Return the files of a bag, and a line for each that is missing or no part of it."""
    if not path.is_dir():
        files, left_out = [path], []
    else:
        found = sorted(path.glob('*.mcap'), key=_order)
        named = _metadata(path).get('relative_file_paths')
        # Old versions of rosbag2 wrote the name of the folder before them.
        files = [path / Path(str(each)).name for each in named] if isinstance(named, list) \
            else found
        left_out = [f'{path}: {shown(each.name)} is missing, which metadata.yaml names'
                    for each in files if not each.is_file()]
        left_out += [f'{path}: {shown(each.name)} is left out: metadata.yaml does not name it'
                     for each in found if each not in files]
    files = [each for each in files if each.is_file()]
    others = [each for each in files or (path.glob('*') if path.is_dir() else ())
              if each.suffix in _OTHERS]
    if others:
        raise BagError(f'{others[0]}: {_OTHERS[others[0].suffix]} is not read, only MCAP: '
                       f'rosbags-convert --src {path} --dst FOLDER --dst-storage mcap makes it')
    if not files:
        raise BagError('; '.join([
            f'{path}: no bag is there: a folder with a .mcap file, or the file', *left_out]))
    return files, left_out


# What rosbags-convert reads.
_OTHERS = {'.db3': 'a bag of the storage sqlite3', '.zstd': 'a file that is compressed as a whole',
           '.bag': 'a bag of ROS 1'}


def _metadata(folder: Path) -> dict[str, Any]:
    """Return what metadata.yaml says of a bag, {} without it; BagError: it is damaged."""
    file = folder / 'metadata.yaml'
    try:
        content = read_yaml(file) if file.is_file() else {}
    except YamlError as error:
        raise BagError(f'{file}: {error}') from None
    found = content.get('rosbag2_bagfile_information') if isinstance(content, dict) else None
    return found if isinstance(found, dict) else {}


def _messages(stream: _File) -> Iterator[BagMessage]:
    schemas: dict[int, str] = {}
    channels: dict[int, Channel] = {}
    profiles: dict[int, list[dict[str, Any]]] = {}
    for record in _records(stream):
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
            encoding, data = channel.message_encoding, record.data
            name = schemas.get(channel.schema_id) if encoding == 'cdr' else None
            if name and data.startswith(zstandard.FRAME_HEADER):
                # compression_mode MESSAGE of rosbag2; CDR begins with a zero.
                size = zstandard.get_frame_parameters(data).content_size
                if size == zstandard.CONTENTSIZE_UNKNOWN:
                    raise McapError('a compressed message that does not say its size')
                stream.check_size(size, 'a message')
                data = zstandard.decompress(data)
            yield BagMessage(
                channel.topic, name or encoding, profiles[channel.id], record.log_time, data)


def _records(stream: _File) -> Iterator[McapRecord]:
    """Yield the records of a file and of its chunks; BagError: they are too large."""
    try:
        summary = make_reader(stream).get_summary()
    except _BROKEN:
        summary = None
    if summary is not None and summary.channels and summary.chunk_indexes:
        yield from summary.schemas.values()
        yield from summary.channels.values()
        yield from _in_order(stream, summary)
        return
    stream.seek(0)
    for record in StreamReader(stream, emit_chunks=True, validate_crcs=True).records:
        if isinstance(record, Chunk):
            yield from _records_of(record, stream)
        else:
            yield record


def _in_order(stream: _File, summary: Summary) -> Iterator[Message]:
    """Yield the messages of a file in the order of their times, by its index.

    Chunks whose times overlap are in memory together.
    """
    held = 0

    def messages(index: ChunkIndex) -> Iterator[tuple[int, Message | None]]:
        nonlocal held
        # The chunk is read when it is its turn.
        yield index.message_start_time, None
        stream.seek(index.chunk_start_offset)
        chunk = next(StreamReader(stream, skip_magic=True, emit_chunks=True).records)
        if not isinstance(chunk, Chunk):
            raise McapError('no chunk where the index says')
        held += (size := chunk.uncompressed_size)
        stream.check_size(held, 'an overlap in time', held)
        yield from sorted(((each.log_time, each) for each in _records_of(chunk, stream)
                           if isinstance(each, Message)), key=itemgetter(0))
        held -= size

    by_place = {each.chunk_start_offset: each for each in summary.chunk_indexes}
    count = 0
    for _, message in heapq.merge(
            *(messages(by_place[place]) for place in sorted(by_place)), key=itemgetter(0)):
        if message is not None:
            count += 1
            yield message
    if summary.statistics is not None and count < summary.statistics.message_count:
        raise McapError('messages that the index lacks')


def _records_of(chunk: Chunk, stream: _File) -> Iterator[McapRecord]:
    stream.check_size(chunk.uncompressed_size, 'a chunk')
    with contextlib.suppress(EndOfFile):  # of the chunk
        yield from StreamReader(
            io.BytesIO(_unpacked(chunk)), skip_magic=True, emit_chunks=True).records


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
        success = '' if self.success is None else str(self.success).lower()
        return {'task': self.task, 'success': success, 'robot': self.robot}


def find_bags(path: Path) -> list[Path]:
    """Return the bags of a folder of episodes, in their order; any other path is one bag."""
    found = [each for each in path.glob(f'{PREFIX}*')
             if each.is_dir() and each.name.removeprefix(PREFIX).isdigit()]
    return sorted(found, key=lambda each: int(each.name.removeprefix(PREFIX))) or [path]


def read_labels(bag: Path) -> EpisodeLabels:
    """Return the labels in metadata.yaml, unknown ones without it; BagError: it is damaged."""
    content = _metadata(bag).get('custom_data')
    if not isinstance(content, dict):
        return EpisodeLabels()
    task, success, robot = (
        str(content.get(name, ''))[:_MAX_LABEL] for name in ('task', 'success', 'robot'))
    return EpisodeLabels(
        ' '.join(task.split()), {'true': True, 'false': False}.get(success.lower()), robot)
