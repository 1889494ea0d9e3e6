"""Frames a second, size of observations and memory of environments, one alone and many together.

    ros2 run vdl_ros bench_env [--env NAME ...] [--num-envs N] [--quick] [--json] [--output FILE]

As VDL's ``gym-fps.py`` and ``obs-stat.py``, with random actions sampled beforehand. Copies are
stepped by every back end that exists for the environment (``env/backends.py``). A frame is one
``step`` of one copy, so four of an Atari emulator. Each measurement runs in a new process;
environments and back ends take turns, round after round; figures are medians over the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import report
from benchmarks.graph import delayed_interrupts, module_command

# Environments measured by default. `:84x84x4` is Atari with the actors' preprocessing: grey,
# shrunk, four frames. Dummies: VDL's groups of 1000 float64 at four rates, and a stack of
# Atari frames at full speed.
GROUPS = {
    'gym': ('CartPole-v1', 'ALE/Breakout-v5', 'ALE/Breakout-v5:84x84x4', 'Hopper-v5',
            'Humanoid-v5', 'VizdoomDeathmatch'),
    'dummy': ('dummy/OBS8000-FPS500-v0', 'dummy/OBS8000-FPS600-v0', 'dummy/OBS8000-FPS6000-v0',
              'dummy/OBS8000-FPS60000-v0', 'dummy/OBS28224-v0'),
}
# For slow machines, where sixteen processes import a simulator each, s.
PATIENCE_S = 120.0


def run(name: str, backend: str, num_envs: int, seconds: float) -> dict[str, Any]:
    """Return the JSON object of one measurement, or ``error``; end all of its processes."""
    # ViZDoom writes files where it is started.
    with TemporaryDirectory() as folder:
        process = None
        try:
            with delayed_interrupts():
                process = subprocess.Popen(
                    module_command('benchmarks.env.measure', name, backend, str(num_envs),
                                   str(seconds)),
                    cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                    start_new_session=True)
            output, errors = process.communicate(timeout=PATIENCE_S + 2.0 * seconds)
        except subprocess.TimeoutExpired:
            return {'error': f'not ended after {PATIENCE_S + 2.0 * seconds:g} s'}
        finally:
            if process is not None:
                # The whole group: a process that ended may have left children.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
    try:
        found: dict[str, Any] = json.loads(output)
    except ValueError:
        lines = errors.strip().splitlines() or [f'status {process.returncode}']
        return {'error': lines[-1]}
    return found


def collect(
    names: Sequence[str], num_envs: int, seconds: float, rounds: int,
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the measurements by environment and back end; one that fails is not repeated."""
    measured: dict[str, dict[str, list[dict[str, Any]]]] = {name: {} for name in names}
    for number in range(rounds):
        for name in names:
            pending = ['single']
            while pending:
                backend = pending.pop(0)
                before = measured[name].setdefault(backend, [])
                if before and 'frames_per_s' not in before[-1]:
                    continue
                found = run(name, backend, num_envs, seconds)
                before.append(found)
                text = (f'{found["frames_per_s"]:.0f} frames/s' if 'frames_per_s' in found
                        else found.get('error') or f'not installed: {found["missing"]}')
                report.log(f'round {number + 1}: {name} {backend}: {text}')
                if backend == 'single':
                    pending += found.get('backends', [])
    return measured


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options, with the names of the environments resolved.

    Raises:
        ValueError: one that is not allowed; the message is one line.
    """
    from benchmarks.env.backends import NotInstalledError, prepare

    parser = report.Parser('bench_env', __doc__)
    parser.add_argument(
        '--env', nargs='+', default=list(GROUPS), metavar='NAME',
        help='Gymnasium ids, dummy/OBS<n>-FPS<f>-v0, or the groups gym and dummy (default)')
    parser.add_argument('--num-envs', type=int, help='copies together (default: 16; quick: 8)')
    parser.add_argument('--seconds', type=float, help='of each measurement (3; quick: 0.2)')
    parser.add_argument('--rounds', type=int, help='measurements of each (5; quick: 1)')
    options = parser.parse_args(words)
    report.complete(
        options, {'num_envs': (16, 8), 'seconds': (3.0, 0.2), 'rounds': (5, 1)},
        {'num_envs': (1, 1024), 'seconds': (0.01, 600), 'rounds': (1, 1000)})
    groups = dict(GROUPS)
    if options.quick:
        groups['dummy'] = (groups['dummy'][0], groups['dummy'][-1])
    options.env = list(dict.fromkeys(
        name for word in options.env for name in groups.get(word, (word,))))
    for name in options.env:
        with contextlib.suppress(NotInstalledError):
            prepare(name)
    return options


def main() -> int:
    """Measure, and print the table or one JSON object."""
    return report.run('bench_env', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> None:
    from benchmarks.env.table import row
    measured = collect(options.env, options.num_envs, options.seconds, options.rounds)
    report.deliver('env', {
        'num_envs': options.num_envs, 'seconds': options.seconds, 'rounds': options.rounds,
        'rows': [row(name, measured[name]) for name in options.env]}, options, readable)


def readable(found: Mapping[str, Any]) -> str:
    """Return the table, and a line for each environment."""
    from benchmarks.env.table import summary, table
    rows = found['rows']
    return '\n'.join([
        table(rows),
        f'\nframes/s, medians of {found["rounds"]}; {found["num_envs"]} copies together\n',
        *map(summary, rows)])
