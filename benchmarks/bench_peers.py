"""The graph beside Sample Factory, Stable-Baselines3, RLlib and CleanRL, in turn, on this machine.

In an Atari game: agent steps/s of the whole training, without start and warm-up, and the memory of
all its processes. All have the network of Mnih et al. 2015, the same frames, and updates of 640
steps in one pass, from 32 games (A2C of Stable-Baselines3 and PPO of CleanRL: 16).

In a classic task: seconds from the start of the command until the mean return of the last 100
episodes is what Gymnasium calls solved, with the settings that each project publishes for the task
(benchmarks/peers/; Sample Factory publishes none for CartPole, and has ours); seeds 1, 2, ... in
the rounds.

The first call installs each peer by pip and git, which takes some minutes and up to 2 GB each,
more where pip finds PyTorch's CUDA build only.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.bench_train import DEFAULTS, WARM_UP
from benchmarks.peers.peers import PEERS, TASKS, command, install, rows, run_peer, until_return

GRAPH = 'graph'
# With which the graph learns each task.
_ALGORITHMS = {'CartPole-v1': 'impala', 'Acrobot-v1': 'ppo', 'LunarLander-v3': 'ppo'}
_UNTIL = ('seconds_until_solved', 'steps_until_solved')
# Longest training in a classic task, s.
LIMIT = 600.0


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = report.Parser('bench_peers', __doc__, 'minutes instead of a quarter of an hour')
    parser.add_argument('--env', default='ALE/Pong-v5', metavar='ID',
                        help=f'an Atari game, or {", ".join(TASKS)} (ALE/Pong-v5)')
    parser.add_argument('--peers', nargs='+', choices=PEERS, metavar='NAME',
                        help=f'{", ".join(PEERS)} (all with settings for the task)')
    parser.add_argument('--folder', type=Path, metavar='FOLDER',
                        default=Path.home() / '.cache' / 'vdl_ros' / 'peers',
                        help='environments of the peers (~/.cache/vdl_ros/peers)')
    parser.number('--seconds', float, 'of each measurement in a game', (40.0, 15.0), (1, 3600))
    parser.number('--rounds', int, 'measurements of each', (3, 1), (1, 1000))
    options = parser.complete(words)
    if not options.env.startswith('ALE/') and options.env not in TASKS:
        raise ValueError(f'--env: {options.env!r} is not allowed: an Atari game, ALE/..., or '
                         f'{", ".join(TASKS)}')
    able = [name for name, peer in PEERS.items()
            if options.env not in TASKS or options.env in peer.tasks]
    options.peers = options.peers or able
    if missing := set(options.peers) - set(able):
        raise ValueError(f'--peers: {", ".join(missing)} has no settings for {options.env}')
    return options


def measure(options: argparse.Namespace) -> dict[str, dict[str, list[Any]]]:
    """Return figures by their name, then of the graph and of each peer, one for each round.

    They are ``steps_per_s`` and ``memory_mb`` in a game; in a task ``seconds_until_solved`` and
    ``steps_until_solved``, None if it is not solved in time.
    """
    from benchmarks.graph import listener

    pythons = {}
    for name in options.peers:
        report.log(f'{PEERS[name].title}: {options.folder / name}')
        pythons[name] = install(PEERS[name].requirements, options.folder / name, PEERS[name].clone)
    is_task = options.env in TASKS
    names = _UNTIL if is_task else ('steps_per_s', 'memory_mb')
    systems = [GRAPH, *options.peers]
    found: dict[str, dict[str, list[Any]]] = {
        name: {system: [] for system in systems} for name in names}
    with listener() as reports:
        for number in range(options.rounds):
            for system in report.turned(systems, number):
                if is_task:
                    values = _solve(system, pythons, options, number + 1)
                else:
                    values = _play(system, pythons, options, reports)
                for name, value in zip(names, values, strict=True):
                    found[name][system].append(value)
                report.log(f'round {number + 1}: {system}: ' + ', '.join(
                    f'{name} {_number(value)}' for name, value in zip(names, values, strict=True)))
    return found


def _play(system: str, pythons: Mapping[str, Path], options: argparse.Namespace, reports: Any,
          ) -> tuple[float, float]:
    """Return agent steps/s and memory, MB, of a system in a game."""
    from benchmarks.graph import Plan, run_graph

    warm_up = WARM_UP * options.seconds
    if system != GRAPH:
        return run_peer(PEERS[system], pythons[system], options.env, warm_up=warm_up,
                        seconds=options.seconds)
    found = run_graph(Plan(
        settings={'env_id': options.env, 'network': 'nature', 'num_envs': '16', **DEFAULTS},
        more={}, num_actors=2, warm_up=warm_up, seconds=options.seconds), reports)
    return found['steps_per_s'], sum(each['memory_mb'] for each in found['processes'].values())


def _solve(system: str, pythons: Mapping[str, Path], options: argparse.Namespace, seed: int,
           ) -> tuple[float | None, float | None]:
    from benchmarks.graph import progress_rows

    env_id, goal = options.env, {'mean_return': TASKS[options.env], 'limit': LIMIT}
    if system != GRAPH:
        return until_return(command(PEERS[system], pythons[system], env_id, seed), rows, **goal)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / 'run'
        return until_return(
            ['ros2', 'launch', 'vdl_ros', 'train.launch.py', f'env_id:={env_id}',
             f'algorithm:={_ALGORITHMS[env_id]}', f'seed:={seed}', f'run_dir:={run}'],
            lambda text: progress_rows(run), **goal)


def _number(value: float | None) -> str:
    return 'none' if value is None else f'{value:,.0f}'


def markdown(found: Mapping[str, Any]) -> str:
    return (_solved_table if found['env'] in TASKS else _speed_table)(found)


def _title(system: str, env_id: str) -> str:
    if system == GRAPH:
        return f'vdl_ros, {_ALGORITHMS.get(env_id, "impala")}, two actors'
    peer = PEERS[system]
    return f'{peer.title}, {"PPO" if env_id in TASKS else peer.algorithm}'


def _speed_table(found: Mapping[str, Any]) -> str:
    ours = statistics.median(found['steps_per_s'][GRAPH])
    rows = [{'system': _title(system, found['env']), 'median': statistics.median(values),
             'least': min(values), 'most': max(values), 'memory': max(found['memory_mb'][system]),
             'ratio': ours / statistics.median(values)}
            for system, values in found['steps_per_s'].items()]
    return '\n'.join([
        *report.columns({
            'system': '{system}', 'agent steps/s': '{median:,.0f} ({least:,.0f} to {most:,.0f})',
            'the graph is faster by': '{ratio:.1f}', 'MB': '{memory:,.0f}'}, rows), '',
        f'{found["env"]}, medians of {found["rounds"]} rounds of {found["seconds"]:g} s, '
        f'{found["cores"]} cores.'])


def _solved_table(found: Mapping[str, Any]) -> str:
    env_id = found['env']
    lines = [(_title(system, env_id), *(', '.join(map(_number, found[name][system]))
                                        for name in _UNTIL)) for system in found[_UNTIL[0]]]
    return '\n'.join([
        *report.table(('system', 's until solved', 'agent steps'), lines), '',
        f'{env_id}, until a mean return of {TASKS[env_id]:g}; seeds 1 to {found["rounds"]}, at '
        f'most {found["limit"]:g} s, {found["cores"]} cores.'])


def main() -> int:
    """Measure, and print the table or one JSON object."""
    return report.run('bench_peers', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> None:
    from benchmarks.graph import own_domain
    with own_domain(configure=True):
        measured = measure(options)
    length = {'limit': LIMIT} if options.env in TASKS else {'seconds': options.seconds}
    report.deliver('peers', {
        'cores': len(os.sched_getaffinity(0)), 'env': options.env, 'rounds': options.rounds,
        **length, **measured,
        'requirements': {name: PEERS[name].requirements for name in options.peers}},
        options, markdown)
