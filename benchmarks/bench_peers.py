"""
The graph beside Sample Factory and Stable-Baselines3, in turn, on this machine.

    ros2 run vdl_ros bench_peers [--env ALE/Pong-v5] [--peers NAME ...] [--quick] [--json] ...

Each trains from 32 games (Stable-Baselines3's A2C: 16) with the network of Mnih et al. 2015, in
updates of 640 steps and one pass, from the same frames. Speeds are agent steps/s of the whole
training, without start and warm-up; memory is that of all processes. The first call installs each
peer into an environment of its own, a folder of ``--folder``, by pip; that takes some minutes and
up to 1.5 GB each, more where pip finds only PyTorch's CUDA build.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.bench_train import DEFAULTS, WARM_UP
from benchmarks.peers.peers import PEERS, install, run_peer

GRAPH = 'graph'


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """
    Return the options.

    Raises:
        ValueError: one that is not allowed; the message is one line.
    """
    parser = report.Parser('bench_peers', __doc__, 'minutes instead of a quarter of an hour')
    parser.add_argument('--env', default='ALE/Pong-v5', metavar='ID',
                        help='an Atari game (ALE/Pong-v5)')
    parser.add_argument('--peers', nargs='+', choices=PEERS, default=list(PEERS), metavar='NAME',
                        help=f'{", ".join(PEERS)} (all)')
    parser.add_argument('--folder', type=Path, metavar='FOLDER',
                        default=Path.home() / '.cache' / 'vdl_ros' / 'peers',
                        help='environments of the peers (~/.cache/vdl_ros/peers)')
    parser.add_argument('--seconds', type=float, help='of each measurement (40; quick: 15)')
    parser.add_argument('--rounds', type=int, help='measurements of each (3; quick: 1)')
    options = parser.parse_args(words)
    report.complete(options, {'seconds': (40.0, 15.0), 'rounds': (3, 1)},
                    {'seconds': (1, 3600), 'rounds': (1, 1000)})
    if not options.env.startswith('ALE/'):
        raise ValueError(f'--env: {options.env!r} is not allowed: an Atari game, ALE/...')
    return options


def measure(options: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """
    Return ``steps_per_s`` and ``memory_mb`` of the graph and of each peer, one for each round.

    Raises:
        RuntimeError: a peer cannot be installed, or a measurement failed.
    """
    from benchmarks.train.runs import Listener, Plan, run_graph

    pythons = {}
    for name in options.peers:
        report.log(f'{PEERS[name].title}: {options.folder / name}')
        pythons[name] = install(PEERS[name], options.folder / name)
    warm_up = WARM_UP * options.seconds
    plan = Plan(
        settings={'env_id': options.env, 'network': 'nature', 'num_envs': '16', **DEFAULTS},
        more={}, num_actors=2, warm_up=warm_up, seconds=options.seconds)
    speeds: dict[str, list[float]] = {}
    memories: dict[str, list[float]] = {}

    def graph() -> tuple[float, float]:
        found = run_graph(plan, listener)
        return found['steps_per_s'], sum(
            each['memory_mb'] for each in found['processes'].values())

    with contextlib.closing(Listener()) as listener:
        tasks: list[tuple[str, Callable[[], tuple[float, float]]]] = [
            (GRAPH, graph),
            *((name, lambda name=name: run_peer(
                PEERS[name], pythons[name], options.env, warm_up=warm_up,
                seconds=options.seconds)) for name in options.peers)]
        for number in range(options.rounds):
            turn = number % len(tasks)
            for name, task in tasks[turn:] + tasks[:turn]:
                speed, memory = task()
                speeds.setdefault(name, []).append(speed)
                memories.setdefault(name, []).append(memory)
                report.log(f'round {number + 1}: {name}: {speed:,.0f} agent steps/s, '
                           f'{memory:,.0f} MB')
    return {what: {name: found[name] for name in (GRAPH, *options.peers)}
            for what, found in (('steps_per_s', speeds), ('memory_mb', memories))}


def markdown(found: Mapping[str, Any]) -> str:
    """Return the table."""
    speeds = found['steps_per_s']
    ours = statistics.median(speeds[GRAPH])
    rows = []
    for name, values in speeds.items():
        median = statistics.median(values)
        title = PEERS[name].title if name in PEERS else 'vdl_ros, impala, two actors'
        rows.append((title, f'{median:,.0f} ({min(values):,.0f} to {max(values):,.0f})',
                     f'{ours / median:.1f}', f'{max(found["memory_mb"][name]):,.0f}'))
    return '\n'.join([
        *report.table(('system', 'agent steps/s', 'the graph is faster by', 'MB'), rows), '',
        f'{found["env"]}, medians of {found["rounds"]} rounds of {found["seconds"]:g} s, '
        f'{found["cores"]} cores.'])


def main() -> int:
    """Measure, and print the table or one JSON object."""
    return report.run('bench_peers', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> None:
    from benchmarks.graph import own_domain
    with own_domain(configure=True):
        measured = measure(options)
    report.deliver('peers', {
        'cores': len(os.sched_getaffinity(0)), 'env': options.env, 'rounds': options.rounds,
        'seconds': options.seconds, **measured,
        'requirements': {name: PEERS[name].requirements for name in options.peers}},
        options, markdown)


if __name__ == '__main__':
    raise SystemExit(main())
