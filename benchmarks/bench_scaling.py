"""How training scales: samplers of an iteration, actors of a learner, learners.

Three tables of the graph of ``train.launch.py``. The first is WALL-E's: how long samplers collect
20,000 samples, and how long the learner learns from them. The others are impala_horovod_gym's:
agent steps/s by actors of one learner; and by learners, each with the same number of actors.

Environments sleep, except with ``--computing``: twenty environments that compute need twenty
cores. Networks compute in any case: where all cores are in use, the machine is the limit, not the
learner.
"""

import argparse
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from benchmarks import report
from vdl_ros.common.metrics import ACTING, TRAINING

TABLES = ('samplers', 'actors', 'learners')
# Processes that find each other on one host (config/dds/fastdds.xml.in), less a reserve.
MOST = 56
# Samples of an iteration, without and with --quick, and for each step of a trajectory: 20
# trajectories of 40 environments.
SAMPLES, PER_T = (20_000, 1_600), 20 * 40
# Of each learner in the table of learners.
ACTORS_EACH = 2
# Of the seeds, by number of processes. WALL-E, HalfCheetah-v2, read off its plots to 5 %: s of an
# iteration of 20,000 samples; the machine is not stated. impala_horovod_gym, Pong, each learner
# with a GPU and 45 actors of its own, an actor is one machine of 4 cores: agent steps/s of all.
SEED: Mapping[str, Mapping[int, float]] = {
    'samplers': {1: 16.1, 2: 9.8, 5: 4.4, 8: 4.5, 10: 3.4, 20: 3.0},
    'learners': {1: 5800.0, 2: 10800.0, 3: 15600.0, 4: 18800.0, 5: 21000.0, 6: 21600.0,
                 7: 21700.0, 8: 21600.0}}
# Phases of an actor and of a learner that are not waiting.
_COLLECTING = ('step', 'infer', 'encode', 'publish')
_LEARNING = ('decode', 'learn', 'encode', 'publish')
# Columns of the tables; in brackets the seed's.
_COLUMNS = {
    'samplers': {'total, s': '{total_s:.2f} ({seed[total_s]:.1f})',
                 'speed-up': '{speedup:.1f} ({seed[speedup]:.1f})'},
    'actors': {'steps/s': '{steps_per_s:,.0f}'},
    'learners': {'steps/s': '{steps_per_s:,.0f} ({seed[steps_per_s]:,.0f})',
                 'speed-up': '{speedup:.2f} ({seed[speedup]:.2f})'}}


class Shape(NamedTuple):
    """An environment that sleeps, one that computes, and options of bench_train, of one table."""

    sleeping: str
    computing: str
    words: str


SHAPES = {
    # An update is an iteration: T = 25 for 20,000 samples. An actor may have 20 trajectories under
    # way, which lets one alone fill a batch: one sampler waits for the update, as WALL-E's do;
    # more samplers collect meanwhile. A sleeping environment has observations of the size of
    # HalfCheetah's, and one sampler is as fast as WALL-E's.
    'samplers': Shape('dummy/OBS136-FPS37-v0', 'HalfCheetah-v5',
                      '--num-envs 40 --batch-size 20 --set max_in_flight:=20'),
    # Batches of Pong. A sleeping environment has observations of the size of Pong's stack, each
    # sent whole; an actor delivers at most 800 steps/s. The mlp has as many weights as the
    # convolutional network of the IMPALA paper.
    'actors': Shape('dummy/OBS28224-FPS50-v0', 'ALE/Pong-v5',
                    '--num-envs 16 --unroll-length 20 --batch-size 2 --set max_in_flight:=4 '
                    '--set hidden_size:=16'),
    # The same network, so gradients of 3.6 MB are summed, but few environments: all learners learn
    # at the same moment, and the less they compute, the less the cores limit the result. With many
    # processes on few cores, the last learner may start late.
    'learners': Shape('dummy/OBS28224-FPS50-v0', 'ALE/Pong-v5',
                      '--num-envs 4 --unroll-length 20 --batch-size 2 --set max_in_flight:=4 '
                      '--set hidden_size:=16 --set group_timeout:=600')}


