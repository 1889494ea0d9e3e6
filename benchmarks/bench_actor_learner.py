"""One process against a learner with two actors: VDL's table, and where two actors stop paying.

    ros2 run vdl_ros bench_actor_learner [--env ID ...] [--sizes N ...] [--step-ms MS ...]
        [--busy] [--only table|sweep|links] [--quick] [--json] [--output FILE]

One process is serial mode; two actors are the graph of ``train.launch.py`` on this host, with
inference by the actors (local) or by the learner (central). The learning rate is 0: updates take
as long as ever, but the policy stays random, so that all runs have the same kind of episodes. The
sweep uses dummy environments, which sleep or compute for a given time and return so many bytes of
noise, and the smallest network, which also grows with that size. Runs take turns, round after
round; start and warm-up are excluded. ``--only links`` (root) has the actors on another host, a
network namespace behind a link of a given rate, with and without compression (links.py).
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import report

SERIAL, LINKS = 'serial', 'links'
NUM_ACTORS = 2
ENVIRONMENTS = ('CartPole-v1', 'ALE/Breakout-v5', 'Hopper-v5', 'Humanoid-v5')
SIZES = (2048, 16384, 131072, 1048576)
# The same for all; they override a task's preset.
UNROLL_LENGTH, BATCH_SIZE = 20, 2
SETTINGS = {'unroll_length': str(UNROLL_LENGTH), 'batch_size': str(BATCH_SIZE),
            'max_in_flight': '4', 'publish_every': '1', 'learning_rate': '0.0'}
TIME_LIMIT = {'time_limit': '100'}
SMALLEST = {'hidden_size': '1'}
# VDL 0.0.3 of 2017, seconds for 200 episodes of at most 100 steps: one process; two actors on the
# learner's machine; two on other machines of a cluster. Machines are not stated.
SEED: Mapping[str, Mapping[str, Any]] = {
    'CartPole-v1': {'env_id': 'CartPole-v0', 'one': 0.115, 'local': 0.088, 'remote': 0.115},
    'ALE/Breakout-v5': {'env_id': 'Breakout-v0', 'one': 21.40, 'local': 21.70, 'remote': 24.35},
    'Hopper-v5': {'env_id': 'Hopper-v1', 'one': 1.81, 'local': 0.80, 'remote': 1.30},
    'Humanoid-v5': {'env_id': 'Humanoid-v1', 'one': 4.88, 'local': 2.21, 'remote': 3.14},
}
# Bytes per ms of environment time, from its plot: two actors, three machines, 1 Gbit/s.
SEED_BREAK_EVEN = 100e3
EPISODES, LONGEST = 200, 100

_HEADS = {SERIAL: 'one process', 'actor': 'two actors, local', 'learner': 'two actors, central'}
_COMPUTATION = ('step', 'infer', 'learn')
_COMMUNICATION = ('encode', 'publish', 'receive', 'decode')
_PARTS = ('computation', 'communication', 'wait', 'other')


@dataclass(frozen=True, eq=False)
class Case:
    """An environment that is run in several modes.

    Attributes:
        settings: texts by name.
        modes: 'serial', and where the graph does inference: 'actor', 'learner'.
        step_ms: time of the dummy environment; None: a row of the table.
        size: bytes of its observation.
    """

    env_id: str
    settings: Mapping[str, str]
    modes: tuple[str, ...]
    step_ms: float | None = None
    size: int = 0


def arguments(
    words: Sequence[str] | None = None,
) -> tuple[argparse.Namespace, list[Case], dict[str, str]]:
    """Return the options, the cases to run, and by name why an environment cannot be run."""
    from vdl_ros.envs.dummy import MAX_BYTES, parse

    options = _parse(words)
    links, named = options.only == LINKS, options.env is not None
    report.complete(options, {
        'seconds': (6.0, 1.0) if links else (1.5, 0.5),
        'warm_up': (3.0, 0.5) if links else (0.5, 0.2), 'rounds': (3, 1),
        'env': (ENVIRONMENTS, ENVIRONMENTS[:1]), 'sizes': (SIZES, (SIZES[0], SIZES[-1])),
        'step_ms': ((1.0, 4.0), (1.0,)), 'mbit': ((100, 1000), (1000,))}, {
        'seconds': (0.2, 3600), 'warm_up': (0, 3600), 'rounds': (1, 1000), 'num_envs': (1, 1024),
        'sizes': (1, MAX_BYTES), 'step_ms': (0.01, 10000), 'mbit': (1, 100_000)})
    options.sizes = sorted(set(options.sizes))
    options.step_ms = sorted(set(options.step_ms))
    if options.only != 'table' and len(options.sizes) < 2:
        raise ValueError(f'--sizes: {options.sizes[0]} alone is not allowed: at least two')

    common = SETTINGS | {'num_envs': str(options.num_envs)}
    cases: list[Case] = []
    problems: dict[str, str] = {}
    if options.only in (None, 'table'):
        modes = (SERIAL, *dict.fromkeys(options.inference))
        for name in dict.fromkeys(options.env):
            try:
                _check(name)
            except ValueError as error:
                if named:
                    raise
                problems[name] = str(error)
                continue
            cases.append(Case(name, common | TIME_LIMIT | {'env_id': name}, modes))
    if options.only in (None, 'sweep'):
        for step_ms in options.step_ms:
            for size in options.sizes:
                name = dummy_id(size, step_ms, busy=options.busy)
                parse(name)
                cases.append(Case(name, common | SMALLEST | {'env_id': name},
                                  (SERIAL, options.sweep_inference), step_ms, size))
    return options, cases, problems


def dummy_id(size: int, step_ms: float, *, busy: bool) -> str:
    """Return the environment of that observation, bytes, and time, ms, see envs/dummy.py."""
    # Sleeping one after the other, or two copies in a process would be as fast as one.
    return f'dummy/OBS{size}-FPS{1000 / step_ms:.9g}-{"BUSY" if busy else "SERIAL"}-v0'


def _check(env_id: str) -> None:
    """Raise ValueError, with the reason, for an environment that a policy cannot act in."""
    from vdl_ros.envs import factory
    from vdl_ros.envs.env_config import EnvConfig
    from vdl_ros.rl.policy.policy import make_policy
    from vdl_ros.rl.settings import TrainConfig
    make_policy(TrainConfig(hidden_size=1), *factory.spaces(EnvConfig(env_id=env_id)))


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = report.Parser('bench_actor_learner', __doc__)
    parser.add_argument('--env', nargs='+', metavar='ID',
                        help=f'rows of the table ({" ".join(ENVIRONMENTS)}; quick: the first)')
    parser.add_argument('--inference', nargs='+', choices=('actor', 'learner'),
                        default=['actor', 'learner'], help='where actions are chosen (both)')
    parser.add_argument('--sizes', nargs='+', type=int, metavar='N',
                        help='bytes of an observation in the sweep (2048 ... 1048576)')
    parser.add_argument('--step-ms', nargs='+', type=float, metavar='MS',
                        help='environment times in the sweep (1 4; quick: 1)')
    parser.add_argument('--busy', action='store_true', help='dummies compute instead of sleeping')
    parser.add_argument('--sweep-inference', choices=('actor', 'learner'), default='actor',
                        help='where actions are chosen in the sweep (actor)')
    parser.add_argument('--num-envs', type=int, default=1, metavar='B',
                        help="environments of each process (1, as VDL's)")
    parser.add_argument('--only', choices=('table', 'sweep', LINKS),
                        help='one of the two parts, or actors behind links')
    parser.add_argument('--mbit', nargs='+', type=int, metavar='N',
                        help='rates of the links, Mbit/s (100 1000; quick: 1000)')
    parser.add_argument('--seconds', type=float, help='of each measurement (1.5; quick: 0.5)')
    parser.add_argument('--warm-up', type=float, help='s before it (0.5; quick: 0.2)')
    parser.add_argument('--rounds', type=int, help='measurements of each (3; quick: 1)')
    return parser.parse_args(words)


def collect(
    cases: Sequence[Case], rounds: int, run: Callable[[Case, str], dict[str, Any]],
    problems: dict[str, str],
) -> dict[Case, list[dict[str, dict[str, Any]]]]:
    """Return the results of each round by case and mode; each round begins with another mode.

    A case that fails is left out from then on; ``problems`` gets the reason.
    """
    found: dict[Case, list[dict[str, dict[str, Any]]]] = {case: [] for case in cases}
    for number in range(rounds):
        for case in cases:
            if case.env_id in problems:
                continue
            turn = number % len(case.modes)
            measured = {}
            try:
                for mode in case.modes[turn:] + case.modes[:turn]:
                    measured[mode] = run(case, mode)
                    report.log(f'round {number + 1}: {case.env_id} {mode}: '
                               f'{measured[mode]["steps_per_s"]:,.0f} agent steps/s')
            except RuntimeError as error:
                problems[case.env_id] = ' '.join(str(error).split())
                report.log(f'{case.env_id}: {error}')
                continue
            found[case].append({mode: measured[mode] for mode in case.modes})
    return {case: each for case, each in found.items() if case.env_id not in problems}


def measure(
    options: argparse.Namespace, cases: Sequence[Case], problems: dict[str, str],
) -> dict[Case, list[dict[str, dict[str, Any]]]]:
    """Return the figures of each round by case and mode; see :func:`collect`."""
    from benchmarks.graph import Listener, Plan, run_graph, run_serial

    def run(case: Case, mode: str) -> dict[str, Any]:
        graph = mode != SERIAL
        plan = Plan(dict(case.settings) | ({'inference': mode} if graph else {}), {},
                    NUM_ACTORS, options.warm_up, options.seconds)
        return figures(run_graph(plan, listener) if graph else run_serial(plan),
                       NUM_ACTORS if graph else 0)

    with contextlib.closing(Listener()) as listener:
        return collect(cases, options.rounds, run, problems)


def figures(run: Mapping[str, Any], num_actors: int) -> dict[str, Any]:
    """Return the figures of one run.

    Args:
        num_actors: receivers of what the learner sends; 0 in serial mode.
    """
    summary = run['summary']
    by_kind: dict[str, list[dict[str, float]]] = {}
    for node, threads in run['time_shares'].items():
        if threads:
            by_kind.setdefault(node.partition('_')[0], []).append(split(threads))
    wire = summary['wire_bytes']
    return {
        'steps_per_s': run['steps_per_s'], **{name: summary[name] for name in (
            'agent_steps', 'episodes', 'trajectories_lost', 'trajectories_rejected')},
        'wire_bytes_per_step': (wire['in'] + wire['out'] * num_actors) / max(
            summary['agent_steps'], 1),
        'foreign_cores': run['foreign_cores'],
        'time': {kind: report.mean(found) for kind, found in sorted(by_kind.items())}}


def split(threads: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return a process's shares of time as VDL's Timer split them.

    Args:
        threads: shares by thread and phase, as of ``common/metrics.py``.

    Returns:
        ``computation`` and ``communication``, summed over the threads; ``wait`` and ``other`` of
        the training thread, or of the only one: a learner's other threads nearly always wait.
    """
    def total(phases: Iterable[str]) -> float:
        return sum(shares.get(phase, 0.0) for shares in threads.values() for phase in phases)

    leading = threads.get('training') or next(iter(threads.values()))
    return {'computation': total(_COMPUTATION), 'communication': total(_COMMUNICATION),
            'wait': leading.get('wait', 0.0), 'other': leading.get('other', 0.0)}


