"""Train, search, score and draw what specs say: ``ros2 run vdl_ros experiment --help``.

A file has several specs: agent, environment, sessions, trials, and what to search. Results of
SPEC in FILE are in ``OUTPUT/FILE/SPEC/MODE``, with a page, ``index.html``; the same command goes
on with what was interrupted. Options and files: docs/experiments.md.

Exit status: 0 if all is complete, 1 if something failed or was interrupted, 2 for bad input, 3 if
the disk is full.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from vdl_ros.common.command_line import (
    EXIT_BAD_INPUT,
    OneLineParser,
    say,
    status_of,
    stop_on_signals,
    whole_number,
)
from vdl_ros.common.settings import suggestion
from vdl_ros.experiments.checker import find_files, read_specs
from vdl_ros.experiments.modes import MODES, Experiments
from vdl_ros.experiments.page import deliver_benchmark
from vdl_ros.experiments.spec import Spec

EXIT_FAILED = 1
# A spec, its mode, and the folder of a run that it has with `enjoy`.
Task = tuple[Spec, str, Path | None]


class BadInputError(ValueError):
    """Input that cannot be used, one line for each thing."""


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog='experiment', formatter_class=argparse.RawDescriptionHelpFormatter,
        description=(__doc__ or '').strip())
    add = parser.add_argument
    add('file', type=Path, nargs='?', metavar='FILE', help='file of specs')
    add('spec', nargs='?', metavar='SPEC', help='its name; benchmark runs all without it')
    add('--mode', choices=MODES, default='train', help='[train]')
    add('--at', type=Path, metavar='RUN', help='enjoy: folder of a run, a trial or an experiment')
    add('--check', type=Path, nargs='+', metavar='PATH',
        help='print the faults of files, or of all in folders')
    add('--trials', type=whole_number(1, 1_000_000), metavar='N', help="[the spec's]")
    add('--sessions', type=whole_number(1, 1000), metavar='N', help="[the spec's]")
    add('--jobs', type=whole_number(1, 1024), default=os.cpu_count() or 1, metavar='N',
        help='trainings at a time [the number of cores]')
    add('--output', type=Path, default=Path('runs'), metavar='FOLDER', help='[runs]')
    add('--storage', default='', metavar='URL',
        help='database of searches, which several hosts may share [a file]')
    add('--env_modules', default='', metavar='MODULES',
        help='modules that register environments, separated by commas')
    return parser


def main(args: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(args)
    options.output = options.output.absolute()
    if (options.file is None) == (options.check is None):
        parser.error('one of FILE and --check is needed')
    try:
        if options.check:
            return _check(find_files(options.check))
        tasks = _tasks(options)
    except (BadInputError, OSError) as error:
        for line in str(error).splitlines():
            print(f'experiment: {line}', file=sys.stderr)
        return EXIT_BAD_INPUT
    changes = {name: value for name, value in (
        ('trials', options.trials), ('sessions', options.sessions)) if value}
    stop = stop_on_signals()
    experiments = Experiments(
        options.output, options.jobs, stop, say, options.storage, options.env_modules)
    status = 0
    for spec, mode, at in tasks:
        if stop.is_set():
            status = max(status, EXIT_FAILED)
            break
        try:
            if not experiments.run(spec.with_meta(**changes), mode, at):
                status = max(status, EXIT_FAILED)
        except (ValueError, OSError) as error:
            print(f'experiment: {" ".join(str(error).split())}', file=sys.stderr)
            status = status_of(error)
    for folder in dict.fromkeys(options.output / spec.path.stem for spec, mode, _ in tasks
                                if mode == 'benchmark'):
        if folder.is_dir():
            try:
                print(deliver_benchmark(folder), end='')
            except ValueError as error:
                print(f'experiment: {error}', file=sys.stderr)
                status = EXIT_BAD_INPUT
    if stop.is_set() and status:
        print('experiment: interrupted; the same command goes on', file=sys.stderr)
    return status


def _check(files: Sequence[Path]) -> int:
    status = 0
    if not files:
        raise BadInputError('--check: there is no file *.yaml')
    for file in files:
        specs, faults = read_specs(file)
        wrong = [each for each in faults if not each.is_of_host]
        for fault in faults:
            print(fault if fault in wrong else f'{fault}; not checked', file=sys.stderr)
        if wrong:
            status = EXIT_BAD_INPUT
        else:
            print(f'{file}: {len(specs)} spec{"s" * (len(specs) != 1)}')
    return status


def _tasks(options: argparse.Namespace) -> list[Task]:
    specs, faults = read_specs(options.file)
    if faults:
        raise BadInputError('\n'.join(map(str, faults)))
    if options.spec is None:
        if options.mode != 'benchmark':
            raise BadInputError(f'{options.file}: the name of a spec is missing; there is '
                                f'{", ".join(specs)}')
        return [(spec, options.mode, None) for spec in specs.values()]
    if options.spec not in specs:
        raise BadInputError(f'{options.file}: no spec {options.spec!r}'
                            f'{suggestion(options.spec, specs)}; there is {", ".join(specs)}')
    return [(specs[options.spec], options.mode, options.at)]