def plan(table: str, options: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    from benchmarks.bench_train import arguments
    shape = SHAPES[table]
    words = [*shape.words.split(), '--seconds', str(options.seconds),
             '--env', shape.computing if options.computing else shape.sleeping,
             '--num-actors', str(ACTORS_EACH if table == 'learners' else 1)]
    if table == 'samplers':
        words += ['--unroll-length', str(SAMPLES[options.quick] // PER_T)]
    _, made, settings = arguments(words)
    return made, settings


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the checked options, with ``plans``: by table, the plan of a process and settings.

    A table that is left out has no numbers of processes.
    """
    parser = report.Parser('bench_scaling', __doc__, quick='in a minute or so, less exact')
    # MOST actors and one learner are the largest number of processes.
    for name, values, most in (
            ('samplers', ('1,2,5,10,20', '1,2'), MOST), ('actors', ('1,2,4,8,16', '1,4'), MOST),
            ('learners', ('1,2,4', '1,2'), (MOST + 1) // (1 + ACTORS_EACH))):
        parser.numbers(f'--{name}', '', values, (1, most))
    parser.add_argument('--only', choices=TABLES, help='one of the three tables')
    parser.add_argument('--computing', action='store_true',
                        help='HalfCheetah-v5 and ALE/Pong-v5 instead of environments that sleep')
    parser.number('--seconds', float, 'of each measurement at least, and one update', (8.0, 1.5),
                  (0.5, 3600))
    parser.number('--rounds', int, 'measurements of each', (2, 1), (1, 1000))
    options = parser.complete(words)
    for name in TABLES:
        counts = sorted(getattr(options, name))
        if name != 'actors' and counts[0] != 1:
            raise ValueError(f'--{name}: there is no 1, and speed-ups are over one')
        setattr(options, name, tuple(counts) if options.only in (None, name) else ())
    options.plans = {table: plan(table, options) for table in TABLES}
    return options


Runs = dict[tuple[str, int], list[dict[str, Any]]]


def measure(options: argparse.Namespace) -> tuple[Runs, dict[str, str]]:
    """Return the runs by table and number of processes, and by such a cell why one failed."""
    from benchmarks import graph

    # The tables take turns.
    counts = {name: getattr(options, name) for name in TABLES}
    cells = [(name, counts[name][at]) for at in range(max(map(len, counts.values())))
             for name in TABLES if at < len(counts[name])]

    def one_run(cell: tuple[str, int], number: int) -> dict[str, Any]:
        name, processes = cell
        plan = options.plans[name][0]
        found = graph.run_graph(
            replace(plan, num_actors=processes * plan.num_actors,
                    num_learners=processes if name == 'learners' else 1), reports)
        report.log(f'round {number + 1}: {processes} {name}: {found["steps_per_s"]:,.0f} agent '
                   'steps/s')
        return found

    with graph.listener() as reports:
        found, failed = report.collect(cells, options.rounds, one_run)
    problems = {f'{processes} {name}': text for (name, processes), text in failed.items()}
    enough = {'samplers': ('samplers', 1) in found, 'learners': ('learners', 1) in found,
              'actors': any(name == 'actors' for name, _ in found)}
    if not all(enough[name] for name in TABLES if counts[name]):
        raise RuntimeError('; '.join(f'{cell}: {text}' for cell, text in problems.items()))
    return found, problems


def result(options: argparse.Namespace, runs: Runs) -> dict[str, Any]:
    """Return the figures of the cells that were run; a table that was left out has no keys."""
    settings = {name: values for name, (_, values) in options.plans.items()}
    samples = SAMPLES[options.quick]
    return {
        **{f'{name[:-1]}_env': settings[name]['env_id'] for name in TABLES},
        'samples': samples, 'seconds': options.seconds, 'rounds': options.rounds,
        'actors_each': ACTORS_EACH, 'settings': settings,
        **{name: rows(name, {n: runs[name, n] for n in getattr(options, name)
                             if (name, n) in runs}, samples)
           for name in TABLES if getattr(options, name)}}


def rows(table: str, runs: Mapping[int, Sequence[Mapping[str, Any]]], samples: int,
         ) -> list[dict[str, Any]]:
    """Return the figures by number of processes, medians of the rounds.

    ``total_s`` of samplers is how long they collect so many samples and the learner learns from
    them, one after the other as in WALL-E; here both run at the same time. ``speedup`` is over one
    process; ``seed`` has both figures of the seed.
    """
    def total_s(run: Mapping[str, Any]) -> float:
        return (_share(run, ACTING, _COLLECTING) + _share(run, TRAINING, _LEARNING)
                ) * samples / float(run['steps_per_s'])

    found = [{table: n, 'steps_per_s': statistics.median(each['steps_per_s'] for each in rounds),
              **({'total_s': statistics.median(map(total_s, rounds))} if table == 'samplers'
                 else {})} for n, rounds in runs.items()]
    if table not in SEED:
        return found
    seed, figure = SEED[table], 'total_s' if table == 'samplers' else 'steps_per_s'

    def gains(value: float, one: float) -> dict[str, float]:
        return {figure: value, 'speedup': one / value if figure == 'total_s' else value / one}

    return [{**row, **gains(row[figure], found[0][figure]),
             'seed': gains(seed[n], seed[1]) if (n := row[table]) in seed else None}
            for row in found]


def _share(run: Mapping[str, Any], thread: str, phases: Sequence[str]) -> float:
    """Return the share of phases, the mean of all nodes with such a thread."""
    return statistics.mean(sum(threads[thread].get(phase, 0.0) for phase in phases)
                           for threads in run['time_shares'].values() if thread in threads)


def markdown(found: Mapping[str, Any]) -> str:
    lines = []
    for name in TABLES:
        if name in found:
            each = f', {found["actors_each"]} actors each' if name == 'learners' else ''
            lines += [f'{name}: {found[f"{name[:-1]}_env"]}{each}', '', *report.columns(
                {name: f'{{{name}}}', **_COLUMNS[name]}, found[name]), '']
    return '\n'.join([
        *lines, f"In brackets the seed's; samplers: {found['samples']:,} samples; "
        f'{found["cores"]} cores, rounds: {found["rounds"]}, of {found["seconds"]:g} s each.'])


def main() -> int:
    """Measure, and print the tables or one JSON object."""
    return report.run('bench_scaling', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> int:
    from benchmarks.graph import own_domain
    with own_domain(configure=True):
        runs, problems = measure(options)
    found = {'cores': len(os.sched_getaffinity(0)), 'problems': problems, **result(options, runs)}
    report.deliver('scaling', found, options, markdown)
    return report.EXIT_FAILED if problems else 0
