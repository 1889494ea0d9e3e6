"""
Frames a second of a capture through the graph, beside bare rendering of the same scene.

    ros2 run vdl_ros bench_capture [--frames N] [--rounds N] [--domain NAME] [--json]

Both are measured in turn, so that what else the machine does troubles both alike. Bare rendering
sets joint positions and draws with ``mujoco.Renderer``, one process, nothing randomised.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZE = 128
BARE = '--bare'


def bare(frames: int) -> float:
    """Return the frames/s of bare rendering."""
    os.environ.setdefault('MUJOCO_GL', 'egl')
    import mujoco
    import numpy as np

    from vdl_ros.arm.geometry import load
    from vdl_ros.arm.scene import CAMERA
    from vdl_ros.pose.studio import Studio

    geometry = load()
    studio = Studio(geometry, SIZE, SIZE)
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument('--frames', type=int, default=2000)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--domain', default='random')
    parser.add_argument('--json', action='store_true')
    parser.add_argument(BARE, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        print(bare(options.bare))
        return 0
    rows = []
    for number in range(options.rounds):
        alone = float(subprocess.run(
            [sys.executable, Path(__file__), BARE, str(options.frames)], capture_output=True,
            text=True, check=True).stdout)
        graph = captured(options.frames, options.domain)
        rows.append((alone, graph, graph / alone))
        if not options.json:
            print(f'round {number + 1}: bare {alone:6.1f} frames/s, captured {graph:6.1f} '
                  f'frames/s, ratio {graph / alone:.2f}', flush=True)
    median = [statistics.median(column) for column in zip(*rows, strict=True)]
    if options.json:
        print(json.dumps(dict(zip(
            ('bare_frames_per_s', 'captured_frames_per_s', 'ratio'), median, strict=True))
            | {'domain': options.domain, 'frames': options.frames, 'rounds': options.rounds}))
    else:
        print(f'median:  bare {median[0]:6.1f} frames/s, captured {median[1]:6.1f} frames/s, '
              f'ratio {median[2]:.2f}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
