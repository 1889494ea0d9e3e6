"""The DDS side of bench_transport: trajectories as actors send them, credit as learners give it.

Clients publish ``trajectories`` (vdl_ros/Trajectory) with one uint8 tensor; the server answers
each client on ``client_N/credit`` (vdl_ros/Credit) or, in round trips, sends the packet back on
``client_N/answers``. Topics have the profile STREAM, processes the package's transport. The same
topics with the suffix ``_serialized`` carry bytes that are not decoded.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import rclpy
from rclpy.executors import Executor, MultiThreadedExecutor, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.serialization import serialize_message
from rclpy.signals import SignalHandlerOptions

from benchmarks.transport.cell import WAYS, Cell
from vdl_ros.msg import Credit, Trajectory
from vdl_ros.ros import process
from vdl_ros.ros.dds import transport
from vdl_ros.ros.messages.tensors import from_tensors
from vdl_ros.ros.process import make_executor, stop_on_signals
from vdl_ros.ros.qos import STREAM
from vdl_ros.ros.training.messages import to_trajectory

_MATCH_S = 30.0
_THREADS = 2


def start_id_of(data: bytes) -> int:
    """Return the field ``start_id`` of a serialized Trajectory.

    CDR: four bytes with the byte order, then stamp, two strings and a uint64, each aligned to its
    size from there.
    """
    order = '<' if data[1] else '>'
    position = 12
    for _ in range(2):  # frame_id, actor_id
        position += -position % 4
        position += 4 + int(struct.unpack_from(f'{order}I', data, position)[0])
    position += -(position - 4) % 8
    return int(struct.unpack_from(f'{order}Q', data, position)[0])


def _executor(kind: str) -> Executor:
    if kind == 'multi':
        return MultiThreadedExecutor(_THREADS)
    executor = make_executor(kind)
    if kind == 'events' and isinstance(executor, SingleThreadedExecutor):
        raise ValueError('this rclpy has no EventsExecutor: leave its ways out of --ways')
    return executor


class _Peer:
    """A node and its executor, for all cells."""

    def __init__(self, name: str, namespace: str, executor: str) -> None:
        self._transport = transport.configure().describe()
        process.keep_large_blocks()
        rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
        self._stop = stop_on_signals()
        self._node = Node(name, namespace=namespace, enable_rosout=False,
                          start_parameter_services=False)
        self._executor = _executor(executor)
        self._executor.add_node(self._node)
        # Its callbacks run in other threads and must wake the one that waits for them.
        self._wake = self._executor.wake if executor == 'multi' else lambda: None

    def hello(self) -> dict[str, Any]:
        """Return the transport in force."""
        return {'transport': self._transport}

    def prepare(self, cell: Cell) -> Callable[[], dict[str, Any]]:
        """Return a function that runs the cell, once every topic has a subscription."""
        self._cell = cell
        for publisher in self._publishers(cell):
            if not self._until(lambda end=publisher: end.get_subscription_count() > 0, _MATCH_S):
                raise TimeoutError(
                    f'{publisher.topic_name}: no subscription within {_MATCH_S:g} s')
        return self._start(cell)

    def close(self) -> None:
        """Leave the graph."""
        self._executor.remove_node(self._node)
        self._executor.shutdown()
        self._node.destroy_node()
        rclpy.try_shutdown()

    def _publishers(self, cell: Cell) -> list[Any]:
        raise NotImplementedError

    def _start(self, cell: Cell) -> Callable[[], dict[str, Any]]:
        raise NotImplementedError

    def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Spin until the condition holds, a stop or a timeout; return whether it holds."""
        if condition():
            return True
        end = time.perf_counter() + seconds
        while not (held := condition()) and not self._stop.is_set():
            left = end - time.perf_counter()
            if left <= 0.0:
                break
            self._executor.spin_once(timeout_sec=min(left, 0.1))
        return held

    def _publisher(self, kind: Any, topic: str) -> Any:
        return self._node.create_publisher(kind, topic, STREAM)

    def _subscribe(self, kind: Any, topic: str, callback: Callable[[Any], None],
                raw: bool = False) -> None:
        self._node.create_subscription(kind, topic, callback, STREAM, raw=raw)


