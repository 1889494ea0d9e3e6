"""Measure the round trip of messages to a second process, which runs :func:`echo`."""

import array
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from vdl_ros.ros.environment import Finding, System, verify_environment

# bytes -> messages: sizes of an observation batch and of a trajectory
ROUNDS = {28_000: 200, 2_700_000: 20}
DEADLINE = 15.0  # timeout of one response, s


class Endpoint:
    """A node with one publisher and one subscription, in a context of its own."""

    def __init__(
        self, name: str, sends: str, receives: str, callback: Callable[[Any], None],
    ) -> None:
        import rclpy
        from rclpy.context import Context
        from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
        from std_msgs.msg import UInt8MultiArray

        from vdl_ros.ros.process import make_executor

        self.context = Context()
        rclpy.init(args=[], context=self.context)
        self.node = rclpy.create_node(name, context=self.context, start_parameter_services=False,
                                      enable_rosout=False)
        self.executor = make_executor(self.context)
        self.executor.add_node(self.node)
        # Latched: the two sides discover each other at different times.
        qos = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE,
                         durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self.publisher = self.node.create_publisher(UInt8MultiArray, sends, qos)
        self.subscription = self.node.create_subscription(UInt8MultiArray, receives, callback, qos)

    def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Run callbacks until ``condition`` holds or the time is over; return the condition."""
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end:
            self.executor.spin_once(timeout_sec=0.05)
        return condition()

    def matched(self) -> bool:
        return bool(self.publisher.get_subscription_count() > 0
                    and self.node.count_publishers(self.subscription.topic_name) > 0)

    def close(self) -> None:
        self.executor.shutdown()
        self.node.destroy_node()
        self.context.try_shutdown()


def measure() -> dict[int, tuple[float, float]]:
    """Exchange messages with a second process: median round trip, ms, and rate, MB/s, by size."""
    name = f'vdl_doctor_{os.getpid()}'
    arrivals: list[float] = []
    child = subprocess.Popen(echo_command(name), stdin=subprocess.PIPE,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    peer = Endpoint(name, f'{name}/ping', f'{name}/pong',
                    lambda _: arrivals.append(time.perf_counter()))
    results = {}
    try:
        # This time includes the start of the second process on a busy machine.
        if not peer.until(lambda: peer.matched() or child.poll() is not None, DEADLINE * 2):
            raise TimeoutError('the two processes do not discover each other')
        if child.poll() is not None:
            lines = (child.stderr.read() if child.stderr else '').strip().splitlines()
            raise TimeoutError(f'the second process ended: {lines[-1] if lines else child.poll()}')
        for size, rounds in ROUNDS.items():
            trips = round_trips(peer, arrivals, size, rounds, DEADLINE)
            results[size] = trips[rounds // 2] * 1e3, 2 * size * rounds / sum(trips) / 1e6
    finally:
        peer.close()
        end_echo(child)
    return results


def end_echo(process: subprocess.Popen[Any]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(timeout=DEADLINE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def round_trips(
    peer: Endpoint, arrivals: list[float], size: int, rounds: int, deadline: float,
) -> list[float]:
    """Return the times of ``rounds`` messages of ``size`` bytes there and back, in s, sorted.

    ``arrivals`` is the list to which the callback of ``peer`` appends times. Raises TimeoutError.
    """
    from std_msgs.msg import UInt8MultiArray

    message = UInt8MultiArray()
    message.data = array.array('B', bytes(size))
    trips = []
    for number in range(rounds):
        arrivals.clear()
        start = time.perf_counter()
        peer.publisher.publish(message)
        if not peer.until(lambda: bool(arrivals), deadline):
            raise TimeoutError(f'message {number + 1} of {size / 1e6:g} MB did not come '
                               f'back in {deadline:g} s')
        trips.append(arrivals[0] - start)
    return sorted(trips)


def echo_command(name: str) -> list[str]:
    # Not `-m`, which warns: the package has imported this module by then.
    return [sys.executable, '-c', f'from {__name__} import echo; echo({name!r})']


def echo(name: str) -> None:
    """Print ``ready``, then return every message until standard input is closed."""
    import threading

    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    peer = Endpoint(f'{name}_echo', f'{name}/pong', f'{name}/ping',
                    lambda message: peer.publisher.publish(message))
    print('ready', flush=True)
    while not ended.is_set():
        peer.executor.spin_once(timeout_sec=0.1)
    peer.close()


def check_loopback(
    system: System, exchange: Callable[[], dict[int, tuple[float, float]]] = measure,
) -> Finding:
    """Send messages of 28 KB and 2.7 MB to another process and back."""
    if importlib.util.find_spec('rclpy') is None:
        return Finding('loop-back', 'fail', 'not measured: rclpy cannot be imported',
                       'see the check ROS')
    try:
        # In a domain that is too large DDS ends the process.
        verify_environment(system.environ)
    except ValueError:
        return Finding('loop-back', 'fail', 'not measured: no node can start',
                       'resolve the failures above')
    try:
        results = exchange()
    except (TimeoutError, RuntimeError) as error:
        return Finding('loop-back', 'fail', str(error),
                       'resolve the warnings above, or try VDL_TRANSPORT=udp')
    figures: dict[str, float] = {}
    for size, (p50_ms, rate) in results.items():
        figures |= {f'p50_ms_{size}_bytes': round(p50_ms, 3), f'MBps_{size}_bytes': round(rate, 1)}
    return Finding('loop-back', 'ok', '; '.join(
        f'{size / 1e6:g} MB: {p50_ms:.2f} ms round trip, {rate:.0f} MB/s'
        for size, (p50_ms, rate) in results.items()), '', figures)
