"""
Messages between two doctors: JSON objects over TCP, of bounded size, in bounded time.

A message is its length, four bytes big-endian, and that many bytes of UTF-8. Fields are read by
:func:`whole_number` and :func:`text`, which check type and range.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

from vdl_ros.common.quoting import quoted

__all__ = ['LONGEST', 'PORT', 'Wire', 'WireError', 'text', 'whole_number']

# TCP port of the doctor that answers: below 7400, where the ports of DDS start.
PORT = 7399
LONGEST = 16 << 10  # bytes of a message
_LENGTH = struct.Struct('!I')
_CHUNK = 1 << 16


class WireError(ConnectionError):
    """The other doctor has ended, does not answer, or sent what is not allowed; one line."""


class Wire:
    """One connection to another doctor."""

    def __init__(self, connection: socket.socket, step: float, whole: float) -> None:
        """Use a connection; each operation may take ``step`` s and all together ``whole`` s."""
        self._connection, self._step = connection, step
        self._end = time.monotonic() + whole
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def local_address(self) -> str:
        """Return the address of this host that the connection uses."""
        return str(self._connection.getsockname()[0])

    @property
    def peer_address(self) -> str:
        """Return the address of the other host."""
        return str(self._connection.getpeername()[0])

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; raises WireError."""
        data = json.dumps(message).encode()
        self._send(_LENGTH.pack(len(data)) + data)

    def receive(self) -> dict[str, Any]:
        """
        Return the next message.

        Raises:
            WireError: there is none, it is too long, or it is no JSON object.
        """
        length, = _LENGTH.unpack(self._receive(_LENGTH.size))
        if length > LONGEST:
            raise WireError(f'a message of {length} bytes; at most {LONGEST} are allowed')
        data = self._receive(length)
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            raise WireError(f'no JSON: {quoted(data)}') from None
        if not isinstance(message, dict):
            raise WireError(f'no JSON object: {quoted(data)}')
        return message

    def request(self, name: str, **fields: Any) -> dict[str, Any]:
        """
        Send a request and return the response.

        Raises:
            WireError: there is none, or it is an error.
        """
        self.send({'request': name, **fields})
        answer = self.receive()
        if 'error' in answer:
            raise WireError(f'the other doctor: {quoted(answer["error"], 200)}')
        return answer

    def send_zeros(self, count: int) -> None:
        """Send ``count`` bytes; raises WireError."""
        chunk = bytes(_CHUNK)
        for start in range(0, count, _CHUNK):
            self._send(chunk[:count - start])

    def drop(self, count: int) -> None:
        """Receive ``count`` bytes and drop them; raises WireError."""
        while count:
            count -= len(self._receive_some(min(count, _CHUNK)))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _receive(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            data += self._receive_some(count - len(data))
        return bytes(data)

    def _receive_some(self, count: int) -> bytes:
        self._limit()
        try:
            data = self._connection.recv(count)
        except OSError as error:
            raise self._failure(error) from None
        if not data:
            raise WireError('the other doctor closed the connection')
        return data

    def _send(self, data: bytes) -> None:
        self._limit()
        try:
            self._connection.sendall(data)
        except OSError as error:
            raise self._failure(error) from None

    def _limit(self) -> None:
        rest = self._end - time.monotonic()
        if rest <= 0.0:
            raise WireError('the checks took too long')
        self._connection.settimeout(min(rest, self._step))

    def _failure(self, error: OSError) -> WireError:
        if isinstance(error, TimeoutError):
            return WireError(f'no data within {self._step:g} s')
        return WireError(f'the connection ended: {error.strerror or error}')


def whole_number(message: Mapping[str, Any], name: str, low: int, high: int) -> int:
    """Return a field that is a whole number from ``low`` to ``high``; raises WireError."""
    value = message.get(name)
    if type(value) is not int or not low <= value <= high:
        raise WireError(f'{name} is {quoted(value)}; allowed: a whole number from {low} to {high}')
    return value


def text(message: Mapping[str, Any], name: str, longest: int) -> str:
    """Return a field that is a text of at most ``longest`` characters; raises WireError."""
    value = message.get(name)
    if not isinstance(value, str) or len(value) > longest:
        raise WireError(f'{name} is {quoted(value)}; allowed: at most {longest} characters')
    return value
