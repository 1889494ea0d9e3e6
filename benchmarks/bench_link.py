"""Two actors on another host against one process, by the rate of the link, with compression.

    ros2 run vdl_ros bench_link [--env ID ...] [--mbit N ...] [--quick] [--json] [--output FILE]

The other host is a network namespace (root), and the link to it is limited by a token bucket.
Dummy environments sleep for a millisecond in each step and return so many bytes of noise, with the
smallest network: above which size are two actors no longer faster? Games send what compression is
for. The learning rate is 0, so that all runs have the same kind of episodes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import report

NUM_ACTORS = 2
SIZES = (2048, 16384, 131072, 524288)
GAME = 'ALE/Pong-v5'
SETTINGS = {'unroll_length': '20', 'batch_size': '2', 'max_policy_lag': '4',
            'learning_rate': '0.0', 'learner_threads': '1', 'total_steps': '1000000000000',
            'stop_at_return': '1e9'}
# Noise of one environment after the other; games of sixteen at once, as the preset.
DUMMY = {'num_envs': '1', 'hidden_size': '1'}
GAMES = {'num_envs': '16', 'publish_every': '8', 'max_policy_lag': '16'}
COMPRESSIONS = ('none', 'zstd')
_PATIENCE_S = 120.0
_POLL_S = 0.1


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the checked options.

    Raises:
        ValueError: one that is not allowed; the message is one line.
    """
    from benchmarks.bench_actor_learner import dummy_id
    parser = report.Parser('bench_link', __doc__)
    parser.add_argument('--env', nargs='+', metavar='ID',
                        help='environments (noise of 2048 ... 524288 bytes, and Pong)')
    parser.add_argument('--mbit', nargs='+', type=int, metavar='N',
                        help='rates of the link, Mbit/s (100 1000; quick: 1000)')
    parser.add_argument('--seconds', type=float, help='of each measurement (6; quick: 1)')
    parser.add_argument('--warm-up', type=float, help='s before it (3; quick: 0.5)')
    options = parser.parse_args(words)
    noise = tuple(dummy_id(size, 1.0, busy=False) for size in SIZES)
    report.complete(options, {
        'env': ((*noise, GAME), noise[:1]), 'mbit': ((100, 1000), (1000,)),
        'seconds': (6.0, 1.0), 'warm_up': (3.0, 0.5)}, {
        'mbit': (1, 100_000), 'seconds': (0.5, 3600), 'warm_up': (0, 3600)})
    return options


