"""One process against a learner with two actors: VDL's table, and where two actors stop paying.

    ros2 run vdl_ros bench_actor_learner [--env ID ...] [--sizes N ...] [--step-ms MS ...]
        [--busy] [--only table|sweep] [--quick] [--json] [--output FILE]

One process is serial mode; two actors are the graph of ``train.launch.py`` on this host, with
inference by the actors (local) or by the learner (central). The learning rate is 0: updates take
as long as ever, but the policy stays random, so that all runs have the same kind of episodes. The
sweep uses dummy environments, which sleep or compute for a given time and return so many bytes of
noise, and the smallest network, which also grows with that size. Runs take turns, round after
round; start and warm-up are excluded.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import report

SERIAL = 'serial'
NUM_ACTORS = 2
ENVIRONMENTS = ('CartPole-v1', 'ALE/Breakout-v5', 'Hopper-v5', 'Humanoid-v5')
SIZES = (2048, 16384, 131072, 1048576)
# The same for all; they override a task's preset.
UNROLL_LENGTH, BATCH_SIZE = 20, 2
SETTINGS = {'unroll_length': str(UNROLL_LENGTH), 'batch_size': str(BATCH_SIZE),
            'max_policy_lag': '4', 'publish_every': '1', 'learning_rate': '0.0'}
TIME_LIMIT = {'time_limit': '100'}
SMALLEST = {'hidden_size': '1'}


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
    """Return the options, the cases to run, and by name why an environment cannot be run.

    Raises:
        ValueError: an option that is not allowed; the message is one line.
    """
    from vdl_ros.envs.dummy import LARGEST, parse

    options = _parse(words)
    named = options.env is not None
    report.complete(options, {
        'seconds': (1.5, 0.5), 'warm_up': (0.5, 0.2), 'rounds': (3, 1),
        'env': (ENVIRONMENTS, ENVIRONMENTS[:1]), 'sizes': (SIZES, (SIZES[0], SIZES[-1])),
        'step_ms': ((1.0, 4.0), (1.0,))}, {
        'seconds': (0.2, 3600), 'warm_up': (0, 3600), 'rounds': (1, 1000),
        'num_envs': (1, 1024), 'sizes': (1, LARGEST), 'step_ms': (0.01, 10000)})
    options.sizes = sorted(set(options.sizes))
    options.step_ms = sorted(set(options.step_ms))
    if options.only != 'table' and len(options.sizes) < 2:
        raise ValueError(f'--sizes: {options.sizes[0]} alone is not allowed: at least two')

    common = SETTINGS | {'num_envs': str(options.num_envs)}
    cases: list[Case] = []
    problems: dict[str, str] = {}
    if options.only != 'sweep':
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
    if options.only != 'table':
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
    parser.add_argument('--only', choices=('table', 'sweep'), help='one of the two parts')
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
    """Run all cases; see :func:`collect`."""
    from benchmarks.actor_learner.table import figures
    from benchmarks.train.runs import Listener, Plan, run_graph, run_serial

    def run(case: Case, mode: str) -> dict[str, Any]:
        graph = mode != SERIAL
        plan = Plan(dict(case.settings) | ({'inference': mode} if graph else {}), {},
                    NUM_ACTORS, options.warm_up, options.seconds)
        return figures(run_graph(plan, listener) if graph else run_serial(plan),
                       NUM_ACTORS if graph else 0)

    with contextlib.closing(Listener()) as listener:
        return collect(cases, options.rounds, run, problems)


def result(
    options: argparse.Namespace, measured: Mapping[Case, Sequence[Mapping[str, Any]]],
) -> dict[str, Any]:
    """Return the figures of both parts."""
    from benchmarks.actor_learner.table import SEED, cell, curve, episode_seconds
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
    from benchmarks.actor_learner.table import markdown
    from benchmarks.graph import own_domain
    missing = len(problems)
    with own_domain(configure=True) as transport:
        measured = measure(options, cases, problems)
    report.deliver('actor_learner', {
        'cores': len(os.sched_getaffinity(0)), 'transport': transport, 'problems': problems,
        **result(options, measured)}, options, markdown)
    return report.EXIT_FAILED if len(problems) > missing else 0
