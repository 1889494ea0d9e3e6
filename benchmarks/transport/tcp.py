"""The raw TCP side of bench_transport: one connection for each client, no delay, no codec.

A packet is its length, four bytes little-endian, and that many bytes. A client first sends its
number; after a throughput cell it waits for the server's count of packets.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.transport.cell import WAYS, Cell

_LENGTH = struct.Struct('<I')


def _limit(connection: socket.socket, seconds: float) -> None:
    # Not settimeout: that would add a poll to each receive.
    whole = int(seconds)
    value = struct.pack('@ll', whole, int((seconds - whole) * 1e6))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)


def _fill(connection: socket.socket, view: memoryview) -> None:
    """Receive exactly as many bytes as ``view`` has."""
    while view:
        count = connection.recv_into(view, len(view), socket.MSG_WAITALL)
        if count == 0:
            raise ConnectionError('the other side closed the connection')
        view = view[count:]


def _receive_number(connection: socket.socket) -> int:
    number = bytearray(_LENGTH.size)
    _fill(connection, memoryview(number))
    return int(_LENGTH.unpack(number)[0])


class _Receiver:
    """Receives packets of one size, into the same buffer or a new one each time."""

    def __init__(self, connection: socket.socket, size: int, kept: bool) -> None:
        self._connection, self._size, self._kept = connection, size, kept
        self._renew()

    def _renew(self) -> None:
        self.packet = bytearray(_LENGTH.size + self._size)
        view = memoryview(self.packet)
        self._head, self._body = view[:_LENGTH.size], view[_LENGTH.size:]

    def take(self) -> None:
        """Receive one packet; raise ValueError if its length is not that of the cell."""
        if self._kept:
            self._renew()
        _fill(self._connection, self._head)
        length, = _LENGTH.unpack(self._head)
        if length != self._size:
            raise ValueError(f'packet: {length} bytes, must be {self._size}')
        _fill(self._connection, self._body)


class TcpServer:
    """Receives from, or answers, each client in a separate thread."""

    def __init__(self, total: int, address: str) -> None:
        self._total = total
        self._listener = socket.create_server((address, 0))
        self._connections: dict[int, socket.socket] = {}

    def hello(self) -> dict[str, Any]:
        """Return the port, for the clients."""
        return {'port': self._listener.getsockname()[1], 'transport': 'TCP, no delay'}

    def prepare(self, cell: Cell) -> Callable[[], dict[str, Any]]:
        """Return a function that runs the cell."""
        while len(self._connections) < self._total:
            connection, _ = self._listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections[_receive_number(connection)] = connection
        for connection in self._connections.values():
            _limit(connection, cell.limit)
        return lambda: self._run(cell)

    def _run(self, cell: Cell) -> dict[str, Any]:
        received, seconds = [0] * cell.clients, [0.0] * cell.clients
        failures: list[Exception] = []
        began = time.perf_counter()

        def serve(client: int) -> None:
            try:
                connection = self._connections[client]
                receiver = _Receiver(connection, cell.size, WAYS[cell.way].kept)
                for _ in range(cell.packets):
                    receiver.take()
                    received[client] += 1
                    if cell.task == 'round_trip':
                        connection.sendall(receiver.packet)
                seconds[client] = time.perf_counter() - began
                if cell.task == 'throughput':
                    connection.sendall(_LENGTH.pack(received[client]))
            except (OSError, ValueError) as error:
                failures.append(error)

        threads = [threading.Thread(target=serve, args=(client,), daemon=True)
                   for client in range(cell.clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return {'received': received, 'seconds': seconds}

    def close(self) -> None:
        """Close every connection."""
        for connection in [*self._connections.values(), self._listener]:
            connection.close()


class TcpClient:
    """Sends packets, or measures how long they take there and back."""

    def __init__(self, index: int, address: str, port: int) -> None:
        self._connection = socket.create_connection((address, port))
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection.sendall(_LENGTH.pack(index))

    def hello(self) -> dict[str, Any]:
        """Return an empty greeting."""
        return {}

    def prepare(self, cell: Cell) -> Callable[[], dict[str, Any]]:
        """Return a function that runs the cell."""
        _limit(self._connection, cell.limit)
        packet = _LENGTH.pack(cell.size) + os.urandom(cell.size)
        return lambda: (self._send if cell.task == 'throughput' else self._exchange)(cell, packet)

    def _send(self, cell: Cell, packet: bytes) -> dict[str, Any]:
        for _ in range(cell.packets):
            self._connection.sendall(packet)
        _receive_number(self._connection)
        return {'sent': cell.packets}

    def _exchange(self, cell: Cell, packet: bytes) -> dict[str, Any]:
        receiver = _Receiver(self._connection, cell.size, WAYS[cell.way].kept)
        trips = []
        for _ in range(cell.packets):
            began = time.perf_counter()
            self._connection.sendall(packet)
            receiver.take()
            trips.append((time.perf_counter() - began) * 1e3)
        return {'sent': cell.packets, 'trips_ms': trips}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
