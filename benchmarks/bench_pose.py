"""
Latency from picture to pose, and frames a second, on one core, for both networks.

    ros2 run vdl_ros bench_pose [--seconds S] [--rounds N] [--quick] [--json]

Three measurements of each network, in turn, everything on the same core:

* network: ``PoseEstimator.estimate`` of one picture in a loop, no ROS;
* topic: ``pose_estimator`` gets a picture over DDS and the next when its pose has come back;
  latency is from the stamp of the picture to the pose's arrival here;
* graph: ``arm.launch.py pose:=true`` with sim_arm and camera at 30 Hz, drawing included; latency
  is from the stamp of the joint states in the picture to the pose's arrival.

``alexnet`` has random weights, which take as long as any.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.graph import launched, own_domain

SIZE = 128
RATE = 30.0
# Poses that are not counted: caches are cold.
WARM_UP = 20


def percentiles(latencies: list[float], seconds: float) -> dict[str, float]:
    """Return frames/s and the latency's p50 and p99, ms, of latencies in s."""
    if not latencies:
        return {'frames_per_s': 0.0, 'p50_ms': float('nan'), 'p99_ms': float('nan')}
    p50, p99 = np.percentile(latencies, (50, 99)) * 1e3
    return {'frames_per_s': len(latencies) / seconds, 'p50_ms': float(p50), 'p99_ms': float(p99)}


def of_network(model: Path, seconds: float) -> dict[str, float]:
    """Estimate one picture after the other."""
    from vdl_ros.pose.estimator import PoseEstimator
    estimator = PoseEstimator.load(model)
    picture = np.random.default_rng(0).integers(0, 256, (1, SIZE, SIZE, 3), np.uint8)
    latencies: list[float] = []
    for _ in range(WARM_UP):
        estimator.estimate(picture)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        before = time.perf_counter()
        estimator.estimate(picture)
        latencies.append(time.perf_counter() - before)
    return percentiles(latencies, time.perf_counter() - began)


def listen(seconds: float, alive: Callable[[], bool], *, ask: bool) -> dict[str, float]:
    """
    Return the latencies of poses that arrive within ``seconds``.

    Args:
        seconds: from the first poses on.
        alive: whether there is still a graph to listen to.
        ask: send a picture for each pose; otherwise a camera does.

    Raises:
        RuntimeError: no pose came.
    """
    import rclpy
    from rclpy.time import Time
    from sensor_msgs.msg import Image

    from vdl_ros.msg import ArmPose
    from vdl_ros.ros import qos

    pixels = np.random.default_rng(0).integers(0, 256, SIZE * SIZE * 3, np.uint8).tobytes()
    rclpy.init()
    node = rclpy.create_node('bench_pose')
    latencies: list[float] = []

    def on_pose(message: ArmPose) -> None:
        now = node.get_clock().now()
        latencies.append((now - Time.from_msg(message.header.stamp)).nanoseconds * 1e-9)

    node.create_subscription(ArmPose, 'arm/pose', on_pose, qos.subscription('arm/pose'))
    images = node.create_publisher(Image, 'camera/image_raw', qos.TOPICS['camera/image_raw'])

    def send() -> None:
        image = Image(height=SIZE, width=SIZE, encoding='rgb8', step=3 * SIZE, data=pixels)
        image.header.stamp = node.get_clock().now().to_msg()
        images.publish(image)

    def wait(count: int, until: float) -> None:
        """Spin until so many poses have come; ask again for one that was lost."""
        asked = 0.0
        while len(latencies) < count and time.perf_counter() < until and alive():
            if ask and time.perf_counter() - asked > 1.0:
                send()
                asked = time.perf_counter()
            rclpy.spin_once(node, timeout_sec=0.1)

    try:
        for number in range(1, WARM_UP + 1):
            wait(number, time.perf_counter() + 60.0)
        if len(latencies) < WARM_UP:
            raise RuntimeError('no poses came')
        latencies.clear()
        began = time.perf_counter()
        while (passed := time.perf_counter() - began) < seconds and alive():
            wait(len(latencies) + 1, began + seconds)
        return percentiles(latencies, passed)
    finally:
        node.destroy_node()
        rclpy.shutdown()


