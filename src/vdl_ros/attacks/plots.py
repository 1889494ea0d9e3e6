"""Plots of the grid, by phase and along an attacked episode, and of decision boundaries.

The style of returns is that of rl-attack-vf: each return faint, and their mean over 101 episodes,
smoothed by a polynomial of degree 3 over 51 (Savitzky and Golay 1964); a line where a phase ends.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter
from numpy.typing import NDArray

from vdl_ros.attacks.boundary import Boundary
from vdl_ros.attacks.grid import Episodes, Trace
from vdl_ros.common.files import atomic_file
from vdl_ros.rl.plots.curves import moving_mean

Array = NDArray[np.float64]

#: Episodes of the moving mean, and points and degree of the polynomial.
_MEAN, _POINTS, _DEGREE = 101, 51, 3
_BLUE, _GREY = '#1f6feb', '#57606a'
# Okabe and Ito's colours, which people with colour blindness can tell apart.
_COLOURS = ('#56b4e9', '#e69f00', '#009e73', '#f0e442', '#cc79a7', '#0072b2', '#d55e00', '#999999')
_ENDINGS = ('.png', '.pdf', '.svg')


def smoothed(returns: Array) -> Array:
    """Return the returns [N] averaged over 101 episodes and smoothed, [N].

    At both ends the windows are as wide as there is room on both sides.
    """
    mean = moving_mean(returns, _MEAN)
    found: Array = mean.copy()
    half = _POINTS // 2
    x = np.arange(-half, half + 1, dtype=np.float64)
    # The value at 0 of the polynomial that fits best is linear in the points.
    kernel = np.linalg.pinv(np.vander(x, _DEGREE + 1, increasing=True))[0]
    if len(mean) >= _POINTS:
        found[half:len(mean) - half] = np.convolve(mean, kernel[::-1], mode='valid')
    return found


def draw_returns(phases: Sequence[Episodes], path: Path, *, title: str) -> None:
    """Draw the returns of phases in their order to ``path``.png, .pdf and .svg."""
    figure = Figure(figsize=(8.0, 4.0), dpi=150, layout='constrained')
    axes = figure.add_subplot()
    begin = 0.0
    for number, phase in enumerate(phases):
        if not len(phase.steps):
            continue
        x = begin + phase.steps
        axes.plot(x, phase.returns, color=_BLUE, linewidth=0.6, alpha=0.3)
        axes.plot(x, smoothed(phase.returns), color=_BLUE, linewidth=2)
        axes.annotate(phase.name, (begin, 1.0), xycoords=('data', 'axes fraction'),
                      xytext=(3, -4), textcoords='offset points', rotation=90, ha='left', va='top',
                      fontsize=8, color=_GREY)
        begin = float(x[-1])
        if number < len(phases) - 1:
            axes.axvline(begin, color=_GREY, linewidth=1)
    axes.set_xlabel('agent steps')
    axes.set_ylabel('return')
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.set_title(title, loc='left', fontsize=11)
    axes.spines[['top', 'right']].set_visible(False)
    axes.set_xlim(left=0)
    _save(figure, path)


def draw_values(traces: Sequence[Trace], path: Path, *, title: str) -> None:
    """Draw value and cumulative reward of episodes by step to ``path``.png, .pdf and .svg."""
    figure = Figure(figsize=(8.0, 1.0 + 2.4 * len(traces)), dpi=150, layout='constrained')
    for axes, trace in zip(figure.subplots(len(traces), squeeze=False)[:, 0], traces, strict=True):
        step = np.arange(len(trace.values))
        axes.plot(step, trace.values, color=_BLUE, linewidth=1)
        axes.set_ylabel('value', color=_BLUE)
        axes.set_title(trace.name, loc='left', fontsize=10)
        axes.fill_between(step, 0, 1, where=trace.injected, transform=axes.get_xaxis_transform(),
                          color='#e8750a', alpha=0.12, linewidth=0)
        other = axes.twinx()
        other.plot(step, trace.returns, color=_GREY, linewidth=1)
        other.set_ylabel('cumulative reward', color=_GREY)
    axes.set_xlabel('step of the episode; shaded: attacked')
    figure.suptitle(title, x=0.01, ha='left', fontsize=11)
    _save(figure, path)


def draw_boundary(
    boundary: Boundary, names: Sequence[str], paths: Sequence[Path], *, channels_last: bool,
) -> None:
    """Write a plot of one boundary to ``paths``, such as .png and .pdf."""
    figure = Figure(figsize=(8.0, 5.2), layout='constrained')
    pictures = boundary.images.ndim == 4
    axes = figure.subplot_mosaic(
        [['map', 'map', 'map', each] for each in 'abc'] if pictures else [['map']])
    plane, reach = axes['map'], boundary.axis[-1]
    colours = [_COLOURS[index % len(_COLOURS)] for index in range(len(names))]
    plane.imshow(
        boundary.actions, origin='lower', extent=(-reach, reach, -reach, reach),
        interpolation='nearest', cmap=ListedColormap(colours),
        norm=BoundaryNorm(np.arange(len(names) + 1) - 0.5, len(names)))
    for x, y, marker, size in ((0, 0, 'x', 10), (boundary.norm, 0, 's', 8),
                               (0, boundary.norm, 'o', 8)):
        plane.plot(x, y, marker, color='black', markersize=size, fillstyle='none',
                   markeredgewidth=2)
    plane.set(xlabel='along the attack, L2', ylabel='along random noise, L2',
              title=f'step {boundary.step}')
    shown = np.unique(boundary.actions)
    plane.legend(handles=[Patch(color=colours[action], label=names[action]) for action in shown],
                 loc='upper left', framealpha=0.9)
    titles = ('x  observation', '□  attack', '○  random noise')
    for name, image, title in zip('abc', boundary.images, titles, strict=True):
        if pictures:
            axes[name].imshow(_shown(image, channels_last), cmap='gray', vmin=0, vmax=1)
            axes[name].set_title(title, fontsize=9)
            axes[name].set(xticks=[], yticks=[])
    for path in paths:
        figure.savefig(path, dpi=120)


def _shown(image: NDArray[np.float32], channels_last: bool) -> NDArray[np.float32]:
    """Return an image that matplotlib draws: colours, or the newest of stacked frames."""
    if not channels_last:
        image = image[-1]
    elif image.shape[2] != 3:
        image = image[..., -1]
    return image.clip(0.0, 1.0)


def _save(figure: Figure, path: Path) -> None:
    for ending in _ENDINGS:
        with atomic_file(path.with_name(path.name + ending)) as partial:
            figure.savefig(partial, format=ending[1:])
