"""Two actors on another host against one process, by the rate of the link, with compression.

Dummy environments sleep for a millisecond in each step and return so many bytes of noise, with the
smallest network: above which size are two actors no longer faster? Games send what compression is
for. The learning rate is 0, so that all runs have the same kind of episodes.
"""

import argparse
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import report
from benchmarks.bench_actor_learner import NUM_ACTORS, SETTINGS
from benchmarks.graph import Plan, launch_command, run, run_serial
from benchmarks.hosts import Hosts, two_hosts
from vdl_ros.envs.dummy import NAMESPACE, parse

# Bytes of noise, and rates of the links, Mbit/s.
SIZES, RATES = (2048, 16384, 131072, 524288), (100, 1000)
# Noise of one environment after the other; games of sixteen at once, as the preset.
GAME = {'env_id': 'ALE/Pong-v5', 'num_envs': '16', 'publish_every': '8', 'max_in_flight': '16'}
COMPRESSIONS = ('none', 'zstd')


def measure(options: argparse.Namespace) -> dict[str, Any]:
    rows = []
    sizes = SIZES[:1] if options.quick else SIZES
    # One after the other, or two copies in a process would be as fast as one.
    noise = [{'env_id': f'dummy/OBS{size}-FPS1000-SERIAL-v0', 'num_envs': '1', 'hidden_size': '1'}
             for size in sizes]
    for each in noise if options.quick else [*noise, GAME]:
        env_id, settings = each['env_id'], SETTINGS | each
        plan = Plan(settings, {}, NUM_ACTORS, options.warm_up, options.seconds)
        one = run_serial(plan)['steps_per_s']
        report.log(f'{env_id}, one process: {one:,.0f} agent steps/s')
        links = []
        for mbit in RATES[1:] if options.quick else RATES:
            for compression in COMPRESSIONS:
                try:
                    with two_hosts(mbit) as hosts:
                        found = _remote(plan, compression, hosts)
                except OSError as error:
                    raise RuntimeError(f'no network namespaces here: {error}') from None
                summary, speed = found['summary'], found['steps_per_s']
                report.log(f'{env_id}, {mbit} Mbit/s, {compression}: {speed:,.0f} agent steps/s')
                links.append({
                    'mbit': mbit, 'compression': compression, 'steps_per_s': speed,
                    'ratio': speed / one, 'lost': summary['trajectories_lost'],
                    'bytes_per_step': summary['wire_bytes']['in'] / max(
                        summary['agent_steps'], 1)})
        rows.append({'env_id': env_id, 'one_process': one, 'links': links})
    return {'num_actors': NUM_ACTORS, 'seconds': options.seconds, 'rows': rows,
            'cores': len(os.sched_getaffinity(0))}


def _remote(plan: Plan, compression: str, hosts: Hosts) -> dict[str, Any]:
    settings = {**plan.settings, 'learner_threads': '1', 'compression': compression}
    connected = re.compile(rf'\b{NUM_ACTORS} actors are connected')
    return run(
        plan, lambda folder: [
            *hosts.server, *launch_command('learner.launch.py', folder, settings)],
        beside=[*hosts.clients, 'ros2', 'launch', 'vdl_ros', 'actors.launch.py',
                f'num_actors:={NUM_ACTORS}'], ready=connected.search)


def crossing(points: Sequence[tuple[float, float]]) -> float | None:
    """Return at which size the ratio first falls below 1; None if it does not.

    Args:
        points: (size in bytes, ratio), both above 0, of growing size. Between two points the ratio
            is on a straight line of logs; one below 1 at the smallest size begins there.
    """
    below = next((place for place, (_, ratio) in enumerate(points) if ratio < 1.0), None)
    if not below:
        return None if below is None else points[0][0]
    (small, high), (large, low) = points[below - 1:below + 1]
    return small * (large / small) ** (math.log(high) / math.log(high / low))


def markdown(found: Mapping[str, Any]) -> str:
    """Return the table for a page, and where two actors stop paying."""
    keys = [(each['mbit'], each['compression']) for each in found['rows'][0]['links']]
    noise = [row for row in found['rows'] if row['env_id'].startswith(NAMESPACE)]
    lines = [*report.columns(
        {'environment': '{env_id}', 'one process, steps/s': '{one_process:,.0f}', **{
            f'{mbit:,} Mbit/s, {compression}':
            f'{{links[{place}][ratio]:.2f}} ({{links[{place}][bytes_per_step]:,.0f}} B)'
            for place, (mbit, compression) in enumerate(keys)}}, found['rows']), '']
    for place, (mbit, compression) in enumerate(keys if len(noise) > 1 else ()):
        size = crossing([(parse(row['env_id']).size, row['links'][place]['ratio'])
                         for row in noise])
        lines.append(f'{mbit:,} Mbit/s, {compression}: two actors pay ' + (
            'at every size.' if size is None else f'up to {size:,.0f} bytes for each ms.'))
    lost = sum(each['lost'] for row in found['rows'] for each in row['links'])
    return '\n'.join([
        *lines, '', 'Ratio of two actors on another host to one process, and bytes of '
        f'trajectories for each agent step; {found["seconds"]:g} s each; {found["cores"]} cores; '
        f'{lost} trajectories lost.'])
