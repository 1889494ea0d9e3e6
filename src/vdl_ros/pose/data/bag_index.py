"""
Where each message of an MCAP file is, for reading any of them at once.

The records are walked once from the front, chunk by chunk, and each chunk's checksum is compared.
The file's own index would save the walk only for who trusts the chunks, and a file that was cut
off has none: it is read like any other up to its last whole chunk.
"""

from __future__ import annotations

import io
import mmap
import struct
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import lz4.frame  # type: ignore[import-untyped]
import zstandard
from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode
from mcap.records import Channel, Schema

__all__ = ['BagFileError', 'Chunk', 'IndexedFile', 'find_files']

_MAGIC = b'\x89MCAP0\r\n'
_RECORD = struct.Struct('<BQ')
#: Before the body of a message: opcode, length, channel, sequence, two times.
_MESSAGE = struct.Struct('<BQHIQQ')
_CHUNK = struct.Struct('<QQQII')
# A whole chunk is unpacked for one frame of it; the next frame may be of the same.
_CACHED_CHUNKS = 4
Buffer = memoryview | bytes


class BagFileError(ValueError):
    """A file that is no bag, or one with nothing in it; the message names it."""


@dataclass(frozen=True)
class Chunk:
    """A chunk: ``length`` bytes from ``start`` in the file, ``size`` bytes when unpacked."""

    start: int
    length: int
    size: int
    compression: str
    crc: int


def find_files(path: Path) -> list[Path]:
    """
    Return the MCAP files of a bag, or of every bag in a folder of bags.

    Raises:
        BagFileError: there is none.
    """
    if path.is_file():
        return [path]
    files = sorted(path.glob('*.mcap')) or sorted(path.glob('*/*.mcap'))
    if not files:
        raise BagFileError(f'{path}: no bag is there: a folder with .mcap files, or such a file')
    return files


