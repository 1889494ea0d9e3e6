"""Latency from image to pose, and frames a second, on one core, for both networks.

    ros2 run vdl_ros bench_pose [--seconds S] [--rounds N] [--quick] [--json]

Three measurements of each network, in turn, all on the same core:

* network: ``PoseEstimator.estimate`` of one image in a loop, no ROS;
* topic: ``pose_estimator`` gets an image over DDS, and the next one after its pose has arrived;
  latency is from the stamp of the image to the arrival of the pose;
* graph: ``arm.launch.py pose:=true`` with sim_arm and camera at 30 Hz, drawing included; latency
  is from the stamp of the joint states in the image to the arrival of the pose.

Weights are random, which does not change the times.
"""

from __future__ import annotations

import argparse
import os
import statistics
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
# Poses before the measurement, while caches are cold.
WARM_UP = 20


def percentiles(latencies: list[float], seconds: float) -> dict[str, float]:
    """Return frames/s and the latency's p50 and p99, ms, of latencies in s."""
    if not latencies:
        return {'frames_per_s': 0.0, 'p50_ms': float('nan'), 'p99_ms': float('nan')}
    p50, p99 = np.percentile(latencies, (50, 99)) * 1e3
    return {'frames_per_s': len(latencies) / seconds, 'p50_ms': float(p50), 'p99_ms': float(p99)}


def of_network(model: Path, seconds: float) -> dict[str, float]:
    """Estimate one image after the other."""
    from vdl_ros.pose.estimator import PoseEstimator
    estimator = PoseEstimator.load(model)
    image = np.random.default_rng(0).integers(0, 256, (1, SIZE, SIZE, 3), np.uint8)
    latencies: list[float] = []
    for _ in range(WARM_UP):
        estimator.estimate(image)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        before = time.perf_counter()
        estimator.estimate(image)
        latencies.append(time.perf_counter() - before)
    return percentiles(latencies, time.perf_counter() - began)


def listen(seconds: float, alive: Callable[[], bool], *, send_images: bool) -> dict[str, float]:
    """Return the latencies of poses that arrive within ``seconds``.

    Args:
        seconds: after a warm-up.
        send_images: publish an image for each pose; otherwise a camera does.

    Raises:
        RuntimeError: too few poses arrived.
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
        """Spin until so many poses have arrived; send another image for one that was lost."""
        sent = 0.0
        while len(latencies) < count and time.perf_counter() < until and alive():
            if send_images and time.perf_counter() - sent > 1.0:
                send()
                sent = time.perf_counter()
            rclpy.spin_once(node, timeout_sec=0.1)

    try:
        for number in range(1, WARM_UP + 1):
            wait(number, time.perf_counter() + 60.0)
        if len(latencies) < WARM_UP:
            raise RuntimeError('no poses arrived')
        latencies.clear()
        began = time.perf_counter()
        while (passed := time.perf_counter() - began) < seconds and alive():
            wait(len(latencies) + 1, began + seconds)
        return percentiles(latencies, passed)
    finally:
        node.destroy_node()
        rclpy.shutdown()


def of_topic(model: Path, seconds: float, core: int) -> dict[str, float]:
    """Send one image after the other to the node."""
    with launched('ros2', 'run', 'vdl_ros', 'pose_estimator', '--ros-args', '-p',
                  f'model:={model}', core=core) as process:
        return listen(seconds, lambda: process.poll() is None, send_images=True)


def of_graph(model: Path, seconds: float, core: int) -> dict[str, float]:
    """Measure with the simulated arm and its camera."""
    with launched('ros2', 'launch', 'vdl_ros', 'arm.launch.py', 'pose:=true', f'model:={model}',
                  'view:=false', 'controller:=false', f'rate:={RATE}', f'image_width:={SIZE}',
                  f'image_height:={SIZE}', core=core) as process:
        return listen(seconds, lambda: process.poll() is None, send_images=False)


def measure(options: argparse.Namespace) -> dict[str, dict[str, dict[str, float]]]:
    """Return the medians over the rounds, by network and measurement."""
    import torch

    from vdl_ros.pose.estimator import save_model
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
                    report.log(f'round {number + 1}, {name}, {what}: {values["frames_per_s"]:.1f} '
                               f'frames/s, p50 {values["p50_ms"]:.1f} ms, '
                               f'p99 {values["p99_ms"]:.1f} ms')
    return {name: {what: {key: statistics.median(each[key] for each in values)
                          for key in values[0]} for what, values in by_what.items()}
            for name, by_what in rounds.items()}


def arguments() -> argparse.Namespace:
    """Return the options; ValueError for one that is not allowed."""
    parser = report.Parser('bench_pose', __doc__, quick='one round of 3 s each')
    parser.add_argument('--seconds', type=float, help='of each measurement (10; quick: 3)')
    parser.add_argument('--rounds', type=int, help='(3; quick: 1)')
    options = parser.parse_args()
    report.complete(options, {'seconds': (10.0, 3.0), 'rounds': (3, 1)},
                    {'seconds': (0.1, 3600), 'rounds': (1, 1000)})
    return options


def main() -> int:
    """Measure, and print the table or one JSON object."""
    return report.run('bench_pose', arguments, lambda options: report.deliver('pose', {
        'cores_used': 1, 'seconds': options.seconds, 'rounds': options.rounds,
        'networks': measure(options)}, options, markdown))


def markdown(found: Mapping[str, Any]) -> str:
    """Return the figures as a table."""
    return '\n'.join(report.table(
        ('network', 'measured', 'frames/s', 'p50 ms', 'p99 ms'),
        [(f'`{name}`', what, *(f'{values[key]:.1f}' for key in (
            'frames_per_s', 'p50_ms', 'p99_ms')))
         for name, by_what in found['networks'].items() for what, values in by_what.items()]))
