"""
One process against a learner with two actors: VDL's table, and where two actors stop paying.

    ros2 run vdl_ros bench_actor_learner [--env ID ...] [--sizes N ...] [--step-ms MS ...]
        [--busy] [--only table|sweep] [--quick] [--json] [--output FILE]

One process is serial mode; two actors are the graph of ``train.launch.py`` on this host, with
actions chosen by the actors (local) or by the learner (central). The learning rate is 0: updates
cost what they cost, but the policy stays the random one of the start, so all runs play the same
kind of episodes. The sweep uses dummy environments, which sleep or compute for a given time and
return so many bytes of noise, and the smallest network, since its own size grows with theirs.
Runs take turns, round after round; start and warm-up are left out.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import report

EXIT_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 1, 2, 130

SERIAL = 'serial'
NUM_ACTORS = 2
ENVIRONMENTS = ('CartPole-v1', 'ALE/Breakout-v5', 'Hopper-v5', 'Humanoid-v5')
SIZES = (2048, 16384, 131072, 1048576)
# The same for all, whatever a task's preset says.
UNROLL_LENGTH, BATCH_SIZE = 20, 2
SETTINGS = {'unroll_length': str(UNROLL_LENGTH), 'batch_size': str(BATCH_SIZE),
            'max_policy_lag': '4', 'publish_every': '1', 'learning_rate': '0.0'}
TIME_LIMIT = {'time_limit': '100'}
SMALLEST = {'hidden_size': '1'}


@dataclass(frozen=True, eq=False)
class Case:
    """
    What is run in several ways.

    Attributes:
        env_id: of the environment.
        settings: as a user types them, by name.
        ways: 'serial', and where the graph's actions are chosen: 'actor', 'learner'.
        step_ms: time of the dummy environment; None: a row of the table.
        size: bytes of its observation.
    """

    env_id: str
    settings: Mapping[str, str]
    ways: tuple[str, ...]
    step_ms: float | None = None
    size: int = 0


def arguments(
    words: Sequence[str] | None = None,
) -> tuple[argparse.Namespace, list[Case], dict[str, str]]:
    """
    Return the options, what is to be run, and what cannot be by name with the reason.

    Raises:
        ValueError: an option that is not allowed; the message is one line.
    """
    from vdl_ros.envs.dummy import LARGEST, parse

    options = _parser().parse_args(words)
    named = options.env is not None
    for name, usual, quick in (
            ('seconds', 1.5, 0.5), ('warm_up', 0.5, 0.2), ('rounds', 3, 1),
            ('env', ENVIRONMENTS, ENVIRONMENTS[:1]), ('sizes', SIZES, (SIZES[0], SIZES[-1])),
            ('step_ms', (1.0, 4.0), (1.0,))):
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else usual)
    for name, low, high in (
            ('seconds', 0.2, 3600), ('warm_up', 0, 3600), ('rounds', 1, 1000),
            ('num_envs', 1, 1024), ('sizes', 1, LARGEST), ('step_ms', 0.01, 10000)):
        values = getattr(options, name)
        for value in values if isinstance(values, list | tuple) else [values]:
            if not low <= value <= high:
                raise ValueError(f'--{name.replace("_", "-")}: {value} is not allowed: '
                                 f'{low} to {high}')
    report.check_output(options)
    options.sizes = sorted(set(options.sizes))
    options.step_ms = sorted(set(options.step_ms))
    if options.only != 'table' and len(options.sizes) < 2:
        raise ValueError(f'--sizes: {options.sizes[0]} alone is not allowed: at least two')

    common = SETTINGS | {'num_envs': str(options.num_envs)}
    cases: list[Case] = []
    problems: dict[str, str] = {}
    if options.only != 'sweep':
        ways = (SERIAL, *dict.fromkeys(options.inference))
        for name in dict.fromkeys(options.env):
            try:
                _check(name)
            except ValueError as error:
                if named:
                    raise
                problems[name] = str(error)
                continue
            cases.append(Case(name, common | TIME_LIMIT | {'env_id': name}, ways))
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
    from vdl_ros.rl.train_config import TrainConfig
    make_policy(TrainConfig(hidden_size=1), *factory.spaces(EnvConfig(env_id=env_id)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='bench_actor_learner', description=__doc__.splitlines()[1])
    parser.add_argument('--env', nargs='+', metavar='ID',
                        help=f'rows of the table ({" ".join(ENVIRONMENTS)}; quick: the first)')
    parser.add_argument('--inference', nargs='+', choices=('actor', 'learner'),
                        default=['actor', 'learner'], help='who chooses actions there (both)')
    parser.add_argument('--sizes', nargs='+', type=int, metavar='N',
                        help='bytes of an observation in the sweep (2048 ... 1048576)')
    parser.add_argument('--step-ms', nargs='+', type=float, metavar='MS',
                        help='environment times in the sweep (1 4; quick: 1)')
    parser.add_argument('--busy', action='store_true', help='dummies compute instead of sleeping')
    parser.add_argument('--sweep-inference', choices=('actor', 'learner'), default='actor',
                        help='who chooses actions in the sweep (actor)')
    parser.add_argument('--num-envs', type=int, default=1, metavar='B',
                        help="environments of each process (1, as VDL's)")
    parser.add_argument('--only', choices=('table', 'sweep'), help='one of the two parts')
    parser.add_argument('--seconds', type=float, help='of each measurement (1.5; quick: 0.5)')
    parser.add_argument('--warm-up', type=float, help='s before it (0.5; quick: 0.2)')
    parser.add_argument('--rounds', type=int, help='measurements of each (3; quick: 1)')
    parser.add_argument('--quick', action='store_true', help='under a minute, less exact')
    report.add_options(parser)
    return parser


def collect(
    cases: Sequence[Case], rounds: int, run: Callable[[Case, str], dict[str, Any]],
    problems: dict[str, str],
) -> dict[Case, list[dict[str, dict[str, Any]]]]:
    """
    Return by case what each round found in each way; the order of ways turns with the rounds.

    A case that failed is left out from then on, and stands among ``problems``.
    """
    found: dict[Case, list[dict[str, dict[str, Any]]]] = {case: [] for case in cases}
    for number in range(rounds):
        for case in cases:
            if case.env_id in problems:
                continue
            turn = number % len(case.ways)
            measured = {}
            try:
                for way in case.ways[turn:] + case.ways[:turn]:
                    measured[way] = run(case, way)
                    print(f'round {number + 1}: {case.env_id} {way}: '
                          f'{measured[way]["steps_per_s"]:,.0f} agent steps/s',
                          file=sys.stderr, flush=True)
            except RuntimeError as error:
                problems[case.env_id] = ' '.join(str(error).split())
                print(f'{case.env_id}: {error}', file=sys.stderr, flush=True)
                continue
            found[case].append({way: measured[way] for way in case.ways})
    return {case: each for case, each in found.items() if case.env_id not in problems}


def measure(
    options: argparse.Namespace, cases: Sequence[Case], problems: dict[str, str],
) -> dict[Case, list[dict[str, dict[str, Any]]]]:
    """Return what :func:`collect` does, of real runs."""
    from benchmarks.actor_learner.table import figures
    from benchmarks.train.runs import Listener, Plan, run_graph, run_serial

    listener = Listener()

    def run(case: Case, way: str) -> dict[str, Any]:
        graph = way != SERIAL
        plan = Plan(dict(case.settings) | ({'inference': way} if graph else {}), {},
                    NUM_ACTORS, options.warm_up, options.seconds)
        return figures(run_graph(plan, listener) if graph else run_serial(plan),
                       NUM_ACTORS if graph else 0)

    try:
        return collect(cases, options.rounds, run, problems)
    finally:
        listener.close()


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
    try:
        options, cases, problems = arguments()
    except (ValueError, OSError) as error:
        print(f'bench_actor_learner: {error}', file=sys.stderr)
        return EXIT_BAD_INPUT
    from benchmarks.actor_learner.table import markdown
    from benchmarks.graph import own_domain
    from vdl_ros.ros.dds import transport

    # As Ctrl-C, so that the measurement under way is ended as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    missing = len(problems)
    try:
        with own_domain():
            travel = transport.configure()
            measured = measure(options, cases, problems)
    except KeyboardInterrupt:
        print('bench_actor_learner: interrupted', file=sys.stderr)
        return EXIT_INTERRUPTED
    except ValueError as error:
        print(f'bench_actor_learner: {error}', file=sys.stderr)
        return EXIT_BAD_INPUT
    found = {
        'benchmark': 'actor_learner', 'machine': report.machine(),
        'cores': len(os.sched_getaffinity(0)), 'transport': travel.name, 'problems': problems,
        **result(options, measured)}
    report.deliver(found, options, markdown)
    return EXIT_FAILED if len(problems) > missing else 0
