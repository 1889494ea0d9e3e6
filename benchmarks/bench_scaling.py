"""
How a training grows with its processes: samplers of an iteration, actors of one learner.

    ros2 run vdl_ros bench_scaling [--computing] [--picture FILE] [--quick] [--json] ...

Two tables, both of the graph of ``train.launch.py``, a process for the learner and for each
actor, DDS between them. The first is WALL-E's: how long 1, 2, 5, 10, 20 samplers collect 20,000
samples, and how long the learner learns from them. The second is impala_horovod_gym's: agent
steps/s by actors, and how many one learner takes in at most, to which a law is fitted
(scaling_fit.py). What is run is in scaling_runs.py.

Environments sleep, unless ``--computing`` says otherwise: twenty that compute need twenty cores.
All the rest is real, and needs cores as well, the actors' networks above all; so the cores in use
stand beside each figure. Where they are all that the machine has, the machine is full, not the
learner, and with more actors the speed may even fall, which no law here describes.

WALL-E collects, then learns; here both go on at the same time. Comparable are the times that
samplers and learner are at it, and their sum, which is what an iteration takes one after the
other. What it takes here is a figure of its own. An iteration is one V-trace update here, and 20
epochs of PPO there: only the course of learning times can be compared, not their size.

Figures are of a graph that is under way: the warm-up begins when every actor has delivered.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import report

EXIT_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 1, 2, 130

# Of options that are not given: usual, and with --quick.
DEFAULTS: dict[str, tuple[Any, Any]] = {
    'samplers': ((1, 2, 5, 10, 20), (1, 2)), 'actors': ((1, 2, 4, 8, 16), (1, 4)),
    'samples': (20_000, 1_600), 'seconds': (8.0, 1.5), 'rounds': (2, 1)}


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """
    Return the options, checked, with ``plans``: those of one process, and settings, by table.

    Raises:
        ValueError: one that is not allowed; the message is one line.
    """
    from scaling_runs import ACTORS, MOST, PER_T, SAMPLERS, plan

    options = _parser().parse_args(words)
    for name, (usual, quick) in DEFAULTS.items():
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else usual)
    for name, high in (('seconds', 3600), ('rounds', 1000)):
        low = 0.5 if name == 'seconds' else 1
        if not low <= getattr(options, name) <= high:
            raise ValueError(f'--{name}: {getattr(options, name)} is not allowed: {low} to {high}')
    for name in ('samplers', 'actors'):
        counts = options.__dict__[name] = _counts(name, getattr(options, name), MOST)
        if name == 'samplers' and counts[0] != 1:
            raise ValueError('--samplers: there is no 1, and speed-ups are over one')
        if name == 'actors' and len(counts) < 2:
            raise ValueError('--actors: one number is too few for a law')
    most = 10_000 * PER_T
    if not PER_T <= options.samples <= most or options.samples % PER_T:
        raise ValueError(f'--samples: {options.samples} is not allowed: a multiple of {PER_T} '
                         f'from {PER_T} to {most}')
    report.check_output(options)
    if options.picture is not None:
        _check_picture(options.picture)
    options.plans = {
        shape.name: plan(
            shape, given or (shape.computing if options.computing else shape.sleeping),
            options.samples, options.seconds)
        for shape, given in ((SAMPLERS, options.sampler_env), (ACTORS, options.actor_env))}
    return options


def _counts(name: str, given: Sequence[int] | str, most: int) -> tuple[int, ...]:
    """Return numbers of processes, ascending."""
    if not isinstance(given, str):
        return tuple(given)
    try:
        found = sorted({int(word) for word in given.split(',')})
    except ValueError:
        found = []
    if not found or not 1 <= found[0] <= found[-1] <= most:
        raise ValueError(f'--{name}: {given!r} is not allowed: numbers from 1 to {most} with '
                         'commas between')
    return tuple(found)


def _check_picture(path: Path) -> None:
    from scaling_picture import kinds
    if path.suffix[1:].lower() not in kinds():
        raise ValueError(f'--picture: {path} is not allowed: a file that ends in one of '
                         f'{", ".join(kinds())}')
    if not path.absolute().parent.is_dir():
        raise ValueError(f'--picture: {path} is not allowed: there is no such folder')


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='bench_scaling', description=__doc__.splitlines()[1])
    parser.add_argument('--samplers', metavar='N,N', help='(1,2,5,10,20; quick: 1,2)')
    parser.add_argument('--actors', metavar='N,N', help='(1,2,4,8,16; quick: 1,4)')
    parser.add_argument('--samples', type=int, metavar='N',
                        help='of an iteration of the samplers (20000; quick: 1600)')
    parser.add_argument('--computing', action='store_true',
                        help='HalfCheetah-v5 and ALE/Pong-v5 instead of what sleeps')
    parser.add_argument('--sampler-env', metavar='ID', help='any other environment')
    parser.add_argument('--actor-env', metavar='ID', help='any other environment')
    parser.add_argument('--seconds', type=float,
                        help='of each measurement at least, and one update (8; quick: 1.5)')
    parser.add_argument('--rounds', type=int, help='measurements of each (2; quick: 1)')
    parser.add_argument('--quick', action='store_true', help='under a minute, less exact')
    parser.add_argument('--picture', type=Path, metavar='FILE', help='draw the law there')
    report.add_options(parser)
    return parser


Runs = dict[tuple[str, int], list[dict[str, Any]]]


def measure(options: argparse.Namespace) -> tuple[Runs, dict[str, str]]:
    """
    Return what the runs of each table and number of processes found, by round, and what failed.

    Failures are by table and number, with the reason; they leave the other figures as they are.

    Raises:
        RuntimeError: too little is left for the tables.
    """
    from scaling_runs import order
    from train_runs import Listener, run_graph

    found: Runs = {}
    problems: dict[str, str] = {}
    listener = Listener()
    try:
        for number in range(options.rounds):
            for cell in order(options.samplers, options.actors, number):
                name = cell.shape.name
                try:
                    run = run_graph(dataclasses.replace(
                        options.plans[name][0], num_actors=cell.processes), listener)
                except RuntimeError as error:
                    text = ' '.join(str(error).split())
                    problems[f'{cell.processes} {name}'] = text
                    print(f'round {number + 1}: {cell.processes} {name}: {text}',
                          file=sys.stderr, flush=True)
                    continue
                found.setdefault((name, cell.processes), []).append(run)
                print(f'round {number + 1}: {cell.processes} {name}: '
                      f'{run["steps_per_s"]:,.0f} agent steps/s', file=sys.stderr, flush=True)
    finally:
        listener.close()
    if problems and (
            ('samplers', 1) not in found or sum(name == 'actors' for name, _ in found) < 2):
        raise RuntimeError('; '.join(f'{cell}: {text}' for cell, text in problems.items()))
    return found, problems


def result(options: argparse.Namespace, runs: Runs) -> dict[str, Any]:
    """Return what is printed, without what is known of the machine; of cells that were run."""
    from scaling_runs import asleep
    from scaling_table import SEED_ACTORS, actor_row, law_of, sampler_row, with_speedups

    settings = {name: values for name, (_, values) in options.plans.items()}
    kind = {name: 'asleep' if asleep(values['env_id']) else 'computing'
            for name, values in settings.items()}
    samplers, actors = ([n for n in getattr(options, name) if (name, n) in runs]
                        for name in ('samplers', 'actors'))
    points = [(float(n), float(run['steps_per_s'])) for n in actors for run in runs['actors', n]]
    rows = [actor_row(n, runs['actors', n], kind['actors']) for n in actors]
    return {
        'sampler_env': settings['samplers']['env_id'],
        'actor_env': settings['actors']['env_id'],
        'samples': options.samples, 'seconds': options.seconds, 'rounds': options.rounds,
        'settings': settings,
        'samplers': with_speedups([
            sampler_row(n, runs['samplers', n], options.samples, kind['samplers'])
            for n in samplers]),
        'actors': rows,
        'most_steps_per_s': max(row['steps_per_s'] for row in rows),
        'law': law_of(points), 'seed_law': law_of(SEED_ACTORS)}


def main() -> int:
    """Measure, and print the tables or one JSON object."""
    try:
        options = arguments()
    except (ValueError, OSError) as error:
        print(f'bench_scaling: {error}', file=sys.stderr)
        return EXIT_BAD_INPUT
    from graph import own_domain
    from scaling_table import markdown

    from vdl_ros.ros import transport

    # As Ctrl-C, so that the measurement under way is ended as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with own_domain():
            transport.configure()
            runs, problems = measure(options)
    except KeyboardInterrupt:
        print('bench_scaling: interrupted', file=sys.stderr)
        return EXIT_INTERRUPTED
    except RuntimeError as error:
        print(f'bench_scaling: {error}', file=sys.stderr)
        return EXIT_FAILED
    found = {'benchmark': 'scaling', 'machine': report.machine(),
             'cores': len(os.sched_getaffinity(0)), 'problems': problems,
             **result(options, runs)}
    if options.picture is not None:
        from scaling_picture import draw
        draw(options.picture, found)
    report.deliver(found, options, markdown)
    return EXIT_FAILED if problems else 0


if __name__ == '__main__':
    sys.exit(main())
