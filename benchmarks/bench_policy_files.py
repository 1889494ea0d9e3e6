"""The node ``policy`` with a checkpoint, and with the same policy as an ONNX file without PyTorch.

    ros2 run vdl_ros bench_policy_files [--checkpoint FILE] [--rounds N] [--actions N] [--quick]
        [--json]

Nodes are started in turn. A node is ready when it waits for a target; then its memory is read:
resident, and in proportion where processes share it (PSS). Start-up is by the clock and in
processor time, which other processes disturb less. The time of an action is the median of single
observations, in this process. Figures are medians over the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks import graph, report
from vdl_ros.arm.geometry import load
from vdl_ros.common.files import find_resource
from vdl_ros.envs.owi535.reach import FEATURES
from vdl_ros.play.arm_policy import open_policy
from vdl_ros.play.onnx_export import export_policy

READY = b'waiting for a target'
#: Figures by name: title and digits.
FIGURES = {
    'start_s': ('start to ready, s', 2), 'start_cpu_s': ('the same in processor time, s', 2),
    'rss_mb': ('resident memory, MB', 0), 'pss_mb': ('of it in proportion (PSS), MB', 0),
    'action_us': ('an action, µs', 0)}


def started(path: Path) -> dict[str, float]:
    """Start a node, and return its figures once it is ready.

    Raises:
        RuntimeError: it ended before.
    """
    began = time.monotonic()
    command = graph.module_command(
        'vdl_ros.nodes.policy', '--ros-args', '-p', f'policy:={path}')
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        try:
            if not any(READY in line for line in process.stdout):
                raise RuntimeError(f'{path}: the node ended')
            elapsed = time.monotonic() - began
            node = psutil.Process(process.pid)
            times, memory = node.cpu_times(), node.memory_full_info()
        finally:
            process.terminate()
            # A full pipe would stop it.
            threading.Thread(target=process.stdout.read, daemon=True).start()
            process.wait()
    return {'start_s': elapsed, 'start_cpu_s': times.user + times.system,
            'rss_mb': memory.rss / 1e6, 'pss_mb': memory.pss / 1e6}


def action_us(path: Path, actions: int) -> float:
    """Return the median time of an action, microseconds."""
    act = open_policy(path, load()).act
    observations = np.random.default_rng(0).uniform(
        -1.0, 1.0, (actions, 1, len(FEATURES))).astype(np.float32)
    reset, times = np.array([False]), []
    for each in observations:
        began = time.perf_counter()
        act(each, reset)
        times.append(time.perf_counter() - began)
    return 1e6 * statistics.median(times)


def arguments() -> argparse.Namespace:
    """Return the options."""
    parser = report.Parser('bench_policy_files', __doc__, quick='one round')
    parser.add_argument('--checkpoint', type=Path, default=find_resource('models/reach.pt'),
                        metavar='FILE', help='of the task reach (the policy that ships)')
    parser.add_argument('--rounds', type=int, help='(5; quick: 1)')
    parser.add_argument('--actions', type=int, help='(5000; quick: 500)')
    options = parser.parse_args()
    report.complete(options, {'rounds': (5, 1), 'actions': (5000, 500)},
                    {'rounds': (1, 1000), 'actions': (1, 1_000_000)})
    open_policy(options.checkpoint, load())  # bad input is said before the work
    return options


def main() -> int:
    """Measure, and print a table or one JSON object."""
    return report.run('bench_policy_files', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> None:
    rounds: dict[str, list[dict[str, float]]] = {'checkpoint': [], 'onnx': []}
    with tempfile.TemporaryDirectory() as folder, graph.own_domain():
        exported = Path(folder) / 'policy.onnx'
        export_policy(options.checkpoint, exported)
        for number in range(options.rounds):
            for name, path in (('checkpoint', options.checkpoint), ('onnx', exported)):
                rounds[name].append(
                    started(path) | {'action_us': action_us(path, options.actions)})
            report.log(f'round {number + 1} of {options.rounds}')
    report.deliver('policy_files', {
        'rounds': options.rounds, 'actions': options.actions,
        'figures': {name: {figure: statistics.median(each[figure] for each in found)
                           for figure in FIGURES} for name, found in rounds.items()}},
        options, text)


def text(found: Mapping[str, Any]) -> str:
    """Return the figures as a Markdown table."""
    one, other = (found['figures'][name] for name in ('checkpoint', 'onnx'))
    return '\n'.join(report.table(
        ('', 'checkpoint', 'ONNX file', 'share'),
        [(title, f'{one[name]:.{digits}f}', f'{other[name]:.{digits}f}',
          f'{other[name] / one[name]:.2f}') for name, (title, digits) in FIGURES.items()]))
