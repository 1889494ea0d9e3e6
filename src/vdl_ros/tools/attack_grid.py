"""Attack a trained policy in a grid of runs: ``ros2 run vdl_ros attack_grid --help``.

The 32 phases of rl-attack-vf (``attacks/grid.py``): the policy without an attack, frozen
under random noise, FGSM and timed FGSM, and re-trained on noise and on FGSM, which is attacked
again. With ``--defences`` instead policies that are made robust in several ways, each under the
same attacks (``attacks/grid.py``). Each phase is a run of its own in
``OUTPUT/seed-N/PHASE``. An interrupted grid goes on where it was. ``OUTPUT`` then has
``grid.json``, the table ``grid.md``, and figures.

Exit status: 0 if all phases are complete, 1 if one failed or was interrupted, 2 for bad input.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vdl_ros.attacks.grid import (
    THRESHOLDS,
    VALUES,
    Grid,
    Phase,
    chain,
    choose,
    defence_phases,
    defence_table,
    figures,
    make_phases,
    markdown,
    read_episodes,
    read_trace,
)
from vdl_ros.common.command_line import (
    OneLineParser,
    number_above_0,
    run_tool,
    say,
    stop_on_signals,
    whole_number,
)
from vdl_ros.common.files import json_lines, lock_folder, read_json, write_text
from vdl_ros.common.plain_yaml import dump_yaml
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import settings_of
from vdl_ros.envs.env_config import EnvConfig, EnvModulesConfig
from vdl_ros.recipes.config_file import of_saved
from vdl_ros.rl.runs.checkpoint import load_checkpoint
from vdl_ros.rl.settings import ALGORITHM_SETTINGS, TrainConfig

EXIT_FAILED = 1
_SETTINGS = (EnvConfig, EnvModulesConfig, TrainConfig, *ALGORITHM_SETTINGS.values())


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog='attack_grid', formatter_class=argparse.RawDescriptionHelpFormatter,
        description=(__doc__ or '').strip(), epilog='phases:\n  ' + '\n  '.join(make_phases()))
    add = parser.add_argument
    add('--env', metavar='ID', help='the environment that the policies must be of [any]')
    add('--init', type=Path, nargs='+', required=True, metavar='CHECKPOINT',
        help='trained policies; several, such as those of several seeds, give intervals')
    add('--output', type=Path, required=True, metavar='FOLDER', help='of all runs and figures')
    add('--phases', nargs='+', default=[], metavar='PHASE',
        help='only these, and those that they build on [all]')
    add('--defences', action='store_true',
        help='defences under the same attacks, instead of the phases below')
    add('--scale', type=number_above_0, default=1.0, metavar='S',
        help='factor of all sizes, which are those of images from 0 to 1 [1]')
    add('--value-thresholds', type=float, nargs=2, default=THRESHOLDS, metavar='V',
        help='values of states above which fgsm_vf injects [{:g} {:g}]'.format(*THRESHOLDS))
    add('--learned-steps', type=whole_number(1, 10**12), default=1_000_000, metavar='N',
        help='agent steps of a phase that learns [1000000]')
    add('--frozen-steps', type=whole_number(1, 10**12), default=100_000, metavar='N',
        help='agent steps of one that does not [100000]')
    add('--jobs', type=whole_number(1, 1024), default=os.cpu_count() or 1, metavar='N',
        help='phases at a time [the number of cores]')
    add('--set', action='append', default=[], metavar='NAME:=VALUE',
        help='another setting of all phases; may be repeated')
    add('--dry-run', action='store_true', help='print the commands of what is not complete')
    return parser


def main(args: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(args)
    return run_tool('attack_grid', lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    found = [load_checkpoint(path) for path in options.init]
    for path, each in zip(options.init, found, strict=True):
        if options.env not in (None, was := each['config'].get('env_id')):
            raise ValueError(f'--env: {options.env!r} is not allowed: {path} is of {quoted(was)}')
    configs = [{name: value for name, value in of_saved(each['config']).items()
                if name in settings_of(*_SETTINGS)} for each in found]
    # Of images if the policy has convolutions.
    images = all(any(weight.dim() == 4 for weight in each['learner']['policy'].values())
                 for each in found)
    phases = defence_phases(options.scale, images=images) \
        if options.defences else make_phases(options.scale, options.value_thresholds)
    grid = Grid(
        options.output, options.init, choose(phases, options.phases), options.learned_steps,
        options.frozen_steps, _more(options.set), log=say)
    if options.dry_run:
        print('\n'.join(' '.join(grid.command(seed, phase)) for phase in grid.phases
                        for seed in range(1, len(configs) + 1)
                        if grid.summary(seed, phase) is None))
        return 0
    _lock = lock_folder(options.output)
    _verify_same(grid)
    for seed, config in enumerate(configs, 1):
        grid.config(seed).parent.mkdir(parents=True, exist_ok=True)
        write_text(grid.config(seed), dump_yaml(config))
    stop = stop_on_signals()
    failures = list(grid.run(options.jobs, stop))
    _deliver(grid, phases, defences=options.defences)
    for failure in failures:
        print(f'attack_grid: {failure}', file=sys.stderr)
    if stop.is_set():
        print('attack_grid: interrupted; the same command goes on', file=sys.stderr)
    return EXIT_FAILED if failures or stop.is_set() else 0


def _verify_same(grid: Grid) -> None:
    """Raise a ValueError if complete phases learned otherwise: attacks on them would be old."""
    path = grid.output / 'grid.json'
    before = read_json(path)
    for name, value in _of_learning(grid).items():
        if before.get('figures') and before.get(name, value) != value:
            raise ValueError(f'{name}: {quoted(value)} is not allowed: the phases of {path} have '
                             f'{quoted(before[name])}; choose another --output')


def _of_learning(grid: Grid) -> dict[str, Any]:
    return {'init': [os.path.relpath(path, grid.output) for path in grid.policies],
            'learned_steps': grid.learned_steps, 'settings': grid.settings}


def _more(texts: Sequence[str]) -> dict[str, str]:
    """Return settings NAME:=VALUE by name; ValueError for one of another form."""
    found = {}
    for text in texts:
        name, separator, value = text.partition(':=')
        # Of an attack the phases set all but this.
        if not separator or name not in (*settings_of(*_SETTINGS), 'adversarial_steps'):
            raise ValueError(f'--set: {text!r} is not allowed: NAME:=VALUE with a setting of '
                             'docs/settings.md')
        found[name] = value
    return found


def _deliver(grid: Grid, phases: Mapping[str, Phase], *, defences: bool) -> None:
    seeds = range(1, len(grid.policies) + 1)
    summaries = {phase.name: [each for seed in seeds
                              if (each := grid.summary(seed, phase)) is not None]
                 for phase in grid.phases}
    found = figures(grid.phases, summaries)
    _draw(grid, phases)
    write_text(grid.output / 'grid.json', json_lines(
        {**_of_learning(grid), 'frozen_steps': grid.frozen_steps, 'figures': found}) + '\n')
    text = markdown(found)
    if defences and (rows := defence_table(found)):
        text += f'\n\n{rows}'
    write_text(grid.output / 'grid.md', text + '\n')
    print(text)


def _draw(grid: Grid, phases: Mapping[str, Phase]) -> None:
    """Draw the returns of each complete phase and of those before it, and the recorded values."""
    # Imported here because matplotlib takes a second.
    from vdl_ros.attacks.plots import draw_returns, draw_values

    for seed in range(1, len(grid.policies) + 1):
        folder = grid.output / 'figures' / f'seed-{seed}'
        folder.mkdir(parents=True, exist_ok=True)
        complete = {phase.name for phase in grid.phases if grid.summary(seed, phase) is not None}
        for name in complete:
            draw_returns(
                [read_episodes(grid.folder(seed, each.name), each.name)
                 for each in chain(phases, name) if each.name in complete],
                folder / name, title=name)
        traces = [read_trace(grid.folder(seed, name), name) for name in sorted(complete)
                  if name.startswith(VALUES)]
        if found := [trace for trace in traces if trace is not None]:
            draw_values(found, folder / 'values', title='value and return by step')
