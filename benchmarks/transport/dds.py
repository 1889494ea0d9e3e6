"""The DDS side of bench_transport: trajectories as actors send them, credit as learners give it.

Clients publish ``trajectories`` (vdl_ros/Trajectory) with one uint8 tensor; the server answers
each client on ``client_N/credit`` (vdl_ros/Credit) or, in round trips, sends the packet back on
``client_N/answers``. Topics have the profile STREAM, processes the package's transport.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import rclpy
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from benchmarks.transport.worker import Cell
from vdl_ros.common.command_line import stop_on_signals
from vdl_ros.msg import Credit, Trajectory
from vdl_ros.ros import process
from vdl_ros.ros.dds import transport
from vdl_ros.ros.messages.tensors import from_tensors
from vdl_ros.ros.qos import STREAM
from vdl_ros.ros.training.messages import to_trajectory

_MATCH_S = 30.0


class _Peer:
    """A node and its executor, for all cells."""

    def __init__(self, name: str, namespace: str) -> None:
        self._transport = transport.configure().describe()
        process.keep_large_blocks()
        rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
        self._stop = stop_on_signals()
        self._node = Node(name, namespace=namespace, enable_rosout=False,
                          start_parameter_services=False)
        self._executor = process.make_executor('events')
        self._executor.add_node(self._node)
        self._publishers: list[Any] = []

    def hello(self) -> dict[str, Any]:
        """Return the transport in force."""
        return {'transport': self._transport}

    def prepare(self, cell: Cell) -> Callable[[], dict[str, Any]]:
        """Return a function that runs the cell, once every topic has a subscription."""
        self._cell = cell
        for publisher in self._publishers:
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

    def _start(self, cell: Cell) -> Callable[[], dict[str, Any]]:
        raise NotImplementedError

    def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Spin until the condition holds, a stop or a timeout; return whether it holds."""
        end = time.perf_counter() + seconds
        while not (held := condition()) and not self._stop.is_set():
            left = end - time.perf_counter()
            if left <= 0.0:
                break
            self._executor.spin_once(timeout_sec=min(left, 0.1))
        return held

    def _publisher(self, kind: Any, topic: str) -> Any:
        self._publishers.append(self._node.create_publisher(kind, topic, STREAM))
        return self._publishers[-1]

    def _subscribe(self, kind: Any, topic: str, callback: Callable[[Any], None]) -> None:
        self._node.create_subscription(kind, topic, callback, STREAM)


class DdsServer(_Peer):
    """Counts packets and publishes credit for them, or sends them back."""

    def __init__(self, total: int, namespace: str) -> None:
        super().__init__('server', namespace)
        self._credit, self._answers = (
            [self._publisher(kind, f'client_{each}/{topic}') for each in range(total)]
            for kind, topic in ((Credit, 'credit'), (Trajectory, 'answers')))
        self._subscribe(Trajectory, 'trajectories', self._on_trajectory)

    def _start(self, cell: Cell) -> Callable[[], dict[str, Any]]:
        self._received, self._seconds = [0] * cell.clients, [0.0] * cell.clients
        return self._run

    def _run(self) -> dict[str, Any]:
        self._began = time.perf_counter()
        wanted = self._cell.clients * self._cell.packets
        self._until(lambda: sum(self._received) >= wanted, self._cell.limit)
        return {'received': self._received, 'seconds': self._seconds}

    def _on_trajectory(self, message: Trajectory) -> None:
        cell = self._cell
        if message.start_id != cell.token:
            return
        client, used = int(message.actor_id), message.sequence + 1
        if cell.task == 'round_trip':
            self._answers[client].publish(message)
        else:
            found = sum(each.nbytes for each in from_tensors(message.tensors).values())
            if found != cell.size or used <= self._received[client]:
                raise ValueError(f'packet {message.sequence} of client {client}: {found} bytes '
                                 f'after {self._received[client]} packets of {cell.size}')
        self._received[client] += 1
        self._seconds[client] = time.perf_counter() - self._began
        # After half a window: the client is never idle, and answers stay few.
        if cell.task == 'throughput' and (used % max(cell.window // 2, 1) == 0
                                          or used >= cell.packets):
            self._credit[client].publish(Credit(start_id=cell.token, used=used))


class DdsClient(_Peer):
    """Sends trajectories while it has credit, or measures round trips."""

    def __init__(self, index: int, namespace: str) -> None:
        super().__init__(f'client_{index}', namespace)
        self._index = index
        self._trajectories = self._publisher(Trajectory, 'trajectories')
        self._subscribe(Credit, f'client_{index}/credit', lambda message: self._on_use(
            message.start_id, message.used))
        self._subscribe(Trajectory, f'client_{index}/answers', lambda message: self._on_use(
            message.start_id, message.sequence + 1))

    def _on_use(self, start_id: int, used: int) -> None:
        if start_id == self._cell.token:
            self._used = max(self._used, used)

    def _start(self, cell: Cell) -> Callable[[], dict[str, Any]]:
        self._sent = self._used = 0
        self._data = np.random.default_rng(self._index).integers(0, 256, cell.size, np.uint8)
        return self._send if cell.task == 'throughput' else self._exchange

    def _publish(self) -> None:
        self._trajectories.publish(to_trajectory(
            {'packet': self._data}, stamp=self._node.get_clock().now(),
            actor_id=str(self._index), start_id=self._cell.token, sequence=self._sent,
            learner_id='', policy_version=0))
        self._sent += 1

    def _send(self) -> dict[str, Any]:
        cell, end = self._cell, time.perf_counter() + self._cell.limit
        while self._sent < cell.packets and self._until(
                lambda: self._sent - self._used < cell.window, end - time.perf_counter()):
            self._publish()
        self._until(lambda: self._used >= cell.packets, end - time.perf_counter())
        return {'sent': self._sent}

    def _exchange(self) -> dict[str, Any]:
        trips, end = [], time.perf_counter() + self._cell.limit
        while self._sent < self._cell.packets:
            began = time.perf_counter()
            self._publish()
            if not self._until(lambda: self._used >= self._sent, end - time.perf_counter()):
                break
            trips.append((time.perf_counter() - began) * 1e3)
        return {'sent': self._sent, 'trips_ms': trips}