class DdsServer(_Peer):
    """Counts packets and publishes credit for them, or sends them back."""

    def __init__(self, total: int, namespace: str, executor: str) -> None:
        super().__init__('server', namespace, executor)
        clients = range(total)
        self._credit = [self._publisher(Credit, f'client_{each}/credit') for each in clients]
        self._answers = [self._publisher(Trajectory, f'client_{each}/answers')
                         for each in clients]
        self._serialized = [self._publisher(Trajectory, f'client_{each}/answers_serialized')
                            for each in clients]
        self._subscribe(Trajectory, 'trajectories', self._on_trajectory)
        self._subscribe(Trajectory, 'trajectories_serialized', self._on_bytes, raw=True)

    def _publishers(self, cell: Cell) -> list[Any]:
        return [*self._credit, *self._answers, *self._serialized]

    def _start(self, cell: Cell) -> Callable[[], dict[str, Any]]:
        self._received, self._seconds = [0] * cell.clients, [0.0] * cell.clients
        return self._run

    def _run(self) -> dict[str, Any]:
        self._began = time.perf_counter()
        wanted = self._cell.clients * self._cell.packets
        self._until(lambda: sum(self._received) >= wanted, self._cell.limit)
        return {'received': self._received, 'seconds': self._seconds}

    def _on_trajectory(self, message: Trajectory) -> None:
        client = self._cell.client(message.start_id)
        if client is None:
            return
        if self._cell.task == 'round_trip':
            self._answers[client].publish(message)
        else:
            found = sum(each.nbytes for each in from_tensors(message.tensors).values())
            if found != self._cell.size or message.sequence < self._received[client]:
                raise ValueError(f'packet {message.sequence} of client {client}: {found} bytes '
                                 f'after {self._received[client]} packets of {self._cell.size}')
        self._count(client, message.sequence + 1)

    def _on_bytes(self, data: bytes) -> None:
        client = self._cell.client(start_id_of(data))
        if client is None:
            return
        if self._cell.task == 'round_trip':
            self._serialized[client].publish(data)
        self._count(client, self._received[client] + 1)

    def _count(self, client: int, used: int) -> None:
        cell = self._cell
        self._received[client] += 1
        self._seconds[client] = time.perf_counter() - self._began
        # After half a window: the client is never idle, and answers stay few.
        if cell.task == 'throughput' and (used % max(cell.window // 2, 1) == 0
                                          or used >= cell.packets):
            self._credit[client].publish(Credit(
                actor_id=f'client_{client}', start_id=cell.start_id(client), used=used))
        if sum(self._received) == cell.clients * cell.packets:
            self._wake()


class DdsClient(_Peer):
    """Sends trajectories while it has credit, or measures round trips."""

    def __init__(self, index: int, namespace: str, executor: str) -> None:
        super().__init__(f'client_{index}', namespace, executor)
        self._index = index
        self._typed = self._publisher(Trajectory, 'trajectories')
        self._serialized = self._publisher(Trajectory, 'trajectories_serialized')
        self._subscribe(Credit, f'client_{index}/credit', self._on_credit)
        self._subscribe(Trajectory, f'client_{index}/answers', self._on_trajectory)
        self._subscribe(Trajectory, f'client_{index}/answers_serialized', self._on_bytes, raw=True)

    def _publishers(self, cell: Cell) -> list[Any]:
        return [self._typed, self._serialized]

    def _start(self, cell: Cell) -> Callable[[], dict[str, Any]]:
        self._sent = self._used = 0
        self._data = np.random.default_rng(self._index).integers(0, 256, cell.size, np.uint8)
        publish = self._publish
        if WAYS[cell.way].serialized:
            data = serialize_message(self._message(0))

            def publish(sequence: int) -> None:
                self._serialized.publish(data)
        return lambda: (self._send if cell.task == 'throughput' else self._exchange)(publish)

    def _message(self, sequence: int) -> Trajectory:
        return to_trajectory(
            {'packet': self._data}, stamp=self._node.get_clock().now(),
            actor_id=f'client_{self._index}', start_id=self._cell.start_id(self._index),
            sequence=sequence, learner_id='', policy_version=0)

    def _publish(self, sequence: int) -> None:
        self._typed.publish(self._message(sequence))

    def _send(self, publish: Callable[[int], None]) -> dict[str, Any]:
        cell = self._cell
        end = time.perf_counter() + cell.limit
        while self._sent < cell.packets and self._until(
                lambda: self._sent - self._used < cell.window, end - time.perf_counter()):
            publish(self._sent)
            self._sent += 1
        self._until(lambda: self._used >= cell.packets, end - time.perf_counter())
        return {'sent': self._sent}

    def _exchange(self, publish: Callable[[int], None]) -> dict[str, Any]:
        cell, trips = self._cell, []
        end = time.perf_counter() + cell.limit
        while self._sent < cell.packets:
            began = time.perf_counter()
            publish(self._sent)
            self._sent += 1
            if not self._until(lambda: self._used >= self._sent, end - time.perf_counter()):
                break
            trips.append((time.perf_counter() - began) * 1e3)
        return {'sent': self._sent, 'trips_ms': trips}

    def _on_credit(self, message: Credit) -> None:
        if self._cell.client(message.start_id) == self._index:
            self._used = max(self._used, message.used)
            self._wake()

    def _on_trajectory(self, message: Trajectory) -> None:
        if self._cell.client(message.start_id) == self._index:
            self._used = max(self._used, message.sequence + 1)
            self._wake()

    def _on_bytes(self, data: bytes) -> None:
        if self._cell.client(start_id_of(data)) == self._index:
            self._used += 1
