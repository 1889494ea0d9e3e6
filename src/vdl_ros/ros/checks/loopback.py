"""
A measured message: two processes exchange what a graph exchanges.

``measure()`` starts ``python -m vdl_ros.ros.checks.loopback NAME`` as the echo. Topics are
``NAME/ping`` and ``NAME/pong``, std_msgs/UInt8MultiArray, reliable and latched.
"""

from __future__ import annotations

import array
import dataclasses
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from vdl_ros.ros.checks.types import Finding, System

__all__ = ['Loopback', 'check_loopback', 'echo', 'measure']

# bytes -> messages: an observation batch, and a trajectory
ROUNDS = {28_000: 200, 2_700_000: 20}
DEADLINE = 5.0  # seconds until an answer is called missing


@dataclasses.dataclass(frozen=True)
class Loopback:
    """Round trips of one size: ``p50_ms`` there and back, ``rate`` in MB/s, both ways counted."""

    size: int
    p50_ms: float
    rate: float


class _Peer:
    """A node with one publisher and one subscription, in a context of its own."""

    def __init__(self, name: str, sends: str, hears: str, callback: Callable[[Any], None]) -> None:
        import rclpy
        from rclpy.context import Context
        from rclpy.executors import SingleThreadedExecutor
        from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
        from std_msgs.msg import UInt8MultiArray

        self.context = Context()
        rclpy.init(args=[], context=self.context)
        self.node = rclpy.create_node(name, context=self.context, start_parameter_services=False,
                                      enable_rosout=False)
        try:
            from rclpy.experimental import EventsExecutor as Executor
        except ImportError:
            Executor = SingleThreadedExecutor  # noqa: N806  a class under another name
        self.executor = Executor(context=self.context)
        self.executor.add_node(self.node)
        # Latched: each side discovers the other in its own time, and the first answer must wait.
        qos = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE,
                         durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self.publisher = self.node.create_publisher(UInt8MultiArray, sends, qos)
        self.subscription = self.node.create_subscription(UInt8MultiArray, hears, callback, qos)

    def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Call back until the condition holds; return whether it came to."""
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end:
            self.executor.spin_once(timeout_sec=0.05)
        return condition()

    def matched(self) -> bool:
        """Whether both topics have a peer."""
        return bool(self.publisher.get_subscription_count() > 0
                    and self.node.count_publishers(self.subscription.topic_name) > 0)

    def close(self) -> None:
        self.executor.shutdown()
        self.node.destroy_node()
        self.context.try_shutdown()


def measure(deadline: float = DEADLINE) -> list[Loopback]:
    """
    Exchange messages with a second process in the transport that the environment names.

    Raises ``TimeoutError``, which says what did not arrive, after ``deadline`` seconds without it.
    """
    from std_msgs.msg import UInt8MultiArray

    name = f'vdl_doctor_{os.getpid()}'
    heard: list[float] = []
    command = [sys.executable, '-m', 'vdl_ros.ros.checks.loopback', name]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    peer = _Peer(name, f'{name}/ping', f'{name}/pong', lambda _: heard.append(time.perf_counter()))
    results = []
    try:
        # The second process also imports rclpy within this time, on a busy machine.
        if not peer.until(lambda: peer.matched() or child.poll() is not None, deadline * 2):
            raise TimeoutError('the two processes do not discover each other')
        if child.poll() is not None:
            lines = (child.stderr.read() if child.stderr else '').strip().splitlines()
            raise TimeoutError(f'the second process ended: {lines[-1] if lines else child.poll()}')
        for size, rounds in ROUNDS.items():
            message = UInt8MultiArray()
            message.data = array.array('B', bytes(size))
            trips = []
            for number in range(rounds):
                heard.clear()
                start = time.perf_counter()
                peer.publisher.publish(message)
                if not peer.until(lambda: bool(heard), deadline):
                    raise TimeoutError(f'message {number + 1} of {size / 1e6:g} MB did not come '
                                       f'back in {deadline:g} s')
                trips.append(heard[0] - start)
            trips.sort()
            results.append(Loopback(size, trips[rounds // 2] * 1e3,
                                    2 * size * rounds / sum(trips) / 1e6))
    finally:
        peer.close()
        if child.stdin:
            child.stdin.close()  # the echo ends with it
        try:
            child.wait(timeout=deadline)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if child.stderr:
            child.stderr.close()
    return results


def echo(name: str) -> None:
    """Send every ping back until the standard input ends."""
    import threading

    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    peer = _Peer(f'{name}_echo', f'{name}/pong', f'{name}/ping',
                 lambda message: peer.publisher.publish(message))
    while not ended.is_set():
        peer.executor.spin_once(timeout_sec=0.1)
    peer.close()


def check_loopback(system: System, exchange: Callable[[], list[Loopback]] = measure) -> Finding:
    """Send messages of 28 KB and 2.7 MB to another process and back."""
    del system
    if importlib.util.find_spec('rclpy') is None:
        return Finding('loop-back', 'fail', 'not measured: rclpy cannot be imported',
                       'see the line ROS')
    try:
        results = exchange()
    except (TimeoutError, RuntimeError) as error:
        return Finding('loop-back', 'fail', str(error),
                       'look at the warnings above, then try VDL_TRANSPORT=udp')
    text = '; '.join(f'{item.size / 1e6:g} MB: {item.p50_ms:.2f} ms there and back, '
                     f'{item.rate:.0f} MB/s' for item in results)
    figures = {}
    for item in results:
        figures[f'p50_ms_{item.size}_bytes'] = round(item.p50_ms, 3)
        figures[f'MBps_{item.size}_bytes'] = round(item.rate, 1)
    return Finding('loop-back', 'ok', text, '', figures)


if __name__ == '__main__':
    echo(sys.argv[1])
