"""
Frames a second of a capture through the graph, beside bare rendering in one process.

    ros2 run vdl_ros bench_capture [--frames N] [--rounds N] [--domain NAME] [--quick] [--json]

Measured in turn, so that what else the machine does troubles all alike. *Plain*: setting joint
positions and drawing with ``mujoco.Renderer``, nothing randomised. *Same*: drawing the very frames
that are captured, drawn by lot beforehand: poses, camera, colours, lights, patterns. What the
capture adds to that is choosing frames, the graph, and writing the bag.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

os.environ.setdefault('MUJOCO_GL', 'egl')  # before mujoco is imported

import mujoco
import numpy as np
from numpy.typing import NDArray

from benchmarks import report
from benchmarks.graph import module_command
from vdl_ros.arm.model.geometry import load
from vdl_ros.arm.simulation.scene import CAMERA
from vdl_ros.arm.simulation.simulation import ArmSimulation, PoseError
from vdl_ros.pose.data.domain_randomization import sample
from vdl_ros.pose.data.randomized_scene import RandomizedScene

SIZE = 128
BARE = '--bare'


def plain(frames: int) -> float:
    """Return the frames/s of bare rendering of the plain scene."""
    geometry = load()
    studio = RandomizedScene(geometry, SIZE, SIZE)
    scene = studio.scene
    studio.close()
    data = mujoco.MjData(scene.model)
    random = np.random.default_rng(0)
    poses = random.uniform(geometry.lower, geometry.upper, (frames, len(geometry.lower)))
    with mujoco.Renderer(scene.model, SIZE, SIZE) as renderer:
        began = time.perf_counter()
        for pose in poses:
            scene.set_positions(data, pose)
            renderer.update_scene(data, camera=CAMERA)
            renderer.render()
        return frames / (time.perf_counter() - began)


def same(frames: int, domain: str) -> float:
    """Return the frames/s of bare rendering of the frames of a domain."""
    geometry = load()
    simulation = ArmSimulation(geometry=geometry)

    def fits(positions: NDArray[np.float64]) -> bool:
        try:
            simulation.check_collision(positions)
        except PoseError:
            return False
        return True

    chosen = [sample('train', 0, index, domain, geometry, fits) for index in range(frames)]
    studio = RandomizedScene(geometry, SIZE, SIZE)
    began = time.perf_counter()
    for each in chosen:
        studio.draw(each.positions, each.distance, each.elevation, each.azimuth, each.look)
    took = time.perf_counter() - began
    studio.close()
    return frames / took


def alone(frames: int, domain: str) -> float:
    """Return the frames/s of :func:`same` or, without a domain, :func:`plain`, in a process."""
    done = subprocess.run(
        module_command('benchmarks.bench_capture', BARE, '--frames', str(frames),
                       '--domain', domain),
        capture_output=True, text=True, check=True)
    return float(done.stdout)


def captured(frames: int, domain: str) -> float:
    """Return the frames/s of a capture, start and end of its processes left out."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ['ros2', 'launch', 'vdl_ros', 'capture.launch.py', f'output:={folder}/bag',
             f'frames:={frames}', f'domain:={domain}'], capture_output=True, text=True, check=True)
    found = re.search(r'frames captured, ([\d.]+)/s', done.stdout + done.stderr)
    if found is None:
        raise RuntimeError(f'no figure in the output of the capture:\n{done.stdout[-2000:]}')
    return float(found[1])


def main() -> int:
    """Measure, and print the table or one JSON object."""
    parser = argparse.ArgumentParser(
        prog='bench_capture', description='How fast frames are captured, beside bare rendering.')
    parser.add_argument('--frames', type=int, default=2000)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--domain', default='random')
    parser.add_argument('--quick', action='store_true', help='one round of 1,000 frames')
    report.add_options(parser)
    parser.add_argument(BARE, action='store_true', help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.frames, options.rounds = 1000, 1
    if options.bare:
        print(same(options.frames, options.domain) if options.domain else plain(options.frames))
        return 0
    try:
        report.check_output(options)
    except ValueError as error:
        print(f'bench_capture: {error}', file=sys.stderr)
        return 2
    rows = []
    for number in range(options.rounds):
        row = (alone(options.frames, ''), alone(options.frames, options.domain),
               captured(options.frames, options.domain))
        rows.append((*row, row[2] / row[0], row[2] / row[1]))
        print(f'round {number + 1}: {line(rows[-1])}', file=sys.stderr, flush=True)
    median = [statistics.median(column) for column in zip(*rows, strict=True)]
    names = ('plain_frames_per_s', 'same_frames_per_s', 'captured_frames_per_s',
             'ratio_to_plain', 'ratio_to_same')
    report.deliver({
        'benchmark': 'capture', 'machine': report.machine(), 'domain': options.domain,
        'frames': options.frames, 'rounds': options.rounds,
        **dict(zip(names, median, strict=True))}, options, lambda _: f'median: {line(median)}')
    return 0


def line(row: Sequence[float]) -> str:
    """Return what was measured in words."""
    return (f'captured {row[2]:.0f} frames/s; bare rendering of the same frames {row[1]:.0f}, '
            f'ratio {row[4]:.2f}; of the plain scene {row[0]:.0f}, ratio {row[3]:.2f}')
