"""Random access to the messages of an MCAP file, for training on captured frames.

The reader of the library ``mcap`` unpacks and parses a whole chunk for each message: 46 times
slower here on batches of random frames, with zstd 2 times. This one maps the file, keeps the place
of every message, and caches unpacked chunks; the library parses chunks, schemas and channels.
The records are walked once from the front, and each chunk's checksum is compared: a file that was
cut off has no index, and is read like any other up to its last whole chunk.
"""

from __future__ import annotations

import io
import mmap
import struct
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode
from mcap.records import Channel, Chunk, Schema
from mcap.stream_reader import get_chunk_data_stream

from vdl_ros.bags.reader import BROKEN, BagError

__all__ = ['IndexedFile', 'MessagePlace', 'find_files']

_MAGIC = b'\x89MCAP0\r\n'
_RECORD = struct.Struct('<BQ')
# Before a message's data: channel, sequence number, two times.
_MESSAGE_HEADER = struct.Struct('<HIQQ')
# Frames of one batch are sorted by chunk, so a few unpacked ones are enough.
_CACHED_CHUNKS = 4


class MessagePlace(NamedTuple):
    """Where a message's data is.

    Attributes:
        chunk: number of its chunk if that is compressed, else -1.
        start: of the data in the unpacked chunk, or in the file.
    """

    channel: int
    chunk: int
    start: int
    end: int


def find_files(path: Path) -> list[Path]:
    """Return the MCAP files of a bag, or of every bag in a folder of bags.

    Raises:
        BagError: there is none.
    """
    if path.is_file():
        return [path]
    files = sorted(path.glob('*.mcap')) or sorted(path.glob('*/*.mcap'))
    if not files:
        raise BagError(f'{path}: no bag is there: a folder with .mcap files, or such a file')
    return files


class IndexedFile:
    """One MCAP file and the places of its messages.

    Can be sent to another process, which maps the file anew.

    Attributes:
        topics: name and type of each channel, by its number.
        chunks: start and end of each chunk's record in the file, in its order.
        damaged: chunks that cannot be unpacked or have a wrong checksum; none of their messages
            is in ``messages``.

    Raises:
        BagError: not an MCAP file, or no whole message is in it.
    """

    def __init__(self, path: Path):
        self.path = path
        self.topics: dict[int, tuple[str, str]] = {}
        self.chunks: list[tuple[int, int]] = []
        self.messages: list[MessagePlace] = []
        self.compressed = self.cut_off = False
        self.damaged = 0
        self._schemas: dict[int, str] = {}
        self._mapped: memoryview | None = None
        self._cache: OrderedDict[int, memoryview] = OrderedDict()
        try:
            size = path.stat().st_size
        except OSError as error:
            raise BagError(f'{path}: {error.strerror}') from None
        if not size:
            raise BagError(f'{path}: the file is empty')
        if self._file()[:len(_MAGIC)] != _MAGIC:
            raise BagError(f'{path}: not an MCAP file')
        self._walk()
        if not self.messages:
            raise BagError(f'{path}: ' + ('cut off before' if self.cut_off else 'it has not')
                           + ' one whole message')

    def __getstate__(self) -> dict[str, object]:
        """Return what another process needs."""
        return {**self.__dict__, '_mapped': None, '_cache': OrderedDict()}

    def read(self, place: MessagePlace) -> memoryview:
        """Return a message's data, a view of the file or of an unpacked chunk.

        Raises:
            BagError: the file has changed.
        """
        data = self._file() if place.chunk < 0 else self._unpacked(place.chunk)
        if place.end > len(data):
            raise BagError(f'{self.path}: the file has changed')
        return data[place.start:place.end]

    def _file(self) -> memoryview:
        if self._mapped is None:
            with self.path.open('rb') as stream:
                self._mapped = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
        return self._mapped

    def _unpacked(self, number: int) -> memoryview:
        """Return the records of a compressed chunk."""
        if number in self._cache:
            self._cache.move_to_end(number)
            return self._cache[number]
        start, end = self.chunks[number]
        try:
            _, records = _unpack(self._file()[start:end], check=False)
        except BROKEN:
            raise BagError(f'{self.path}: the file has changed') from None
        self._cache[number] = records
        if len(self._cache) > _CACHED_CHUNKS:
            self._cache.popitem(last=False)
        return records

    def _walk(self) -> None:
        data = self._file()
        for opcode, start, end in _records_of(data, len(_MAGIC)):
            if end > len(data):
                break
            if opcode in (Opcode.DATA_END, Opcode.FOOTER):
                return
            if opcode == Opcode.CHUNK:
                self._add_chunk(start, end)
            else:
                try:
                    self._add(opcode, data, start, end)
                except BROKEN:
                    break
        self.cut_off = True

    def _add_chunk(self, start: int, end: int) -> None:
        """Add the topics and messages of one chunk."""
        self.chunks.append((start, end))
        try:
            data_start, records = _unpack(self._file()[start:end], check=True)
        except BROKEN:
            self.damaged += 1
            return
        compressed = data_start < 0
        self.compressed |= compressed
        data, offset, number = (records, 0, len(self.chunks) - 1) if compressed else (
            self._file(), start + data_start, -1)
        for opcode, first, last in _records_of(records, 0):
            if last > len(records):
                break
            try:
                self._add(opcode, data, offset + first, offset + last, number)
            except BROKEN:
                self.damaged += 1
                return

    def _add(self, opcode: int, data: memoryview, start: int, end: int, chunk: int = -1) -> None:
        """Add a message, a channel or a schema; other records do not matter."""
        if opcode == Opcode.MESSAGE and end - start >= _MESSAGE_HEADER.size:
            channel, *_ = _MESSAGE_HEADER.unpack_from(data, start)
            self.messages.append(
                MessagePlace(channel, chunk, start + _MESSAGE_HEADER.size, end))
        elif opcode == Opcode.SCHEMA:
            schema = Schema.read(ReadDataStream(io.BytesIO(data[start:end])))
            self._schemas[schema.id] = schema.name
        elif opcode == Opcode.CHANNEL:
            channel = Channel.read(ReadDataStream(io.BytesIO(data[start:end])))
            self.topics[channel.id] = channel.topic, self._schemas.get(channel.schema_id, '')


def _records_of(data: memoryview, position: int) -> Iterator[tuple[int, int, int]]:
    """Yield opcode, start and end of each record's body; the last may end behind the data."""
    while position + _RECORD.size <= len(data):
        opcode, length = _RECORD.unpack_from(data, position)
        position += _RECORD.size
        yield opcode, position, position + length
        position += length


def _unpack(record: memoryview, *, check: bool) -> tuple[int, memoryview]:
    """Return where the data of a chunk's record begins, -1 if compressed, and the chunk's records.

    Args:
        record: body of the chunk's record.

    Raises:
        BROKEN: they cannot be unpacked, or their checksum is wrong.
    """
    stream = ReadDataStream(io.BytesIO(record))
    chunk = Chunk.read(stream)
    unpacked, length = get_chunk_data_stream(chunk, validate_crc=check)
    start = -1 if chunk.compression else stream.count - len(chunk.data)
    return start, memoryview(unpacked.read(length))
