"""Two actors on another host against one process, by the rate of the link, with compression.

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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.bench_actor_learner import NUM_ACTORS, SETTINGS, SMALLEST, crossing, dummy_id
from benchmarks.graph import Plan, launched, progress_rows, run_serial, steady_rate, wait
from benchmarks.transport.peers import two_hosts

SIZES = (2048, 16384, 131072, 524288)
# Noise of one environment after the other; games of sixteen at once, as the preset.
GAME = {'env_id': 'ALE/Pong-v5', 'num_envs': '16', 'publish_every': '8', 'max_in_flight': '16'}
# The graph's alone; the measurement of one process sets its own end.
ENDLESS = {'total_steps': '1000000000000', 'stop_at_return': '1e9', 'learner_threads': '1'}
COMPRESSIONS = ('none', 'zstd')
_PATIENCE_S = 120.0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return a row for each environment."""
    noise = [SMALLEST | {'env_id': dummy_id(size, 1.0, busy=False), 'num_envs': '1'}
             for size in (SIZES[:1] if options.quick else SIZES)]
    rows = []
    for each in noise if options.quick else [*noise, GAME]:
        env_id, settings = each['env_id'], SETTINGS | each
        one = run_serial(Plan(settings, {}, 1, options.warm_up, options.seconds))['steps_per_s']
        report.log(f'{env_id}, one process: {one:,.0f} agent steps/s')
        links = []
        for mbit in options.mbit:
            for compression in COMPRESSIONS:
                try:
                    with two_hosts(mbit) as hosts, _discovery(hosts.discovery):
                        speed, lost, wire = _remote(
                            settings | ENDLESS | {'compression': compression}, hosts, options)
                except OSError as error:
                    raise RuntimeError(f'no network namespaces here: {error}') from None
                report.log(f'{env_id}, {mbit} Mbit/s, {compression}: {speed:,.0f} agent steps/s, '
                           f'{lost} trajectories lost')
                links.append({'mbit': mbit, 'compression': compression, 'steps_per_s': speed,
                              'ratio': speed / one, 'lost': lost, 'bytes_per_step': wire})
        rows.append({'env_id': env_id, 'one_process': one, 'links': links})
    return {'num_actors': NUM_ACTORS, 'seconds': options.seconds, 'rows': rows,
            'cores': len(os.sched_getaffinity(0))}


@contextlib.contextmanager
def _discovery(wanted: str) -> Iterator[None]:
    """Let DDS find other hosts while the block runs."""
    name = 'ROS_AUTOMATIC_DISCOVERY_RANGE'
    before, os.environ[name] = os.environ[name], wanted
    try:
        yield
    finally:
        os.environ[name] = before


def _remote(
    settings: Mapping[str, str], hosts: Any, options: argparse.Namespace,
) -> tuple[float, int, float]:
    """Return agent steps/s with actors on the other host, lost trajectories, bytes of a step."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, log = Path(temporary) / 'run', Path(temporary) / 'log'
        learner = (*hosts.server, 'ros2', 'launch', 'vdl_ros', 'learner.launch.py',
                   f'run_dir:={folder}', *(f'{name}:={value}' for name, value in settings.items()))
        actors = (*hosts.clients, 'ros2', 'launch', 'vdl_ros', 'actors.launch.py',
                  f'num_actors:={NUM_ACTORS}')
        connected = re.compile(rf'\b{NUM_ACTORS} actors are connected')

        def rows() -> list[tuple[float, float]]:
            return progress_rows(folder)

        with launched(*learner, log=log) as process, launched(*actors):
            wait(process, lambda: rows() and connected.search(log.read_text(errors='replace')),
                 _PATIENCE_S, f'{settings["env_id"]}: actors and an update')
            start = rows()[-1][0] + options.warm_up
            wait(process, lambda: rows()[-1][0] >= start + options.seconds,
                 _PATIENCE_S + options.warm_up + options.seconds,
                 f'{settings["env_id"]}: the measurement')
            measured = rows()
        if process.returncode:
            raise RuntimeError(f'the learner ended with status {process.returncode}')
        summary = json.loads((folder / 'summary.json').read_text())
    return steady_rate(measured, start), summary['trajectories_lost'], (
        summary['wire_bytes']['in'] / max(summary['agent_steps'], 1))


def markdown(found: Mapping[str, Any]) -> str:
    """Return the table for a page, and where two actors stop paying."""
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
    for place, (mbit, compression) in enumerate(keys if len(noise) > 1 else ()):
        even = crossing(sorted(
            (parse(row['env_id']).size, row['links'][place]['ratio']) for row in noise))
        where = ('' if even['bytes'] is None else f' at {even["bytes"]:,.0f} bytes for each ms')
        lines.append(f'{mbit:,} Mbit/s, {compression}: {even["says"]}{where}.')
    lost = sum(each['lost'] for row in found['rows'] for each in row['links'])
    return '\n'.join([
        *lines, '', 'Ratio of two actors on another host to one process, and bytes of '
        f'trajectories for each agent step; {found["seconds"]:g} s each; {found["cores"]} cores; '
        f'{lost} trajectories lost.'])