class IndexedFile:
    """
    One MCAP file and its index.

    Can be sent to another process, which maps the file anew.

    Attributes:
        path: the file.
        topics: name and type of each channel, by its number.
        chunks: in the order of the file.
        messages: (channel, chunk, offset of the message in the unpacked chunk), in that order.
        cut_off: the file ends in the middle.
        damaged: chunks that cannot be unpacked or have a wrong checksum; none of their messages
            is in ``messages``.
    """

    def __init__(self, path: Path):
        """
        Read the index.

        Raises:
            BagFileError: not an MCAP file, or no whole message is in it.
        """
        self.path = path
        self.topics: dict[int, tuple[str, str]] = {}
        self.chunks: list[Chunk] = []
        self.messages: list[tuple[int, int, int]] = []
        self.cut_off = False
        self.damaged = 0
        self._map: mmap.mmap | None = None
        self._cache: OrderedDict[int, memoryview] = OrderedDict()
        try:
            size = path.stat().st_size
        except OSError as error:
            raise BagFileError(f'{path}: {error.strerror}') from None
        if not size:
            raise BagFileError(f'{path}: the file is empty')
        if self._data()[:8] != _MAGIC:
            raise BagFileError(f'{path}: not an MCAP file')
        self._schemas: dict[int, str] = {}
        self._walk()
        if not self.messages:
            why = 'cut off before' if self.cut_off else 'it has not'
            raise BagFileError(f'{path}: {why} one whole message')

    def __getstate__(self) -> dict[str, object]:
        """Return what another process needs."""
        return {**self.__dict__, '_map': None, '_cache': OrderedDict()}

    @property
    def compressed(self) -> bool:
        """Return whether chunks have to be unpacked."""
        return any(chunk.compression for chunk in self.chunks)

    def message(self, chunk: int, offset: int) -> memoryview:
        """
        Return a message's bytes, which stay those of the file: do not keep them long.

        Raises:
            BagFileError: there is no message, or the chunk cannot be unpacked.
        """
        records = self._records(chunk)
        try:
            opcode, length, *_ = _MESSAGE.unpack_from(records, offset)
        except struct.error:
            opcode = length = 0
        end = offset + _RECORD.size + length
        if opcode != Opcode.MESSAGE or end > len(records) or length < _MESSAGE.size - _RECORD.size:
            raise BagFileError(f'{self.path}: no message where the index says')
        return records[offset + _MESSAGE.size:end]

    def _data(self) -> mmap.mmap:
        if self._map is None:
            with self.path.open('rb') as stream:
                self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        return self._map

    def _records(self, number: int) -> memoryview:
        """Return a chunk's records, unpacked."""
        chunk = self.chunks[number]
        if not chunk.compression:
            return memoryview(self._data())[chunk.start:chunk.start + chunk.length]
        if number in self._cache:
            self._cache.move_to_end(number)
            return self._cache[number]
        stored = memoryview(self._data())[chunk.start:chunk.start + chunk.length]
        found = memoryview(_unpack(stored, chunk))
        self._cache[number] = found
        if len(self._cache) > _CACHED_CHUNKS:
            self._cache.popitem(last=False)
        return found

    def _walk(self) -> None:
        """Find every chunk and every message."""
        data = self._data()
        for opcode, start, end in _records_of(memoryview(data), len(_MAGIC)):
            if end > len(data):
                break
            if opcode in (Opcode.DATA_END, Opcode.FOOTER):
                return
            if opcode == Opcode.CHUNK:
                self._add_chunk(start, end)
            elif opcode == Opcode.MESSAGE:  # outside of any chunk: the file is its own
                if not self.chunks or self.chunks[-1].start:
                    self.chunks.append(Chunk(0, len(data), len(data), '', 0))
                self._note_message(memoryview(data), len(self.chunks) - 1, start)
            else:
                self._note_topic(opcode, data[start:end])
        self.cut_off = True

    def _add_chunk(self, start: int, end: int) -> None:
        """Take in one chunk: the topics and messages in it."""
        data = self._data()
        try:
            _, _, size, crc, name_length = _CHUNK.unpack_from(data, start)
            position = start + _CHUNK.size
            compression = bytes(data[position:position + name_length]).decode()
            stored, = struct.unpack_from('<Q', data, position + name_length)
            position += name_length + 8
            if position + stored > end:
                raise ValueError('longer than its record')
            self.chunks.append(Chunk(position, stored, size, compression, crc))
            number = len(self.chunks) - 1
            records = self._records(number)
            if crc and zlib.crc32(records) != crc:
                raise ValueError('wrong checksum')
        except (struct.error, ValueError):
            self.damaged += 1
            return
        for opcode, first, last in _records_of(records, 0):
            if last > len(records):
                break
            if opcode == Opcode.MESSAGE:
                self._note_message(records, number, first)
            else:
                self._note_topic(opcode, records[first:last])

    def _note_message(self, records: memoryview, chunk: int, start: int) -> None:
        """Remember where a message is."""
        channel = int.from_bytes(records[start:start + 2], 'little')
        self.messages.append((channel, chunk, start - _RECORD.size))

    def _note_topic(self, opcode: int, body: Buffer) -> None:
        """Remember a schema or a channel; other records say nothing here."""
        stream = ReadDataStream(io.BytesIO(bytes(body)))
        if opcode == Opcode.SCHEMA:
            schema = Schema.read(stream)
            self._schemas[schema.id] = schema.name
        elif opcode == Opcode.CHANNEL:
            channel = Channel.read(stream)
            self.topics[channel.id] = channel.topic, self._schemas.get(channel.schema_id, '')


def _records_of(data: memoryview, position: int) -> Iterator[tuple[int, int, int]]:
    """Yield opcode, start and end of each record's body; the last may end behind the data."""
    while position + _RECORD.size <= len(data):
        opcode, length = _RECORD.unpack_from(data, position)
        position += _RECORD.size
        yield opcode, position, position + length
        position += length


def _unpack(stored: Buffer, chunk: Chunk) -> bytes:
    """
    Return a chunk's records.

    Raises:
        ValueError: they cannot be unpacked.
    """
    if chunk.compression == 'zstd':
        try:
            return zstandard.ZstdDecompressor().decompress(stored, max_output_size=chunk.size)
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from None
    if chunk.compression == 'lz4':
        try:
            return bytes(lz4.frame.decompress(stored))
        except RuntimeError as error:
            raise ValueError(str(error)) from None
    raise ValueError(f'compression {chunk.compression!r} is not known')
