"""The raw TCP side of bench_transport: one connection for each client, no delay, no codec.

A packet is its length, four bytes little-endian, and that many bytes. A client first sends its
number; after a throughput cell it waits for the server's count of packets.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.transport.worker import Cell

_LENGTH = struct.Struct('<I')


class _Connection:
    """A socket for packets of one size."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def prepare(self, cell: Cell) -> None:
        """Take size and time limit of a cell."""
        self._size = cell.size
        self.packet = bytearray(_LENGTH.size + cell.size)
        view = memoryview(self.packet)
        self._head, self._body = view[:_LENGTH.size], view[_LENGTH.size:]
        # Not settimeout: that would add a poll to each receive.
        value = struct.pack('@ll', int(cell.limit), int(cell.limit % 1.0 * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self.socket.setsockopt(socket.SOL_SOCKET, option, value)

    def _fill(self, view: memoryview) -> None:
        while view:
            count = self.socket.recv_into(view, len(view), socket.MSG_WAITALL)
            if count == 0:
                raise ConnectionError('the other side closed the connection')
            view = view[count:]

    def receive_number(self) -> int:
        number = bytearray(_LENGTH.size)
        self._fill(memoryview(number))
        return int(_LENGTH.unpack(number)[0])

    def receive(self) -> None:
        """Receive one packet; raise ValueError if its length is not that of the cell."""
        self._fill(self._head)
        length, = _LENGTH.unpack(self._head)
        if length != self._size:
            raise ValueError(f'packet: {length} bytes, must be {self._size}')
        self._fill(self._body)


class TcpServer:
    """Receives from, or answers, each client in a separate thread."""

    def __init__(self, total: int, address: str) -> None:
        self._total = total
        self._listener = socket.create_server((address, 0))
        self._connections: dict[int, _Connection] = {}

    def hello(self) -> dict[str, Any]:
        """Return the port, for the clients."""
        return {'port': self._listener.getsockname()[1], 'transport': 'TCP, no delay'}

    def prepare(self, cell: Cell) -> Callable[[], dict[str, Any]]:
        """Return a function that runs the cell."""
        while len(self._connections) < self._total:
            connection = _Connection(self._listener.accept()[0])
            self._connections[connection.receive_number()] = connection
        for connection in self._connections.values():
            connection.prepare(cell)
        return lambda: self._run(cell)

    def _run(self, cell: Cell) -> dict[str, Any]:
        began = time.perf_counter()

        def serve(client: int) -> float:
            connection = self._connections[client]
            for _ in range(cell.packets):
                connection.receive()
                if cell.task == 'round_trip':
                    connection.socket.sendall(connection.packet)
            seconds = time.perf_counter() - began
            if cell.task == 'throughput':
                connection.socket.sendall(_LENGTH.pack(cell.packets))
            return seconds

        with ThreadPoolExecutor(cell.clients) as pool:
            seconds = list(pool.map(serve, range(cell.clients)))
        return {'received': [cell.packets] * cell.clients, 'seconds': seconds}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.socket.close()
        self._listener.close()


class TcpClient:
    """Sends packets, or measures how long they take there and back."""

    def __init__(self, index: int, address: str, port: int) -> None:
        self._connection = _Connection(socket.create_connection((address, port)))
        self._connection.socket.sendall(_LENGTH.pack(index))

    def hello(self) -> dict[str, Any]:
        return {}

    def prepare(self, cell: Cell) -> Callable[[], dict[str, Any]]:
        """Return a function that runs the cell."""
        self._connection.prepare(cell)
        packet = _LENGTH.pack(cell.size) + os.urandom(cell.size)
        return lambda: (self._send if cell.task == 'throughput' else self._exchange)(cell, packet)

    def _send(self, cell: Cell, packet: bytes) -> dict[str, Any]:
        for _ in range(cell.packets):
            self._connection.socket.sendall(packet)
        self._connection.receive_number()
        return {'sent': cell.packets}

    def _exchange(self, cell: Cell, packet: bytes) -> dict[str, Any]:
        trips = []
        for _ in range(cell.packets):
            began = time.perf_counter()
            self._connection.socket.sendall(packet)
            self._connection.receive()
            trips.append((time.perf_counter() - began) * 1e3)
        return {'sent': cell.packets, 'trips_ms': trips}

    def close(self) -> None:
        self._connection.socket.close()
