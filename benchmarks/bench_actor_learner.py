"""One process against a learner with two actors: VDL's table, and actors behind slow links.

One process is serial mode; two actors are the graph of ``train.launch.py`` on this host, with
inference by the actors (local) or by the learner (central). The learning rate is 0: updates take
as long as ever, but the policy stays random, so that all runs have the same kind of episodes.
``--only links`` (root) has the actors on another host (links.py).
"""

import argparse
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import report

SERIAL, LINKS = 'serial', 'links'
NUM_ACTORS = 2
ENVIRONMENTS = ('CartPole-v1', 'ALE/Breakout-v5', 'Hopper-v5', 'Humanoid-v5')
# The same for all; they override a task's preset.
UNROLL_LENGTH, BATCH_SIZE = 20, 2
SETTINGS = {'unroll_length': str(UNROLL_LENGTH), 'batch_size': str(BATCH_SIZE),
            'max_in_flight': '4', 'publish_every': '1', 'learning_rate': '0.0'}
# How many times as fast as one process two actors of VDL 0.0.3 (2017) were, on the learner's
# machine and on others; of CartPole-v0, Breakout-v0, Hopper-v1, Humanoid-v1, machines not stated.
SEED: Mapping[str, Mapping[str, float]] = {
    'CartPole-v1': {'local': 1.31, 'remote': 1.00},
    'ALE/Breakout-v5': {'local': 0.99, 'remote': 0.88},
    'Hopper-v5': {'local': 2.26, 'remote': 1.39},
    'Humanoid-v5': {'local': 2.21, 'remote': 1.55}}
MAX_STEPS = 100

_TITLES = {'actor': 'two actors, local', 'learner': 'two actors, central'}

#: Agent steps/s of each round, by environment and mode.
Rounds = dict[str, list[dict[str, float]]]


def arguments(words: Sequence[str] | None = None) -> tuple[argparse.Namespace, dict[str, str]]:
    """Return the options, and by name why an environment cannot be run."""
    from vdl_ros.envs import factory
    from vdl_ros.envs.env_config import EnvConfig
    from vdl_ros.rl.policy.policy import make_policy
    from vdl_ros.rl.settings import TrainConfig

    parser = report.Parser('bench_actor_learner', __doc__)
    parser.add_argument('--env', nargs='+', metavar='ID',
                        help=f'rows of the table ({" ".join(ENVIRONMENTS)}; quick: the first)')
    parser.add_argument('--inference', nargs='+', choices=('actor', 'learner'),
                        default=['actor', 'learner'], help='where actions are chosen (both)')
    parser.number('--num-envs', int, "environments of each process; 1 as VDL's", (1, 1), (1, 1024))
    parser.add_argument('--only', choices=('table', LINKS), default='table',
                        help='the table, or actors behind links (table)')
    parser.number('--seconds', float, 'of each measurement (1.5; quick: 0.5; links: 6, 1)',
                  (None, None), (0.2, 3600))
    parser.number('--rounds', int, 'measurements of each', (3, 1), (1, 1000))
    options = parser.complete(words)
    links, problems = options.only == LINKS, {}
    if options.seconds is None:
        options.seconds = ((6.0, 1.0) if links else (1.5, 0.5))[options.quick]
    options.warm_up = options.seconds / (2 if links else 3)
    named = options.env is not None
    options.env = list(dict.fromkeys(options.env or ENVIRONMENTS[:1 if options.quick else None]))
    for name in () if links else options.env:
        try:
            make_policy(TrainConfig(hidden_size=1), *factory.spaces(EnvConfig(env_id=name)))
        except ValueError as error:
            if named:
                raise
            problems[name] = str(error)
    return options, problems


def measure(options: argparse.Namespace, names: Sequence[str]) -> tuple[Rounds, dict[str, str]]:
    from benchmarks.graph import Plan, listener, run_graph, run_serial

    modes = (SERIAL, *dict.fromkeys(options.inference))

    def one_round(name: str, number: int) -> dict[str, float]:
        """Return the speeds of an environment by mode; each round begins with another mode."""
        found = {}
        for mode in report.turned(modes, number):
            plan = Plan(SETTINGS | {
                'env_id': name, 'num_envs': str(options.num_envs), 'time_limit': str(MAX_STEPS),
                **({} if mode == SERIAL else {'inference': mode})}, {}, NUM_ACTORS,
                options.warm_up, options.seconds)
            run = run_serial(plan) if mode == SERIAL else run_graph(plan, reports)
            found[mode] = float(run['steps_per_s'])
            report.log(f'round {number + 1}: {name} {mode}: {found[mode]:,.0f} agent steps/s')
        return {mode: found[mode] for mode in modes}

    with listener() as reports:
        return report.collect(names, options.rounds, one_round)


def cell(rounds: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return the median speed over the rounds by mode.

    ``ratio`` is the median of the ratios to serial mode within each round.
    """
    return {mode: {'steps_per_s': statistics.median(each[mode] for each in rounds),
                   'ratio': statistics.median(each[mode] / each[SERIAL] for each in rounds)}
            for mode in rounds[0]}


def main() -> int:
    """Measure, and print the tables or one JSON object."""
    return report.run('bench_actor_learner', arguments, lambda found: _measure_and_deliver(*found))


def _measure_and_deliver(options: argparse.Namespace, problems: dict[str, str]) -> int:
    from benchmarks.graph import own_domain
    with own_domain(configure=options.only != LINKS) as transport:
        if options.only == LINKS:
            from benchmarks import links
            report.deliver('link', links.measure(options), options, links.markdown)
            return 0
        measured, failed = measure(options, [name for name in options.env if name not in problems])
    environments = {
        name: {'cell': cell(rounds), 'seed': SEED.get(name)} for name, rounds in measured.items()}
    report.deliver('actor_learner', {
        'cores': len(os.sched_getaffinity(0)), 'transport': transport,
        'problems': problems | failed,
        'num_envs': options.num_envs, 'unroll_length': UNROLL_LENGTH, 'batch_size': BATCH_SIZE,
        'num_actors': NUM_ACTORS, 'seconds': options.seconds, 'rounds': options.rounds,
        'environments': environments}, options, markdown)
    return report.EXIT_FAILED if failed else 0


def markdown(found: Mapping[str, Any]) -> str:
    rows = [{'name': name, **each} for name, each in found['environments'].items()]
    modes = [mode for mode in _TITLES if rows and mode in rows[0]['cell']]
    columns = {
        'environment': '{name}',
        'one process, steps/s': f'{{cell[{SERIAL}][steps_per_s]:,.0f}}',
        **{_TITLES[mode]: f'{{cell[{mode}][ratio]:.2f}}' for mode in modes},
        'VDL, local': '{seed[local]:.2f}', 'VDL, remote': '{seed[remote]:.2f}'}
    return '\n'.join([
        *report.columns(columns, rows), '',
        f'How many times as fast as one process. Environments of a process: {found["num_envs"]}; '
        f'T = {found["unroll_length"]}; trajectories of an update: {found["batch_size"]}; rounds: '
        f'{found["rounds"]}, of {found["seconds"]:g} s each; {found["cores"]} cores; transport: '
        f'{found["transport"]}.',
        *(f'{name}: {problem}' for name, problem in found['problems'].items())])
