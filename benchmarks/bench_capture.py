"""Frames a second of a capture, beside bare rendering.

    ros2 run vdl_ros bench_capture [--frames N] [--rounds N] [--domain NAME] [--quick] [--json]

Three measurements in turn. *Plain*: setting joint positions and drawing with ``mujoco.Renderer``,
nothing randomised. *Same*: drawing the frames that are captured, whose poses, camera, colours,
lights and patterns were sampled beforehand. The capture adds choosing frames and writing them.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping

os.environ.setdefault('MUJOCO_GL', 'egl')  # before mujoco is imported

import mujoco
import numpy as np
from numpy.typing import NDArray

from benchmarks import report
from benchmarks.graph import module_command
from vdl_ros.arm.geometry import load
from vdl_ros.arm.simulation.scene import CAMERA
from vdl_ros.arm.simulation.simulation import ArmSimulation, PoseError
from vdl_ros.pose.domain_randomization import RandomizedScene, sample

SIZE = 128
BARE = '--bare'


def plain(frames: int) -> float:
    """Return the frames/s of bare rendering of the plain scene."""
    geometry = load()
    randomized = RandomizedScene(geometry, SIZE, SIZE)
    scene = randomized.scene
    randomized.close()
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
    randomized = RandomizedScene(geometry, SIZE, SIZE)
    began = time.perf_counter()
    for each in chosen:
        randomized.draw(each)
    took = time.perf_counter() - began
    randomized.close()
    return frames / took


def alone(frames: int, domain: str) -> float:
    """Return the frames/s of :func:`same`, or of :func:`plain` for domain '', in a new process."""
    done = subprocess.run(
        module_command('benchmarks.bench_capture', BARE, '--frames', str(frames),
                       '--domain', domain),
        capture_output=True, text=True, check=True)
    return float(done.stdout)


def captured(frames: int, domain: str) -> float:
    """Return the frames/s of a capture, without start and end of its processes."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ['ros2', 'launch', 'vdl_ros', 'capture.launch.py', f'output:={folder}/frames',
             f'frames:={frames}', f'domain:={domain}'], capture_output=True, text=True, check=True)
    found = re.search(r'frames captured, ([\d.]+)/s', done.stdout + done.stderr)
    if found is None:
        raise RuntimeError(f'no figure in the output of the capture:\n{done.stdout[-2000:]}')
    return float(found[1])


def arguments() -> argparse.Namespace:
    """Return the options; ValueError for one that is not allowed."""
    parser = report.Parser('bench_capture', __doc__, quick='one round of 1,000 frames')
    parser.add_argument('--frames', type=int, help='(2000; quick: 1000)')
    parser.add_argument('--rounds', type=int, help='(3; quick: 1)')
    parser.add_argument('--domain', default='random')
    parser.add_argument(BARE, action='store_true', help=argparse.SUPPRESS)
    options = parser.parse_args()
    report.complete(options, {'frames': (2000, 1000), 'rounds': (3, 1)},
                    {'frames': (1, 1_000_000), 'rounds': (1, 1000)})
    return options


def main() -> int:
    """Measure, and print a line or one JSON object."""
    return report.run('bench_capture', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> None:
    frames, domain = options.frames, options.domain
    if options.bare:
        print(same(frames, domain) if domain else plain(frames))
        return
    rounds = []
    for number in range(options.rounds):
        bare, same_frames, capture = alone(frames, ''), alone(frames, domain), captured(
            frames, domain)
        rounds.append({
            'plain_frames_per_s': bare, 'same_frames_per_s': same_frames,
            'captured_frames_per_s': capture, 'ratio_to_plain': capture / bare,
            'ratio_to_same': capture / same_frames})
        report.log(f'round {number + 1}: {sentence(rounds[-1])}')
    report.deliver('capture', {
        'domain': domain, 'frames': frames, 'rounds': options.rounds,
        **{name: statistics.median(each[name] for each in rounds) for name in rounds[0]}},
        options, lambda found: f'median: {sentence(found)}')


def sentence(found: Mapping[str, float]) -> str:
    """Return the figures as a sentence."""
    return (f'captured {found["captured_frames_per_s"]:.0f} frames/s; bare rendering of the same '
            f'frames {found["same_frames_per_s"]:.0f}, ratio {found["ratio_to_same"]:.2f}; of the '
            f'plain scene {found["plain_frames_per_s"]:.0f}, ratio {found["ratio_to_plain"]:.2f}')
