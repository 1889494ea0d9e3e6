"""One process of bench_transport. Arguments: ROLE and a Cell as a JSON object.

The role ``server`` prints an object with ``transport`` and ``port``, and receives or answers
packets until SIGINT. ``client`` prints what it measured: ``received``, packets that the server has
used or sent back, and ``seconds`` until the last of them, or ``trips_ms``, round trips.
"""

import contextlib
import json
import math
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_LENGTH = struct.Struct('<I')
ROUND_TRIP = 'round_trip'


@dataclass(frozen=True)
class Cell:
    """One measurement.

    Attributes:
        way: ``tcp`` or ``dds``.
        task: ``throughput`` or ``round_trip``.
        size: bytes of data in a packet.
        packets: that the client sends.
        window: packets under way over DDS; TCP has the kernel's window.
        limit: s after which a missing packet is lost.
        where: address of the server, or namespace of the nodes.
    """

    way: str
    task: str
    size: int
    packets: int
    window: int
    limit: float
    where: str
    port: int = 0


def _say(**found: Any) -> None:
    print(json.dumps(found), flush=True)


def _receive(connection: socket.socket, view: memoryview) -> None:
    while view:
        count = connection.recv_into(view, len(view), socket.MSG_WAITALL)
        if not count:
            raise ConnectionError('the other side closed the connection')
        view = view[count:]


def _tcp(role: str, cell: Cell) -> None:
    """Send or receive packets: their length, four bytes, and that many bytes; without delay."""
    if role == 'server':
        with socket.create_server((cell.where, 0)) as listener:
            _say(transport='TCP, no delay', port=listener.getsockname()[1])
            connection = listener.accept()[0]
    else:
        connection = socket.create_connection((cell.where, cell.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    packet = memoryview(bytearray(_LENGTH.pack(cell.size) + os.urandom(cell.size)))

    def receive() -> None:
        _receive(connection, packet[:_LENGTH.size])
        _receive(connection, packet[_LENGTH.size:])

    with connection:
        if role == 'server':
            connection.sendall(b'.')
            for _ in range(cell.packets):
                receive()
                if cell.task == ROUND_TRIP:
                    connection.sendall(packet)
            # Of a throughput: all have come.
            connection.sendall(b'.')
        elif connection.recv(1) and cell.task == ROUND_TRIP:
            def exchange() -> bool:
                connection.sendall(packet)
                receive()
                return True
            _trips(exchange, cell)
        else:
            began = time.perf_counter()
            for _ in range(cell.packets):
                connection.sendall(packet)
            connection.recv(1)
            _say(received=cell.packets, seconds=time.perf_counter() - began)


def _trips(exchange: Callable[[], bool], cell: Cell) -> None:
    trips = []
    for _ in range(cell.packets):
        began = time.perf_counter()
        if not exchange():
            break
        trips.append((time.perf_counter() - began) * 1e3)
    _say(received=len(trips), trips_ms=trips)


def _dds(role: str, cell: Cell) -> None:
    """Send or receive trajectories as actors send them, with credit as learners give it.

    The server answers with vdl_ros/Credit or, in round trips, with what it received. Topics have
    the profile STREAM, processes the package's transport. Start 0 is of the warm-up.
    """
    import numpy as np

    from vdl_ros.msg import Credit, Trajectory
    from vdl_ros.ros.messages.tensors import from_tensors
    from vdl_ros.ros.process import spin_until
    from vdl_ros.ros.qos import STREAM
    from vdl_ros.ros.training.messages import to_trajectory
    goes_back = cell.task == ROUND_TRIP
    kind = Trajectory if goes_back else Credit
    with _node(role, cell.where) as (node, executor, stop, transport):
        received, used, last = 0, [0, 0], 0.0

        def use(message: Trajectory) -> None:
            nonlocal received
            if goes_back:
                sender.publish(message)
                return
            from_tensors(message.tensors)
            received += message.start_id
            # After half a window: the client is never idle, and answers stay few.
            if (not message.start_id or received % max(cell.window // 2, 1) == 0
                    or received == cell.packets):
                sender.publish(Credit(start_id=message.start_id, used=received))

        def answer(message: Any) -> None:
            nonlocal last
            used[message.start_id] = message.sequence + 1 if goes_back else message.used
            last = time.perf_counter()

        if role == 'server':
            sender = node.create_publisher(kind, 'answers', STREAM)
            node.create_subscription(Trajectory, 'trajectories', use, STREAM)
            _say(transport=transport)
            spin_until(lambda: False, executor, stop)
            return
        sender = node.create_publisher(Trajectory, 'trajectories', STREAM)
        node.create_subscription(kind, 'answers', answer, STREAM)
        data = np.random.default_rng(0).integers(0, 256, cell.size, np.uint8)

        def send(start: int, sequence: int) -> None:
            sender.publish(to_trajectory(
                {'packet': data}, stamp=node.get_clock().now(), actor_id='client',
                start_id=start, sequence=sequence, learner_id='', policy_version=0))

        # Until server and client know each other.
        while not last and not stop.is_set():
            send(0, 0)
            spin_until(lambda: last, executor, stop, 0.5)
        sent, began = 0, time.perf_counter()

        def exchange() -> bool:
            nonlocal sent
            send(1, sent)
            sent += 1
            return spin_until(lambda: used[1] >= sent, executor, stop, cell.limit)

        if goes_back:
            _trips(exchange, cell)
            return
        for number in range(cell.packets):
            if not spin_until(lambda free=number - cell.window: used[1] > free, executor, stop,
                              cell.limit):
                break
            send(1, number)
        spin_until(lambda: used[1] >= cell.packets, executor, stop, cell.limit)
        _say(received=used[1], seconds=last - began if used[1] else math.inf)


@contextlib.contextmanager
def _node(name: str, namespace: str) -> Iterator[tuple[Any, ...]]:
    import rclpy
    from rclpy.signals import SignalHandlerOptions

    from vdl_ros.common.command_line import stop_on_signals
    from vdl_ros.ros import process
    from vdl_ros.ros.dds import transport
    stop, chosen = stop_on_signals(), transport.configure().describe()
    process.keep_large_blocks()
    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node(name, namespace=namespace, enable_rosout=False,
                             start_parameter_services=False)
    executor = process.make_executor()
    executor.add_node(node)
    try:
        yield node, executor, stop, chosen
    finally:
        executor.shutdown()
        node.destroy_node()
        rclpy.try_shutdown()


def main() -> int:
    from vdl_ros.ros.process import die_with_parent
    die_with_parent()
    role, words = sys.argv[1:]
    cell = Cell(**json.loads(words))
    try:
        (_tcp if cell.way == 'tcp' else _dds)(role, cell)
    except (OSError, ValueError) as error:
        print(error)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0