def of_topic(model: Path, seconds: float, core: int) -> dict[str, float]:
    """Send pictures to the node one after the other."""
    with launched('ros2', 'run', 'vdl_ros', 'pose_estimator', '--ros-args', '-p',
                  f'model:={model}', core=core) as process:
        return listen(seconds, lambda: process.poll() is None, ask=True)


def of_graph(model: Path, seconds: float, core: int) -> dict[str, float]:
    """Let the simulated arm and its camera send them."""
    with launched('ros2', 'launch', 'vdl_ros', 'arm.launch.py', 'pose:=true', f'model:={model}',
                  'view:=false', 'controller:=false', f'rate:={RATE}', f'image_width:={SIZE}',
                  f'image_height:={SIZE}', core=core) as process:
        return listen(seconds, lambda: process.poll() is None, ask=False)


def measure(options: argparse.Namespace) -> dict[str, dict[str, dict[str, float]]]:
    """Return the medians over the rounds, by network and measurement."""
    import torch

    from vdl_ros.pose.model_file import save_model
    from vdl_ros.pose.networks import MODELS, make_model
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)
    rounds: dict[str, dict[str, list[dict[str, float]]]] = {}
    with tempfile.TemporaryDirectory() as folder, own_domain():
        models = {}
        for name in MODELS:
            models[name] = Path(folder) / f'{name}.pt'
            save_model(models[name], name, make_model(name).state_dict(),
                       {'scale': [1.0] * 6, 'threshold': 1.0}, {})
        for number in range(options.rounds):
            for name, path in models.items():
                found = {'network': of_network(path, options.seconds),
                         'topic': of_topic(path, options.seconds, core),
                         'graph': of_graph(path, options.seconds, core)}
                for what, values in found.items():
                    rounds.setdefault(name, {}).setdefault(what, []).append(values)
                    print(f'round {number + 1}, {name}, {what}: '
                          f'{values["frames_per_s"]:.1f} frames/s, p50 {values["p50_ms"]:.1f} ms, '
                          f'p99 {values["p99_ms"]:.1f} ms', file=sys.stderr, flush=True)
    return {name: {what: {key: statistics.median(each[key] for each in values)
                          for key in values[0]} for what, values in by_what.items()}
            for name, by_what in rounds.items()}


def main() -> int:
    """Measure, and print the table or one JSON object."""
    parser = argparse.ArgumentParser(
        prog='bench_pose', description='Latency from picture to pose on one core.')
    parser.add_argument('--seconds', type=float, default=10.0, help='of each measurement')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--quick', action='store_true', help='one round of 3 s each')
    report.add_options(parser)
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.rounds = 3.0, 1
    try:
        report.check_output(options)
        found = measure(options)
    except ValueError as error:
        print(f'bench_pose: {error}', file=sys.stderr)
        return 2
    except RuntimeError as error:
        print(f'bench_pose: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    report.deliver({
        'benchmark': 'pose', 'machine': report.machine(), 'cores_used': 1,
        'seconds': options.seconds, 'rounds': options.rounds, 'networks': found}, options, table)
    return 0


def table(found: Mapping[str, Any]) -> str:
    """Return it as Markdown."""
    return '\n'.join([
        '| network | measured | frames/s | p50 ms | p99 ms |\n|---|---|---:|---:|---:|',
        *(f'| `{name}` | {what} | {values["frames_per_s"]:.1f} | {values["p50_ms"]:.1f} | '
          f'{values["p99_ms"]:.1f} |'
          for name, by_what in found['networks'].items() for what, values in by_what.items())])
