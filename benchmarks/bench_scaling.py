"""How training scales: samplers of an iteration, actors of a learner, learners.

    ros2 run vdl_ros bench_scaling [--computing] [--only samplers|actors|learners|exchange]
        [--picture FILE] [--quick] [--json] ...

Three tables of the graph of ``train.launch.py``: a process for each learner and each actor, DDS
between them. The first is WALL-E's: how long 1, 2, 5, 10, 20 samplers collect 20,000 samples, and
how long the learner learns from them. The others are impala_horovod_gym's: agent steps/s by
actors, with a fitted law (scaling/law.py) of how many one learner can take in; and agent steps/s
by learners, each with the same number of actors. ``--only exchange`` is VDL's table of learners
that exchange the changes of their weights (scaling/exchange.py).

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import report

TABLES = ('samplers', 'actors', 'learners')
EXCHANGE = 'exchange'
# Processes that find each other on one host (config/dds/fastdds.xml.in), less a reserve.
MOST = 56
# Values of options without and with --quick.
DEFAULTS: dict[str, tuple[Any, Any]] = {
    'samplers': ('1,2,5,10,20', '1,2'), 'actors': ('1,2,4,8,16', '1,4'),
    'learners': ('1,2,4', '1,2'), 'actors_each': (2, 2), 'periods': ('1,10', '1,2'),
    'samples': (20_000, 1_600), 'seconds': (8.0, 1.5), 'rounds': (2, 1)}


@dataclass(frozen=True)
class Shape:
    """Settings of one table.

    Attributes:
        unroll_length: steps of a trajectory; 0: set by the samples of an iteration.
    """

    name: str
    sleeping: str
    computing: str
    num_envs: int
    unroll_length: int
    batch_size: int
    more: tuple[str, ...]


# An update is an iteration: 20 trajectories of 40 environments over T steps, T = 25 for 20,000
# samples. An actor may have 20 under way, which lets one alone fill a batch: one sampler waits for
# the update, as WALL-E's do; more samplers collect meanwhile. A sleeping environment has
# observations of the size of HalfCheetah's, and one sampler is as fast as WALL-E's.
SAMPLERS = Shape('samplers', 'dummy/OBS136-FPS37-v0', 'HalfCheetah-v5', 40, 0, 20,
                 ('max_in_flight:=20',))
# Batches of Pong. A sleeping environment has observations of the size of Pong's stack, each sent
# whole; an actor delivers at most 800 steps/s. The mlp has as many weights as the convolutional
# network of the IMPALA paper.
ACTORS = Shape('actors', 'dummy/OBS28224-FPS50-v0', 'ALE/Pong-v5', 16, 20, 2,
               ('max_in_flight:=4', 'hidden_size:=16'))
# The same network, so gradients of 3.6 MB are summed, but few environments: all learners learn at
# the same moment, and the less they compute, the less the cores limit the result. With many
# processes on few cores, the last learner may start late.
LEARNERS = Shape('learners', 'dummy/OBS28224-FPS50-v0', 'ALE/Pong-v5', 4, 20, 2,
                 ('max_in_flight:=4', 'hidden_size:=16', 'group_timeout:=600'))
SHAPES = (SAMPLERS, ACTORS, LEARNERS)
# Samples of an iteration for each step of a trajectory.
PER_T = SAMPLERS.num_envs * SAMPLERS.batch_size


@dataclass(frozen=True)
class Cell:
    """One measurement: a table, and a number of its samplers, actors or learners."""

    shape: Shape
    processes: int

    def plan(self, one: Any) -> Any:
        """Return the plan of this run; ``one``: with a single process of that kind."""
        return replace(one, num_actors=self.processes * one.num_actors,
                       num_learners=self.processes if self.shape is LEARNERS else 1)


def asleep(env_id: str) -> bool:
    """Return whether an existing environment only sleeps."""
    from vdl_ros.envs.dummy import NAMESPACE, parse
    if not env_id.startswith(NAMESPACE):
        return False
    dummy = parse(env_id)
    return dummy.step_s > 0 and not dummy.busy


def plan(
    shape: Shape, env_id: str, samples: int, seconds: float, actors: int = 1,
) -> tuple[Any, dict[str, Any]]:
    """Return the plan of a table's run with one process, and its settings."""
    from benchmarks.bench_train import arguments
    words = ['--env', env_id, '--num-envs', str(shape.num_envs), '--unroll-length',
             str(shape.unroll_length or samples // PER_T), '--batch-size', str(shape.batch_size),
             '--num-actors', str(actors), '--seconds', str(seconds)]
    for setting in shape.more:
        words += ['--set', setting]
    _, made, settings = arguments(words)
    return made, settings


def order(counts: Mapping[str, Sequence[int]], number: int) -> Iterator[Cell]:
    """Yield all cells of round ``number``; the tables take turns, every second round is reversed.

    So a slow phase of the machine affects all tables, and few and many processes alike.
    """
    cells = [Cell(shape, counts[shape.name][at]) for at in range(max(map(len, counts.values())))
             for shape in SHAPES if at < len(counts[shape.name])]
    yield from reversed(cells) if number % 2 else cells


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the checked options, with ``plans``: by table, the plan of a process and settings.

    A table that is left out has no numbers of processes.
    """
    options = _parse(words)
    report.complete(options, DEFAULTS, {
        'seconds': (0.5, 3600), 'rounds': (1, 1000), 'actors_each': (1, MOST)})
    options.batches = 2 if options.quick else 20
    options.periods = report.numbers('--periods', options.periods, 1, options.batches)
    for period in options.periods:
        if options.batches % period:
            raise ValueError(f'--periods: {period} is not allowed: divisors of {options.batches}')
    if options.only == EXCHANGE:
        return options
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
        _check_picture(options)
    options.plans = {
        shape.name: plan(
            shape, getattr(options, f'{shape.name[:-1]}_env') or (
                shape.computing if options.computing else shape.sleeping),
            options.samples, options.seconds, options.actors_each if shape is LEARNERS else 1)
        for shape in SHAPES}
    return options


def _check_picture(options: argparse.Namespace) -> None:
    from benchmarks.scaling.law import kinds
    path, reason = options.picture, ''
    if options.only is not None:
        raise ValueError(f'--picture: {path} is not allowed with --only {options.only}: it shows '
                         'samplers and actors')
    if path.suffix[1:].lower() not in kinds():
        reason = f'a file that ends in one of {", ".join(kinds())}'
    elif not path.absolute().parent.is_dir():
        reason = 'there is no such folder'
    if reason:
        raise ValueError(f'--picture: {path} is not allowed: {reason}')


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = report.Parser('bench_scaling', __doc__, quick='in a minute or so, less exact')
    parser.add_argument('--samplers', metavar='N,N', help='(1,2,5,10,20; quick: 1,2)')
    parser.add_argument('--actors', metavar='N,N', help='(1,2,4,8,16; quick: 1,4)')
    parser.add_argument('--learners', metavar='N,N', help='(1,2,4; quick: 1,2)')
    parser.add_argument('--actors-each', type=int, metavar='N',
                        help='actors of each learner in the table of learners (2)')
    parser.add_argument('--only', choices=(*TABLES, EXCHANGE),
                        help='one of the three tables, or that of exchanged changes')
    parser.add_argument('--samples', type=int, metavar='N',
                        help='of an iteration of the samplers (20000; quick: 1600)')
    parser.add_argument('--periods', metavar='N,N',
                        help='batches from one exchange to the next (1,10; quick: 1,2)')
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
    """Return the runs by table and number of processes, and by such a cell why one failed."""
    from benchmarks import graph

    found: Runs = {}
    problems: dict[str, str] = {}
    with contextlib.closing(graph.Listener()) as listener:
        for number in range(options.rounds):
            for cell in order({name: getattr(options, name) for name in TABLES}, number):
                name = cell.shape.name
                title = f'{cell.processes} {name}'
                try:
                    run = graph.run_graph(cell.plan(options.plans[name][0]), listener)
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
    from benchmarks.scaling import tables

    settings = {name: values for name, (_, values) in options.plans.items()}
    kind = {name: 'asleep' if asleep(values['env_id']) else 'computing'
            for name, values in settings.items()}
    samplers, actors, learners = (
        [n for n in getattr(options, name) if (name, n) in runs] for name in TABLES)
    found: dict[str, Any] = {
        **{f'{name[:-1]}_env': settings[name]['env_id'] for name in TABLES},
        'samples': options.samples, 'seconds': options.seconds, 'rounds': options.rounds,
        'actors_each': options.actors_each, 'settings': settings}
    if samplers:
        found['samplers'] = tables.with_speedups([
            tables.sampler_row(n, runs['samplers', n], options.samples, kind['samplers'])
            for n in samplers])
    if actors:
        rows = [tables.actor_row(n, runs['actors', n], kind['actors']) for n in actors]
        found |= {'actors': rows, 'most_steps_per_s': max(row['steps_per_s'] for row in rows),
                  'law': tables.law_of([(float(n), float(run['steps_per_s']))
                                        for n in actors for run in runs['actors', n]]),
                  'seed_law': tables.law_of(tables.SEED_ACTORS)}
    if learners:
        found['learners'] = tables.with_efficiencies([
            tables.learner_row(n, n * options.actors_each, runs['learners', n], kind['learners'])
            for n in learners])
    return found


def markdown(found: Mapping[str, Any]) -> str:
    """Return the tables that were measured, for a page."""
    from benchmarks.scaling.tables import actors_text, learners_text, samplers_text
    parts = zip(TABLES, (samplers_text, actors_text, learners_text), strict=True)
    return '\n\n'.join(text(found) for name, text in parts if name in found)


def main() -> int:
    """Measure, and print the tables or one JSON object."""
    return report.run('bench_scaling', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> int:
    if options.only == EXCHANGE:
        from benchmarks.scaling import exchange
        report.deliver(EXCHANGE, exchange.measure(
            2 if options.quick else 6, options.batches, options.periods), options,
            exchange.markdown)
        return 0
    from benchmarks.graph import own_domain
    with own_domain(configure=True):
        runs, problems = measure(options)
    found = {'cores': len(os.sched_getaffinity(0)), 'problems': problems, **result(options, runs)}
    if options.picture is not None:
        from benchmarks.scaling.law import draw
        draw(options.picture, found)
    report.deliver('scaling', found, options, markdown)
    return report.EXIT_FAILED if problems else 0