def cell(rounds: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the figures over the rounds by mode.

    Speeds and bytes are medians, shares of time means, losses sums. ``ratio`` is the median of
    the ratios to serial mode within each round; ``ratio_min`` and ``ratio_max`` are its spread.

    Args:
        rounds: of each round, :func:`figures` by mode, 'serial' among them.
    """
    found: dict[str, dict[str, Any]] = {}
    for mode in rounds[0]:
        runs = [each[mode] for each in rounds]
        found[mode] = {
            **{name: statistics.median(each[name] for each in runs)
               for name in ('steps_per_s', 'wire_bytes_per_step')},
            **{name: sum(each[name] for each in runs) for name in (
                'agent_steps', 'episodes', 'trajectories_lost', 'trajectories_rejected')},
            'foreign_cores': statistics.mean(each['foreign_cores'] for each in runs),
            'time': report.mean([each['time'] for each in runs]),
            'rounds_steps_per_s': [each['steps_per_s'] for each in runs]}
        if mode != SERIAL:
            ratios = [each[mode]['steps_per_s'] / each[SERIAL]['steps_per_s'] for each in rounds]
            found[mode] |= {'ratio': statistics.median(ratios), 'ratio_min': min(ratios),
                            'ratio_max': max(ratios)}
    return found


def episode_seconds(found: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the seconds for ``EPISODES`` episodes by mode.

    Episodes have the mean length over all modes, so that chance makes none look faster;
    ``LONGEST`` where none has ended.
    """
    steps, episodes = (sum(each[name] for each in found.values())
                       for name in ('agent_steps', 'episodes'))
    length = min(steps / episodes, LONGEST) if episodes else LONGEST
    return {mode: EPISODES * length / each['steps_per_s'] for mode, each in found.items()}


def crossing(points: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return where the ratio first falls below 1, between two points on a straight line of logs.

    Args:
        points: (size in bytes, ratio), both above 0, of growing size; at least one.

    Returns:
        ``bytes``: the size or None; ``says``: 'crossed', 'not crossed' (two actors pay at every
        size) or 'never paid' (not even at the smallest); ``pays_again``: whether they pay at a
        larger size, which hints at noise.
    """
    at, says = None, 'not crossed'
    below = next((place for place, (_, ratio) in enumerate(points) if ratio < 1.0), None)
    if below == 0:
        says = 'never paid'
    elif below is not None:
        says = 'crossed'
        (small, high), (large, low) = points[below - 1:below + 1]
        at = small * (large / small) ** (math.log(high) / math.log(high / low))
    again = below is not None and any(ratio >= 1.0 for _, ratio in points[below:])
    return {'bytes': at, 'says': says, 'pays_again': again}


def curve(step_ms: float, cells: Mapping[int, Mapping[str, Any]], mode: str) -> dict[str, Any]:
    """Return the ratio by observation size at one environment time, and its break-even."""
    points = [{'bytes': size, 'cell': found, **{
        name: found[mode][name] for name in ('ratio', 'ratio_min', 'ratio_max')}}
        for size, found in sorted(cells.items())]
    even = crossing([(each['bytes'], each['ratio']) for each in points])
    return {'step_ms': step_ms, 'points': points, 'break_even': even | {
        'bytes_per_ms': None if even['bytes'] is None else even['bytes'] / step_ms}}


def result(
    options: argparse.Namespace, measured: Mapping[Case, Sequence[Mapping[str, Any]]],
) -> dict[str, Any]:
    """Return the figures of both parts."""
    environments, cells = {}, dict[float, dict[int, Any]]()
    for case, rounds in measured.items():
        found = cell(rounds)
        if case.step_ms is None:
            environments[case.env_id] = {
                'cell': found, 'seconds': episode_seconds(found), 'seed': SEED.get(case.env_id)}
        else:
            cells.setdefault(case.step_ms, {})[case.size] = found
    return {
        'num_envs': options.num_envs, 'unroll_length': UNROLL_LENGTH, 'batch_size': BATCH_SIZE,
        'num_actors': NUM_ACTORS, 'seconds': options.seconds, 'rounds': options.rounds,
        'busy': options.busy, 'sweep_inference': options.sweep_inference,
        'environments': environments,
        'break_even': [curve(step_ms, sizes, options.sweep_inference)
                       for step_ms, sizes in sorted(cells.items())]}


def main() -> int:
    """Measure, and print the tables or one JSON object."""
    return report.run('bench_actor_learner', arguments, lambda found: _measure_and_deliver(*found))


def _measure_and_deliver(
    options: argparse.Namespace, cases: Sequence[Case], problems: dict[str, str],
) -> int:
    from benchmarks.graph import own_domain
    missing = len(problems)
    with own_domain(configure=options.only != LINKS) as transport:
        if options.only == LINKS:
            from benchmarks import links
            report.deliver('link', links.measure(options), options, links.markdown)
            return 0
        measured = measure(options, cases, problems)
    report.deliver('actor_learner', {
        'cores': len(os.sched_getaffinity(0)), 'transport': transport, 'problems': problems,
        **result(options, measured)}, options, markdown)
    return report.EXIT_FAILED if len(problems) > missing else 0


def markdown(found: Mapping[str, Any]) -> str:
    """Return the result as tables for a page."""
    return '\n'.join([
        *_environments(found), *_sweep(found), *_times(found),
        f'Environments of a process: {found["num_envs"]}; T = {found["unroll_length"]}; '
        f'trajectories of an update: {found["batch_size"]}; rounds: {found["rounds"]}, of '
        f'{found["seconds"]:g} s each; cores: {found["cores"]}; transport: {found["transport"]}.',
        *(f'{name}: {problem}' for name, problem in found['problems'].items())])


def _environments(found: Mapping[str, Any]) -> list[str]:
    if not found['environments']:
        return []
    modes = [mode for mode in _HEADS if mode in next(iter(found['environments'].values()))['cell']]
    graphs = [mode for mode in modes if mode != SERIAL]
    rows = []
    for name, each in found['environments'].items():
        seed = SEED.get(name)
        rows.append([
            name, *(f'{each["seconds"][mode]:.3g}' for mode in modes),
            *(_ratio(each['cell'][mode]) for mode in graphs),
            *(['', '', ''] if seed is None else [
                f'{seed["one"]:g} / {seed["local"]:g} / {seed["remote"]:g}',
                f'{seed["one"] / seed["local"]:.2f}', f'{seed["one"] / seed["remote"]:.2f}'])])
    return [
        *report.table(['environment', *(f'{_HEADS[mode]}, s' for mode in modes),
                       *(f'ratio {_HEADS[mode].rpartition(" ")[2]}' for mode in graphs),
                       'VDL s: one / two here / two remote', 'VDL ratio here',
                       'VDL ratio remote'], rows),
        '', f'Seconds for {EPISODES} episodes of at most {LONGEST} steps at the speed measured; '
        'ratio above 1: two actors are faster.', '']


def _ratio(each: Mapping[str, Any] | None) -> str:
    return '' if each is None else (
        f'{each["ratio"]:.2f} ({each["ratio_min"]:.2f} to {each["ratio_max"]:.2f})')


def _sweep(found: Mapping[str, Any]) -> list[str]:
    curves = [{point['bytes']: point for point in each['points']} for each in found['break_even']]
    if not curves:
        return []
    how = 'computing' if found['busy'] else 'asleep'
    return [
        *report.table(
            ['bytes', *(f'ratio at {each["step_ms"]:g} ms {how}' for each in found['break_even'])],
            ([f'{size:,}', *(_ratio(points.get(size)) for points in curves)]
             for size in sorted({size for points in curves for size in points}))),
        '', *map(_verdict, found['break_even']),
        f'VDL, three machines on 1 Gbit/s: about {SEED_BREAK_EVEN:,.0f} bytes per ms.', '']


def _verdict(each: Mapping[str, Any]) -> str:
    even, sizes = each['break_even'], [point['bytes'] for point in each['points']]
    text = {
        'crossed': lambda: f'two actors stop paying at {even["bytes"]:,.0f} bytes, '
                           f'{even["bytes_per_ms"]:,.0f} per ms',
        'not crossed': lambda: f'not crossed up to {sizes[-1]:,} bytes',
        'never paid': lambda: f'two actors do not pay at {sizes[0]:,} bytes already',
    }[even['says']]()
    again = '; they pay again at a larger size' if even['pays_again'] else ''
    return f'{each["step_ms"]:g} ms: {text}{again}.'


def _times(found: Mapping[str, Any]) -> list[str]:
    """Return where the time of each kind of process goes, in percent of the wall's."""
    cells = {name: each['cell'] for name, each in found['environments'].items()} | {
        f'{point["bytes"]:,} bytes, {each["step_ms"]:g} ms': point['cell']
        for each in found['break_even'] for point in each['points']}
    rows = [[name, _HEADS[mode], kind, *(report.percent(shares[part]) for part in _PARTS),
             f'{each["wire_bytes_per_step"]:,.0f}' if mode != SERIAL else '',
             f'{each["steps_per_s"]:,.0f}']
            for name, modes in cells.items() for mode, each in modes.items()
            for kind, shares in each['time'].items()]
    return [*report.table(['', 'run', 'process', *(f'{part} %' for part in _PARTS),
                           'wire bytes/step', 'steps/s'], rows),
            '', 'Actors are a mean. Computation and communication of a learner are added up over '
            'its threads, waiting is of the one that trains.', ''] if rows else []
