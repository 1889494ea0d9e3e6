"""Plots of learning curves: of one run, and of groups of runs to compare."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray

from vdl_ros.common.files import atomic_file
from vdl_ros.rl.plots.curves import Curve

matplotlib.use('Agg')
# Labels are the user's text: a dollar sign does not start a formula.
_without_math = matplotlib.rc_context({'text.parse_math': False})

# Distinct in any colour vision and, by lightness, in grey; further curves repeat them in dashes.
_COLORS = ('#1f6feb', '#e8750a', '#12806a', '#b83280', '#8a6d1d', '#57606a')
_DASHES = ('-', '--', ':')
_GREY = '#57606a'
_X_LABELS = {'steps': 'agent steps', 's': 'time, s', 'minutes': 'time, minutes',
             'hours': 'time, hours'}
_Y_LABELS = {'return': 'return, mean of the last 100 episodes',
             'length': 'length in agent steps, mean of the last 100 episodes',
             'success': 'success rate of the last 100 episodes'}


@_without_math
def draw_curve(rows: Sequence[Mapping[str, float]], path: Path, *, title: str) -> None:
    """Draw the mean return of a run, from rows of progress.csv, with last value and time."""
    known = [row for row in rows if row['episodes'] > 0]
    figure = Figure(figsize=(6.4, 4.0), dpi=120, layout='constrained')
    axes = _axes(figure, 'steps', _Y_LABELS['return'])
    x, y = (np.array([row[name] for row in known]) for name in ('agent_steps', 'mean_return_100'))
    _line(axes, x, y, 0)
    last = known[-1] if known else None
    if last:
        axes.annotate(f'{last["mean_return_100"]:.1f}',
                      (last['agent_steps'], last['mean_return_100']),
                      textcoords='offset points', xytext=(-4, 6), ha='right', weight='bold')
        title = f'{title}   {last["wall_s"]:.0f} s'
    axes.set_xlim(left=0)
    axes.set_title(title, loc='left', fontsize=11)
    save_figure(figure, path)


@_without_math
def draw_curves(
    curves: Sequence[Curve], path: Path, *, x: str, y: str, title: str, note: str = '',
    width: float = 8.0, raw: bool = False,
) -> None:
    """Draw the line and the band of each group of runs, in the order of the legend.

    ``path`` is written whole or not at all; ``x`` is ``steps``, ``time`` (in s) or ``episodes``,
    ``y`` ``return``, ``length``, or a name to show unchanged; ``raw``: also draw each run.
    """
    counts = (f', {len(curve.runs)} runs' if len(curve.runs) > 1 else '' for curve in curves)
    labels = [_wrap(f'{curve.label}{count}', 13 * (width - 1.3))
              for curve, count in zip(curves, counts, strict=True)]
    title, note = _wrap(title, 9 * (width - 1)), _wrap(note, 15 * (width - 1))
    columns = _legend_columns(labels, width)
    # The height of the axes does not depend on the texts.
    room = 0.7 + 0.17 * _lines(note) + 0.2 * _lines(title) + 0.18 * sum(
        max(map(_lines, labels[row:row + columns])) for row in range(0, len(labels), columns))
    height = 0.5 * width
    figure = Figure(figsize=(width, height + room), dpi=150, layout='constrained')
    scale, unit = 1.0, x
    if x == 'time':
        scale, unit = _time_unit(max(run.x[-1] for each in curves for run in each.runs))
    axes = _axes(figure, unit, _wrap(_Y_LABELS.get(y, y), 15 * height))
    lines = []
    for number, curve in enumerate(curves):
        color = _COLORS[number % len(_COLORS)]
        if raw:
            for run in curve.runs:
                axes.plot(run.x / scale, run.y, color=color, linewidth=0.8, alpha=0.3, zorder=1.8)
        if curve.band is not None:
            axes.fill_between(curve.x / scale, *curve.band, color=color, alpha=0.16, linewidth=0,
                              zorder=1.5)
        lines.append(_line(axes, curve.x / scale, curve.line, number))
    axes.annotate(note, (0, 1), xycoords='axes fraction', xytext=(0, 6),
                  textcoords='offset points', fontsize=8.5, color=_GREY)
    axes.set_title(title, loc='left', fontsize=12, weight='bold', pad=8 + 12 * _lines(note))
    axes.set_xlim(left=0)
    # Half an inch under the axes, below the x label, where it hides no curve.
    legend = axes.legend(
        lines, [str(number) for number in range(len(lines))], loc='upper left',
        bbox_to_anchor=(0, 0), borderaxespad=0, borderpad=0,
        bbox_transform=axes.transAxes + ScaledTranslation(0, -0.5, figure.dpi_scale_trans),
        frameon=False, fontsize=9, handlelength=1.6, ncols=columns)
    # Set afterwards: matplotlib omits labels that start with an underscore.
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_text(label)
    save_figure(figure, path)


def format_steps(axes: Axes) -> None:
    """Write numbers from 1,000 on with a prefix; EngFormatter alone writes 0.5 as 500 m."""
    large = EngFormatter()
    axes.xaxis.set_major_formatter(lambda x, _: large(x) if abs(x) >= 1e3 else f'{x:g}')


def _axes(figure: Figure, x: str, y_label: str) -> Axes:
    axes = figure.add_subplot()
    axes.set_xlabel(_X_LABELS.get(x, x))
    axes.set_ylabel(y_label)
    format_steps(axes)
    axes.grid(alpha=0.25)
    axes.spines[['top', 'right']].set_visible(False)
    axes.margins(x=0.02, y=0.12)
    return axes


def _line(axes: Axes, x: NDArray[np.float64], y: NDArray[np.float64], number: int) -> Line2D:
    line, = axes.plot(x, y, color=_COLORS[number % len(_COLORS)], linewidth=2,
                      linestyle=_DASHES[number // len(_COLORS) % len(_DASHES)],
                      marker='o' if len(x) == 1 else '', zorder=2.5)
    return line


def _time_unit(seconds: float) -> tuple[float, str]:
    if seconds >= 2 * 3600:
        return 3600.0, 'hours'
    return (60.0, 'minutes') if seconds >= 10 * 60 else (1.0, 's')


def _wrap(text: str, letters: float) -> str:
    """Break lines wider than the axes, which would make the layout shrink the axes."""
    return '\n'.join(textwrap.wrap(text, int(letters)))


def _lines(text: str) -> int:
    return len(text.splitlines())


def _legend_columns(labels: Sequence[str], width: float) -> int:
    widest = max(len(line) for label in labels for line in label.splitlines() or ['']) + 6
    return max(1, min(len(labels), int(13 * (width - 1) / widest)))


def save_figure(figure: Figure, path: Path) -> None:
    with atomic_file(path) as partial:
        figure.savefig(partial, format=path.suffix[1:].lower())