def settings(env_id: str) -> dict[str, str]:
    """Return the settings of a run, texts by name."""
    return SETTINGS | {'env_id': env_id} | (DUMMY if env_id.startswith('dummy/') else GAMES)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return a row for each environment.

    Raises:
        RuntimeError: a run failed.
        OSError: this machine has no network namespaces for this user.
    """
    from benchmarks.train.runs import Plan, run_serial
    from benchmarks.transport.peers import two_hosts
    rows = []
    for env_id in options.env:
        found = settings(env_id)
        # These are the graph's alone; the measurement of one process sets its own end.
        alone = {name: value for name, value in found.items() if name not in (
            'learner_threads', 'total_steps', 'stop_at_return')}
        one = run_serial(Plan(alone, {}, 0, options.warm_up, options.seconds))['steps_per_s']
        report.log(f'{env_id}, one process: {one:,.0f} agent steps/s')
        links = []
        for mbit in options.mbit:
            for compression in COMPRESSIONS:
                with two_hosts(mbit) as hosts, _environment(hosts.discovery):
                    speed, lost, wire = _remote(
                        found | {'compression': compression}, hosts, options)
                report.log(f'{env_id}, {mbit} Mbit/s, {compression}: {speed:,.0f} agent steps/s, '
                           f'{lost} trajectories lost')
                links.append({'mbit': mbit, 'compression': compression, 'steps_per_s': speed,
                              'ratio': speed / one, 'lost': lost, 'bytes_per_step': wire})
        rows.append({'env_id': env_id, 'one_process': one, 'links': links})
    return {'num_actors': NUM_ACTORS, 'seconds': options.seconds, 'rows': rows,
            'cores': len(os.sched_getaffinity(0))}


@contextlib.contextmanager
def _environment(discovery: str) -> Iterator[None]:
    """Let DDS find other hosts while the block runs."""
    name = 'ROS_AUTOMATIC_DISCOVERY_RANGE'
    before = os.environ[name]
    os.environ[name] = discovery
    try:
        yield
    finally:
        os.environ[name] = before


def _remote(
    found: Mapping[str, str], hosts: Any, options: argparse.Namespace,
) -> tuple[float, int, float]:
    """Return agent steps/s with actors on the other host, lost trajectories, bytes of a step."""
    from benchmarks.graph import launched
    from benchmarks.train.table import progress_rows, steady_rate
    with tempfile.TemporaryDirectory() as temporary:
        folder, log = Path(temporary) / 'run', Path(temporary) / 'log'

        def rows() -> list[tuple[float, float]]:
            with contextlib.suppress(FileNotFoundError):
                return progress_rows((folder / 'progress.csv').read_text())
            return []

        learner = (*hosts.server, 'ros2', 'launch', 'vdl_ros', 'learner.launch.py',
                   f'run_dir:={folder}', *(f'{name}:={value}' for name, value in found.items()))
        actors = (*hosts.clients, 'ros2', 'launch', 'vdl_ros', 'actors.launch.py',
                  f'num_actors:={NUM_ACTORS}')
        with launched(*learner, log=log) as process, launched(*actors):
            deadline = time.monotonic() + _PATIENCE_S
            start = None
            while start is None or not rows() or rows()[-1][0] < (
                    start + options.warm_up + options.seconds):
                if process.poll() is not None:
                    break  # with its last lines, below
                if time.monotonic() > deadline + options.warm_up + options.seconds:
                    raise RuntimeError(f'{found["env_id"]}: not measured in {_PATIENCE_S:g} s')
                text = log.read_text(errors='replace')
                if start is None and rows() and re.search(
                        rf'\b{NUM_ACTORS} actors are connected', text):
                    start = rows()[-1][0]
                time.sleep(_POLL_S)
            measured = rows()
        if process.returncode or start is None:
            raise RuntimeError(f'the learner ended with status {process.returncode}')
        summary = json.loads((folder / 'summary.json').read_text())
    speed, *_ = steady_rate(measured, start + options.warm_up)
    return speed, summary['trajectories_lost'], (
        summary['wire_bytes']['in'] / max(summary['agent_steps'], 1))


def markdown(found: Mapping[str, Any]) -> str:
    """Return the table for a page, and where two actors stop paying."""
    from benchmarks.actor_learner.table import crossing
    from vdl_ros.envs.dummy import parse
    keys = [(each['mbit'], each['compression']) for each in found['rows'][0]['links']]
    noise = [row for row in found['rows'] if row['env_id'].startswith('dummy/')]
    lines = [*report.table(
        ('environment', 'one process, steps/s', *(
            f'{mbit:,} Mbit/s{", zstd" if compression != "none" else ""}'
            for mbit, compression in keys)),
        ([row['env_id'], f'{row["one_process"]:,.0f}', *(
            f'{each["ratio"]:.2f} ({each["bytes_per_step"]:,.0f} B)' for each in row['links'])]
         for row in found['rows'])), '']
    for place, (mbit, compression) in enumerate(keys):
        points = sorted((parse(row['env_id']).size, row['links'][place]['ratio']) for row in noise)
        if len(points) < 2:
            continue
        even = crossing(points)
        where = ('' if even['bytes'] is None else f' at {even["bytes"]:,.0f} bytes for each ms')
        lines.append(f'{mbit:,} Mbit/s, {compression}: {even["says"]}{where}.')
    lost = sum(each['lost'] for row in found['rows'] for each in row['links'])
    lines += ['', f'Ratio of two actors on another host to one process, and bytes of trajectories '
              f'for each agent step; {found["seconds"]:g} s each; {found["cores"]} cores; '
              f'{lost} trajectories lost.']
    return '\n'.join(lines)


def main() -> int:
    """Measure, and print the table or one JSON object."""
    return report.run('bench_link', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> int:
    from benchmarks.graph import own_domain
    with own_domain():
        try:
            found = measure(options)
        except OSError as error:
            raise RuntimeError(f'no network namespaces here: {error}') from None
    report.deliver('link', found, options, markdown)
    return 0
