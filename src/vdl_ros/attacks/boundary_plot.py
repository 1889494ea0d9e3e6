"""Draws a decision boundary: actions in the plane, and the observations at three points."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from vdl_ros.attacks.boundary import Boundary

# Okabe and Ito's colours, which people with colour blindness can tell apart.
_COLOURS = ('#56b4e9', '#e69f00', '#009e73', '#f0e442', '#cc79a7', '#0072b2', '#d55e00', '#999999')


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
    plane.plot(0, 0, 'x', color='black', markersize=10, markeredgewidth=2)
    plane.plot(boundary.norm, 0, 's', color='black', markersize=8, fillstyle='none',
               markeredgewidth=2)
    plane.plot(0, boundary.norm, 'o', color='black', markersize=8, fillstyle='none',
               markeredgewidth=2)
    plane.set(xlabel='along the attack, L2', ylabel='along random noise, L2',
              title=f'step {boundary.step}')
    shown = np.unique(boundary.actions)
    plane.legend(handles=[Patch(color=colours[action], label=names[action]) for action in shown],
                 loc='upper left', framealpha=0.9)
    titles = ('x  observation', '□  attack', '○  random noise')
    for name, image, title in zip('abc', boundary.images, titles, strict=False):
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
