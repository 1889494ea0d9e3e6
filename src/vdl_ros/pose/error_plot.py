"""Plot estimates against the truth, and the distribution of the errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from vdl_ros.pose.estimator import Estimate
from vdl_ros.pose.evaluation import absolute_errors
from vdl_ros.pose.networks import JOINT_OUTPUTS, OUTPUTS

__all__ = ['draw_estimates']


def draw_estimates(
    path: Path, sets: Sequence[tuple[str, Estimate, NDArray[np.float32]]],
) -> None:
    """Write the plot.

    Six panels show the first data set, each estimate a dot over its truth, those that are not
    confident in grey; the last shows the cumulative distribution of the joints' errors for every
    data set.

    Args:
        path: the PNG, PDF or SVG to write.
        sets: title, estimates and truth, float32 [frames, 6], of each.

    Raises:
        ValueError: matplotlib does not support the kind of file.
        OSError: it cannot be written.
    """
    figure = Figure(figsize=(13.0, 6.4), dpi=110, layout='constrained')
    panels = figure.subplots(2, 4).ravel()
    title, estimate, truth = sets[0]
    for column, name in enumerate(OUTPUTS):
        axes = panels[column]
        scale, unit = (100.0, 'cm') if column == 0 else (180.0 / np.pi, '°')
        for chosen, color in ((~estimate.confident, '#b0b7c0'), (estimate.confident, '#1f6feb')):
            axes.plot(truth[chosen, column] * scale, estimate.values[chosen, column] * scale, '.',
                      color=color, markersize=2)
        ends = [truth[:, column].min() * scale, truth[:, column].max() * scale]
        axes.plot(ends, ends, color='black', linewidth=0.8, alpha=0.5)
        axes.set_title(f'{name}, {unit}', loc='left', fontsize=10)
    panels[0].set_xlabel('truth')
    panels[0].set_ylabel(f'estimate, {title}')
    axes = panels[6]
    for title, estimate, truth in sets:
        off = np.sort(np.degrees(absolute_errors(estimate, truth)[:, JOINT_OUTPUTS]).ravel())
        axes.plot(off, (np.arange(len(off)) + 1) / len(off), linewidth=1.6, label=title)
    axes.set_xlim(0, 20)
    axes.axvline(10.0, color='black', linewidth=0.8, alpha=0.5)
    axes.set_title('share of joints with at most this error, degrees', loc='left', fontsize=10)
    axes.legend(frameon=False, fontsize=8)
    panels[7].axis('off')
    for axes in panels[:7]:
        axes.grid(alpha=0.25)
        axes.spines[['top', 'right']].set_visible(False)
    figure.savefig(path)
