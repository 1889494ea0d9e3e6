"""Graphs of sessions, trials and experiments, in the arrangement of SLM-Lab's."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from vdl_ros.attacks.grid import Episodes
from vdl_ros.experiments.search import Outcome
from vdl_ros.experiments.spec import PARTS, WINDOW
from vdl_ros.rl.plots.curve_plot import draw_curves, save_figure
from vdl_ros.rl.plots.curves import Curve, Series, make_curve
from vdl_ros.rl.runs.recorded_run import RecordedRun

_COLOR, _GREY = '#1f6feb', '#57606a'
_SMOOTH = 0.02
# Least span of the axis of fitness and its parts, to each side.
_SPAN = 0.1


def curve_of(label: str, sessions: Sequence[Path]) -> Curve | None:
    """Return the curve of the sessions of a trial; None if they have nothing in common yet."""
    try:
        return make_curve(label, [RecordedRun(each).series('steps', 'return')
                                  for each in sessions], _SMOOTH, 'bootstrap', 'iqm')
    except ValueError:
        return None


def draw_session(folder: Path, episodes: Episodes) -> None:
    """Draw ``session_graph.png``: returns above, loss and exploration below."""
    figure = Figure(figsize=(7.0, 5.6), dpi=110, layout='constrained')
    above, below = figure.subplots(2, sharex=True)
    above.plot(episodes.steps, episodes.returns, color=_COLOR, linewidth=0.5, alpha=0.3)
    if len(episodes.returns) >= WINDOW:
        mean = np.convolve(episodes.returns, np.full(WINDOW, 1 / WINDOW), mode='valid')
        above.plot(episodes.steps[WINDOW - 1:], mean, color=_COLOR, linewidth=2)
    above.set_ylabel('return; mean of 100 episodes')
    run = RecordedRun(folder)
    series = [(tag.partition('/')[2], run.series('steps', tag))
              for tag in ('losses/loss', 'losses/entropy') if tag in run.names()]
    if 'exploration_start' in run.settings:
        # Epsilon or temperature of dqn.
        start, end, steps = (float(str(run.settings[f'exploration_{name}']))
                             for name in ('start', 'end', 'steps'))
        x = run.columns['agent_steps']
        series.append((f'exploration ({run.settings["exploration"]})',
                       Series(x, np.interp(x, [0.0, steps], [start, end]))))
    for (name, each), color, axes in zip(
            series, (_COLOR, _GREY), (below, below.twinx()), strict=False):
        axes.plot(each.x, each.y, color=color, linewidth=1)
        axes.set_ylabel(name, color=color)
    below.set_xlabel('agent steps')
    below.xaxis.set_major_formatter(EngFormatter())
    above.set_title(episodes.name, loc='left', fontsize=11)
    save_figure(figure, folder / 'session_graph.png')


def draw_trial(runs: Mapping[str, Sequence[Path]], path: Path, *, title: str) -> None:
    """Draw the interquartile mean and its interval over the sessions of a trial, by agent."""
    curves = [curve for agent, folders in runs.items()
              if (curve := curve_of(agent or 'sessions', folders)) is not None]
    if curves:
        draw_curves(curves, path, x='steps', y='return', title=title, raw=True,
                    note='line: interquartile mean; band: 95 % bootstrap interval')


def draw_experiment(outcomes: Sequence[Outcome], names: Sequence[str], path: Path) -> None:
    """Draw a dot for each complete trial: a row for what it scored, a column for each setting."""
    complete = [each for each in outcomes if each.value is not None]
    has_fitness = all('fitness' in each.record for each in complete)
    rows = ('fitness', *PARTS) if has_fitness else ('final_return',)
    size = (1.2 + 2.4 * len(names), 0.8 + (1.5 if has_fitness else 2.6) * len(rows))
    figure = Figure(figsize=size, dpi=110, layout='constrained')
    grid = figure.subplots(len(rows), len(names), squeeze=False, sharex='col', sharey='row')
    colors = [each.value for each in complete]
    for column, name in enumerate(names):
        x = _positions(grid[-1, column], name, [each.values[name] for each in complete])
        for row, part in enumerate(rows):
            axes = grid[row, column]
            y = [each.record[part] for each in complete]
            axes.scatter(x, y, c=colors, cmap='viridis', s=28, edgecolors='white', linewidths=0.5)
            axes.grid(alpha=0.25)
            if column == 0:
                axes.set_ylabel(part.replace('_', ' '))
                axes.ticklabel_format(axis='y', useOffset=False)
                # Noise must not look like a difference.
                if has_fitness and max(y) - min(y) < _SPAN:
                    middle = (max(y) + min(y)) / 2
                    axes.set_ylim(middle - _SPAN, middle + _SPAN)
    save_figure(figure, path)


def _positions(axes: Axes, name: str, values: Sequence[object]) -> list[float]:
    axes.set_xlabel(name)
    if all(isinstance(each, int | float) and not isinstance(each, bool) for each in values):
        numbers = [float(each) for each in values]  # type: ignore[arg-type]
        if min(numbers) > 0 and max(numbers) >= 20 * min(numbers):
            axes.set_xscale('log')
        else:
            axes.xaxis.set_major_locator(MaxNLocator(3))
        return numbers
    kinds = sorted({str(each) for each in values})
    axes.set_xticks(range(len(kinds)), kinds, rotation=30, ha='right')
    return [float(kinds.index(str(each))) for each in values]
