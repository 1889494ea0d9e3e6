"""How training scales: samplers of an iteration, actors of a learner, learners.

    ros2 run vdl_ros bench_scaling [--computing] [--only samplers|actors|learners]
        [--picture FILE] [--quick] [--json] ...

Three tables of the graph of ``train.launch.py``: a process for each learner and each actor, DDS
between them. The first is WALL-E's: how long 1, 2, 5, 10, 20 samplers collect 20,000 samples, and
how long the learner learns from them. The others are impala_horovod_gym's: agent steps/s by
actors, with a fitted law (scaling/fit.py) of how many one learner can take in; and agent steps/s
by learners, each with the same number of actors. scaling/runs.py has their settings.

Environments sleep, except with ``--computing``: twenty environments that compute need twenty
cores. Networks compute in any case, so the cores in use stand beside each figure. Where all cores
are in use, the machine is the limit, not the learner, and the law does not apply.

WALL-E collects, then learns; here both run at the same time. Its times compare with the time that
samplers and learner are busy, and with their sum; the duration of an iteration stands beside. An
update is one V-trace update here and 20 epochs of PPO there: compare how learning times change
with the samplers, not their size.

The warm-up begins when every actor has delivered.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import report

TABLES = ('samplers', 'actors', 'learners')
# Values of options without and with --quick.
DEFAULTS: dict[str, tuple[Any, Any]] = {
    'samplers': ('1,2,5,10,20', '1,2'), 'actors': ('1,2,4,8,16', '1,4'),
    'learners': ('1,2,4', '1,2'), 'actors_each': (2, 2),
    'samples': (20_000, 1_600), 'seconds': (8.0, 1.5), 'rounds': (2, 1)}


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the checked options, with ``plans``: by table, the plan of a process and settings.

    A table that is left out has no numbers of processes.

    Raises:
        ValueError: one that is not allowed; the message is one line.
    """
    from benchmarks.scaling.runs import MOST, PER_T, SHAPES, plan

    options = _parse(words)
    report.complete(options, DEFAULTS, {
        'seconds': (0.5, 3600), 'rounds': (1, 1000), 'actors_each': (1, MOST)})
    for name in TABLES:
        # MOST actors and one learner are the largest number of processes.
        most, reason = (MOST, '') if name != 'learners' else (
            (MOST + 1) // (1 + options.actors_each), f', --actors-each {options.actors_each}')
        counts = sorted(report.numbers(f'--{name}', getattr(options, name), 1, most, reason))
        if name == 'actors' and len(counts) < 2:
            raise ValueError('--actors: one number is too few for a law')
        if name != 'actors' and counts[0] != 1:
            raise ValueError(f'--{name}: there is no 1, and speed-ups are over one')
        setattr(options, name, tuple(counts) if options.only in (None, name) else ())
    most = 10_000 * PER_T
    if not PER_T <= options.samples <= most or options.samples % PER_T:
        raise ValueError(f'--samples: {options.samples} is not allowed: a multiple of {PER_T} '
                         f'from {PER_T} to {most}')
    if options.picture is not None:
        if options.only is not None:
            raise ValueError(f'--picture: {options.picture} is not allowed with --only '
                             f'{options.only}: it shows samplers and actors')
        _check_picture(options.picture)
    options.plans = {
        shape.name: plan(
            shape, getattr(options, f'{shape.name[:-1]}_env') or (
                shape.computing if options.computing else shape.sleeping),
            options.samples, options.seconds,
            options.actors_each if shape.name == 'learners' else 1)
        for shape in SHAPES}
    return options


def _check_picture(path: Path) -> None:
    from benchmarks.scaling.plot import kinds
    if path.suffix[1:].lower() not in kinds():
        raise ValueError(f'--picture: {path} is not allowed: a file that ends in one of '
                         f'{", ".join(kinds())}')
    if not path.absolute().parent.is_dir():
        raise ValueError(f'--picture: {path} is not allowed: there is no such folder')


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = report.Parser('bench_scaling', __doc__, quick='in a minute or so, less exact')
    parser.add_argument('--samplers', metavar='N,N', help='(1,2,5,10,20; quick: 1,2)')
    parser.add_argument('--actors', metavar='N,N', help='(1,2,4,8,16; quick: 1,4)')
    parser.add_argument('--learners', metavar='N,N', help='(1,2,4; quick: 1,2)')
    parser.add_argument('--actors-each', type=int, metavar='N',
                        help='actors of each learner in the table of learners (2)')
    parser.add_argument('--only', choices=TABLES, help='one of the three tables')
    parser.add_argument('--samples', type=int, metavar='N',
                        help='of an iteration of the samplers (20000; quick: 1600)')
    parser.add_argument('--computing', action='store_true',
                        help='HalfCheetah-v5 and ALE/Pong-v5 instead of environments that sleep')
    for name in TABLES:
        parser.add_argument(
            f'--{name[:-1]}-env', metavar='ID', help='any other environment')
    parser.add_argument('--seconds', type=float,
                        help='of each measurement at least, and one update (8; quick: 1.5)')
    parser.add_argument('--rounds', type=int, help='measurements of each (2; quick: 1)')
    parser.add_argument('--picture', type=Path, metavar='FILE', help='draw the law there')
    return parser.parse_args(words)


Runs = dict[tuple[str, int], list[dict[str, Any]]]


def measure(options: argparse.Namespace) -> tuple[Runs, dict[str, str]]:
    """Return the runs by table and number of processes, and by such a cell why a run of it failed.

    Raises:
        RuntimeError: too few runs succeeded for the tables.
    """
    from benchmarks.scaling.runs import order
    from benchmarks.train.runs import Listener, run_graph

    found: Runs = {}
    problems: dict[str, str] = {}
    with contextlib.closing(Listener()) as listener:
        for number in range(options.rounds):
            for cell in order({name: getattr(options, name) for name in TABLES}, number):
                name = cell.shape.name
                title = f'{cell.processes} {name}'
                try:
                    run = run_graph(cell.plan(options.plans[name][0]), listener)
                    found.setdefault((name, cell.processes), []).append(run)
                    text = f'{run["steps_per_s"]:,.0f} agent steps/s'
                except RuntimeError as error:
                    text = problems[title] = ' '.join(str(error).split())
                report.log(f'round {number + 1}: {title}: {text}')
    enough = {'samplers': ('samplers', 1) in found, 'learners': ('learners', 1) in found,
              'actors': sum(name == 'actors' for name, _ in found) >= 2}
    if not all(enough[name] for name in TABLES if getattr(options, name)):
        raise RuntimeError('; '.join(f'{cell}: {text}' for cell, text in problems.items()))
    return found, problems


def result(options: argparse.Namespace, runs: Runs) -> dict[str, Any]:
    """Return the figures of the cells that were run; a table that was left out has no keys."""
    from benchmarks.scaling.learners import learner_row, with_efficiencies
    from benchmarks.scaling.runs import asleep
    from benchmarks.scaling.table import SEED_ACTORS, actor_row, law_of, sampler_row, with_speedups

    settings = {name: values for name, (_, values) in options.plans.items()}
    kind = {name: 'asleep' if asleep(values['env_id']) else 'computing'
            for name, values in settings.items()}
    samplers, actors, learners = (
        [n for n in getattr(options, name) if (name, n) in runs] for name in TABLES)
    points = [(float(n), float(run['steps_per_s'])) for n in actors for run in runs['actors', n]]
    rows = [actor_row(n, runs['actors', n], kind['actors']) for n in actors]
    found: dict[str, Any] = {
        **{f'{name[:-1]}_env': settings[name]['env_id'] for name in TABLES},
        'samples': options.samples, 'seconds': options.seconds, 'rounds': options.rounds,
        'actors_each': options.actors_each, 'settings': settings}
    if samplers:
        found['samplers'] = with_speedups([
            sampler_row(n, runs['samplers', n], options.samples, kind['samplers'])
            for n in samplers])
    if actors:
        found |= {'actors': rows, 'most_steps_per_s': max(row['steps_per_s'] for row in rows),
                  'law': law_of(points), 'seed_law': law_of(SEED_ACTORS)}
    if learners:
        found['learners'] = with_efficiencies([
            learner_row(n, n * options.actors_each, runs['learners', n], kind['learners'])
            for n in learners])
    return found


def markdown(found: Mapping[str, Any]) -> str:
    """Return the tables that were measured, for a page."""
    from benchmarks.scaling.learners import learners_text
    from benchmarks.scaling.table import actors_text, samplers_text

    parts = zip(TABLES, (samplers_text, actors_text, learners_text), strict=True)
    return '\n\n'.join(text(found) for name, text in parts if name in found)


def main() -> int:
    """Measure, and print the tables or one JSON object."""
    return report.run('bench_scaling', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> int:
    from benchmarks.graph import own_domain
    with own_domain(configure=True):
        runs, problems = measure(options)
    found = {'cores': len(os.sched_getaffinity(0)), 'problems': problems, **result(options, runs)}
    if options.picture is not None:
        from benchmarks.scaling.plot import draw
        draw(options.picture, found)
    report.deliver('scaling', found, options, markdown)
    return report.EXIT_FAILED if problems else 0
