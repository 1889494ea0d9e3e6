"""Plots learning curves of runs: ``ros2 run vdl_ros plot RUN... [--compare RUN...]``.

It reads the folders of runs and writes an image. Options: ``--help``, docs/runs.md.

Exit status: 0 if the image was written, else 2.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from vdl_ros.common.command_line import OneLineParser, run_tool
from vdl_ros.rl.plots.curves import BANDS, LINES, Curve, make_curve
from vdl_ros.rl.runs.recorded_run import (
    QUANTITIES,
    X_AXES,
    RecordedRun,
    check_group,
    environments,
    group_labels,
)

ENDINGS = ('.png', '.pdf', '.svg')


def parse(args: Sequence[str] | None) -> argparse.Namespace:
    parser = OneLineParser(
        prog='plot', description='Plot learning curves: for each group of runs the mean, and a '
        'band that shows their spread.')
    add = parser.add_argument
    add('runs', type=Path, nargs='+', metavar='RUN',
        help='folders of runs, folders with several of them, or progress.csv: one experiment with '
        'several seeds')
    add('--compare', type=Path, nargs='+', action='append', default=[], metavar='RUN',
        help='another group, plotted as another line; may be repeated')
    add('--x', choices=list(X_AXES), default='steps', help='[steps]')
    add('--y', default='return', metavar='NAME',
        help=f'{", ".join(QUANTITIES)}, a column of progress.csv, or a tag of TensorBoard such '
        'as losses/entropy [return]')
    add('--smooth', type=_smoothing, default=0.02, metavar='N',
        help='moving mean over N points of each run, or over a fraction of them if N is below '
        '1; 1: none [0.02]')
    add('--line', choices=list(LINES), default='mean',
        help='over the runs of a group: mean, with a band of the standard deviation, or '
        'interquartile mean, with that of its 95 %% bootstrap interval [mean]')
    add('--raw', action='store_true', help='also plot each run without smoothing')
    add('--label', action='append', default=[], metavar='TEXT',
        help='label of a group, once for each in their order [the settings that differ]')
    add('--output', type=Path, default=Path('plot.png'), metavar='FILE',
        help='.png, .pdf or .svg [plot.png]')
    return parser.parse_args(args)


def main(args: Sequence[str] | None = None) -> int:
    options = parse(args)
    return run_tool('plot', lambda: _plot(options))


def _plot(options: argparse.Namespace) -> None:
    output = options.output
    if output.suffix.lower() not in ENDINGS:
        raise ValueError(f'--output: {output} does not end in {", ".join(ENDINGS)}')
    if not output.parent.is_dir():
        raise ValueError(f'--output: {output.parent} is not a folder')
    if output.is_dir():
        raise ValueError(f'--output: {output} is a folder')
    groups = [[run for path in paths for run in RecordedRun.at(path)]
              for paths in (options.runs, *options.compare)]
    for group in groups:
        check_group(group)
    if options.label and len(options.label) != len(groups):
        raise ValueError(f'--label: {len(options.label)} given; allowed: one for each '
                         f'group of runs, {len(groups)}')
    labels = options.label or group_labels(groups)
    curves = [_curve(label, group, options) for label, group in zip(labels, groups, strict=True)]
    _draw(curves, environments(groups), options)
    print(output)


def _curve(label: str, group: Sequence[RecordedRun], options: argparse.Namespace) -> Curve:
    runs = [run.series(options.x, options.y) for run in group]
    try:
        return make_curve(label, runs, options.smooth, options.line)
    except ValueError as error:
        raise ValueError(f'{", ".join(str(run.path) for run in group)}: no {options.x} in '
                         f'common: {error}') from None


def _draw(curves: Sequence[Curve], env_ids: Sequence[str], options: argparse.Namespace) -> None:
    # Imported here because matplotlib takes a second.
    from vdl_ros.rl.plots.curve_plot import draw_curves
    title = ' and '.join(env_ids) or options.y
    if len(env_ids) > 1:
        title += ' (different environments)'
    draw_curves(curves, options.output, x=options.x, y=options.y, title=title,
                note=_note(curves, options.line), raw=options.raw)


def _note(curves: Sequence[Curve], line: str) -> str:
    windows = sorted({window for curve in curves for window in curve.windows})
    several = any(len(curve.runs) > 1 for curve in curves)
    parts = []
    if several:
        parts += [f'line: {LINES[line]} of the runs, to the end of the shortest',
                  f'band: {BANDS[line]}']
    if windows[-1] > 1:
        points = ' to '.join(str(each) for each in dict.fromkeys((windows[0], windows[-1])))
        parts.append(f'moving mean of {points} points')
    return '; '.join(parts)


def _smoothing(text: str) -> float:
    """Parse a number of points as an int, or a fraction as a float."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if number >= 1 and number.is_integer() and number < 1e9:
        return int(number)
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(
            f'{text!r} is not allowed: a number of points from 1, or a fraction between 0 and 1')
    return number


if __name__ == '__main__':
    sys.exit(main())
