"""The learning curve of one run as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

__all__ = ['draw_curve']

matplotlib.use('Agg')


def draw_curve(rows: Sequence[Mapping[str, float]], path: Path, *, title: str) -> None:
    """
    Draw mean return against agent steps.

    Args:
        rows: of progress.csv, with agent_steps, wall_s and mean_return_100.
        path: the PNG to write.
        title: the environment.
    """
    known = [row for row in rows if row['episodes'] > 0]
    figure = Figure(figsize=(6.4, 4.0), dpi=120, layout='constrained')
    axes = figure.add_subplot()
    axes.plot([row['agent_steps'] for row in known], [row['mean_return_100'] for row in known],
              color='#1f6feb', linewidth=2)
    axes.set_xlabel('agent steps')
    axes.set_ylabel('return, mean of the last 100 episodes')
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.grid(alpha=0.25)
    axes.spines[['top', 'right']].set_visible(False)
    last = known[-1] if known else None
    if last:
        axes.annotate(f'{last["mean_return_100"]:.1f}',
                      (last['agent_steps'], last['mean_return_100']),
                      textcoords='offset points', xytext=(-4, 6), ha='right', weight='bold')
        title = f'{title}   {last["wall_s"]:.0f} s'
    axes.set_title(title, loc='left', fontsize=11)
    axes.margins(y=0.12)
    figure.savefig(path)
