"""
``ros2 run vdl_ros plot RUN... [--compare RUN...]``: learning curves of runs as a picture.

No node: it reads the folders of runs and writes a file. Options: ``--help``, docs/runs.md.

Exit status: 0 when the picture was written, 2 when not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from vdl_ros.rl.plots.curves import BANDS, Curve, make_curve
from vdl_ros.rl.runs.run_groups import check_group, environments, group_labels
from vdl_ros.rl.runs.run_series import QUANTITIES, X_AXES, RecordedRun

EXIT_BAD_INPUT = 2
ENDINGS = ('.png', '.pdf', '.svg')


class _Parser(argparse.ArgumentParser):
    """One whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_INPUT, f'{self.prog}: {message}\n')


def parse(args: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = _Parser(
        prog='plot', description='Draw learning curves: for each group of runs their mean, and a '
        'band that tells how far they are apart.')
    add = parser.add_argument
    add('runs', type=Path, nargs='+', metavar='RUN',
        help='folders of runs, or their progress.csv: one experiment with several seeds')
    add('--compare', type=Path, nargs='+', action='append', default=[], metavar='RUN',
        help='another group, drawn as another line; may be repeated')
    add('--x', choices=list(X_AXES), default='steps', help='[steps]')
    add('--y', default='return', metavar='NAME',
        help=f'{", ".join(QUANTITIES)}, a column of progress.csv, or a tag of TensorBoard such '
        'as losses/entropy [return]')
    add('--smooth', type=_smoothing, default=0.02, metavar='N',
        help='moving mean over N points of each run, or over a share of them if N is below 1; '
        '1: none [0.02]')
    add('--band', choices=list(BANDS), default='std',
        help='over the runs of a group: standard deviation, smallest to largest, or none [std]')
    add('--raw', action='store_true', help='show each run too, faint, as it was recorded')
    add('--label', action='append', default=[], metavar='TEXT',
        help='of a group, in their order; repeated for each [what they differ in]')
    add('--title', metavar='TEXT', help='[the environment]')
    add('--width', type=_width, default=8.0, metavar='INCHES', help='of the picture [8]')
    add('--output', type=Path, default=Path('plot.png'), metavar='FILE',
        help='ends in .png, .pdf or .svg [plot.png]')
    return parser.parse_args(args)


def main(args: Sequence[str] | None = None) -> int:
    """Draw, and return the exit status."""
    options = parse(args)
    try:
        _check_output(options.output)
        groups = [[RecordedRun(path) for path in paths]
                  for paths in (options.runs, *options.compare)]
        for group in groups:
            check_group(group)
        if options.label and len(options.label) != len(groups):
            raise ValueError(f'--label: {len(options.label)} given; allowed: one for each '
                             f'group of runs, {len(groups)}')
        labels = options.label or group_labels(groups)
        curves = [_curve(label, group, options)
                  for label, group in zip(labels, groups, strict=True)]
        _draw(curves, environments(groups), options)
    except (ValueError, OSError) as error:
        print(f'plot: {" ".join(str(error).split())}', file=sys.stderr)
        return EXIT_BAD_INPUT
    print(options.output)
    return 0


def _curve(label: str, group: Sequence[RecordedRun], options: argparse.Namespace) -> Curve:
    runs = [run.series(options.x, options.y) for run in group]
    try:
        return make_curve(label, runs, options.smooth, options.band)
    except ValueError as error:
        raise ValueError(f'{", ".join(str(run.path) for run in group)}: no {options.x} in '
                         f'common: {error}') from None


def _draw(curves: Sequence[Curve], env_ids: Sequence[str], options: argparse.Namespace) -> None:
    """Draw; imported late, since matplotlib takes a second."""
    from vdl_ros.rl.plots.curve_plot import draw_curves
    title = options.title
    if title is None:
        title = ' and '.join(env_ids) or options.y
    if len(env_ids) > 1:
        title += ' (different environments)'
    draw_curves(curves, options.output, x=options.x, y=options.y, title=title,
                note=_note(curves, options.band), width=options.width, raw=options.raw)


def _note(curves: Sequence[Curve], band: str) -> str:
    """Return what lines and bands are, in words."""
    windows = sorted({window for curve in curves for window in curve.windows})
    several = any(len(curve.runs) > 1 for curve in curves)
    said = []
    if several:
        said.append('line: mean of the runs, as far as the shortest goes')
        if band != 'none':
            said.append(f'band: {BANDS[band]}')
    if windows[-1] > 1:
        points = ' to '.join(str(each) for each in dict.fromkeys((windows[0], windows[-1])))
        said.append(f'moving mean of {points} points')
    return '; '.join(said)


def _check_output(path: Path) -> None:
    """
    Refuse early what could not be written in the end.

    Raises:
        ValueError: no picture can have this name, or its folder is not there.
    """
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(f'--output: {path} does not end in {", ".join(ENDINGS)}')
    if not path.parent.is_dir():
        raise ValueError(f'--output: {path.parent} is no folder')
    if path.is_dir():
        raise ValueError(f'--output: {path} is a folder')


def _smoothing(text: str) -> float:
    """Return points as an int, a share as a float."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if number >= 1 and number.is_integer() and number < 1e9:
        return int(number)
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(
            f'{text!r} is not allowed: a number of points from 1, or a share between 0 and 1')
    return number


def _width(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 4 <= number <= 40:
        raise argparse.ArgumentTypeError(f'{text!r} is not allowed: from 4 to 40 inches')
    return number


if __name__ == '__main__':
    sys.exit(main())
