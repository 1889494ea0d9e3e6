"""Plot of bench_scaling: measured speeds with their laws, and speed-ups of samplers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from benchmarks.scaling.fit import fit, law
from benchmarks.scaling.table import SEED_ACTORS, SEED_SAMPLERS

__all__ = ['draw', 'kinds']

_OURS, _SEED, _LINE = '#1f6feb', '#8a929c', '#24292f'


def kinds() -> list[str]:
    """Return the suffixes of files that can be written."""
    return sorted(FigureCanvasBase.get_supported_filetypes())


def draw(path: Path, found: Mapping[str, Any]) -> None:
    """Plot what ``bench_scaling --json`` prints.

    Two panels show steps/s by actors, measured and by the law, here and of impala_horovod_gym;
    the third the speed-up by samplers, here and of WALL-E.

    Args:
        path: the file, of one of :func:`kinds`.

    Raises:
        OSError: it cannot be written.
    """
    figure = Figure(figsize=(13.0, 4.2), dpi=110, layout='constrained')
    ours, seed, samplers = figure.subplots(1, 3)
    kind = found['actors'][0]['environments']
    _saturation(ours, found['law']['points'], _OURS, f'agent steps/s, environments {kind}')
    _saturation(seed, SEED_ACTORS, _SEED, 'agent steps/s, impala_horovod_gym, Pong on a GPU')
    _speedups(samplers, found['samplers'])
    for axes in (ours, seed, samplers):
        axes.grid(alpha=0.25)
        axes.spines[['top', 'right']].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path)


def _saturation(
    axes: Axes, points: Sequence[Sequence[float]], color: str, title: str,
) -> None:
    found = fit([(actors, speed) for actors, speed in points])
    end = 1.1 * max(found.most, min(found.knee, 2 * found.most))
    actors = np.linspace(end / 400, end, 400)
    axes.plot(actors, law(actors, found.per_actor, found.limit, found.sharpness), color=color,
              linewidth=1.8, label='law')
    axes.plot(*np.array(points, np.float64).T, 'o', color=color, markersize=5, label='measured')
    top = 1.15 * max(speed for _, speed in points)
    if found.reached and found.begun:
        axes.plot([0, found.knee, end], [0, found.limit, found.limit], color=_LINE,
                  linewidth=0.8, alpha=0.6, label=f'knee at {found.knee:.1f} actors')
        top = max(top, 1.1 * found.limit)
    axes.set_xlim(0, end)
    axes.set_ylim(0, top)
    axes.set_xlabel('actors of one learner')
    axes.set_title(title, loc='left', fontsize=10)


def _speedups(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    numbers = [row['samplers'] for row in rows]
    for name, style, label in (('collection', 'o-', 'collection'),
                               ('iteration', 's--', 'whole iteration')):
        axes.plot(numbers, [row[f'{name}_speedup'] for row in rows], style, color=_OURS,
                  markersize=4, label=f'{label}, environments {rows[0]["environments"]}')
    collection, total = ({n: figures(SEED_SAMPLERS[1]) / figures(each)
                          for n, each in SEED_SAMPLERS.items()}
                         for figures in (lambda pair: pair[0], sum))
    for values, style, label in ((collection, 'o-', 'collection'),
                                 (total, 's--', 'whole iteration')):
        axes.plot(list(values), list(values.values()), style, color=_SEED, markersize=4,
                  label=f'{label}, WALL-E')
    end = max(*numbers, *SEED_SAMPLERS)
    axes.plot([0, end], [0, end], color=_LINE, linewidth=0.8, alpha=0.6, label='linear')
    axes.set_xlim(0)
    axes.set_ylim(0)
    axes.set_xlabel('samplers')
    axes.set_title('speed-up over one sampler', loc='left', fontsize=10)
