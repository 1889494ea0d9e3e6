"""Learning curves as numbers: smoothing, a common x, mean and band over the runs of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    'BANDS', 'Curve', 'Series', 'align', 'make_curve', 'mean_and_band', 'moving_mean', 'tidy',
    'window_of',
]

Array = NDArray[np.float64]

# How the spread of a group's runs can be shown; what each band is in words.
BANDS = {
    'std': 'mean ± standard deviation',
    'minmax': 'smallest to largest',
    'none': '',
}


@dataclass(frozen=True, eq=False)
class Series:
    """
    One quantity of one run.

    Attributes:
        x: [N], N > 0, strictly increasing.
        y: [N], finite.
    """

    x: Array
    y: Array


@dataclass(frozen=True, eq=False)
class Curve:
    """
    What is drawn of one group of runs.

    Attributes:
        label: what the group is called.
        x: [M], where all its runs are known.
        mean: [M], over the runs, each smoothed before.
        band: [2, M], lower and upper edge; None for one run, or if none is wanted.
        runs: as they were recorded, each to its own end.
        windows: the points that each run was smoothed over.
    """

    label: str
    x: Array
    mean: Array
    band: Array | None
    runs: tuple[Series, ...]
    windows: tuple[int, ...]


def tidy(x: Array, y: Array) -> Series:
    """
    Return a series of what was recorded, without what is not there.

    Points whose y is not finite are left out: a mean return is NaN before the first episode. Of
    points with the same x the last is kept: it knows most.

    Args:
        x: [N].
        y: [N].

    Raises:
        ValueError: x goes back, or no point is left.
    """
    back = np.flatnonzero(np.diff(x) < 0)
    if len(back):
        raise ValueError(f'x goes back from {x[back[0]]:g} to {x[back[0] + 1]:g}')
    kept = np.isfinite(y)
    if not kept.any():
        raise ValueError('there is no value yet')
    x, y = x[kept], y[kept]
    last = np.append(np.diff(x) > 0, True)
    return Series(x[last], y[last])


def window_of(smooth: float, count: int) -> int:
    """
    Return the points that a moving mean of ``count`` points takes together; always odd.

    Args:
        smooth: an int of points, or a share of all points as a float below 1.
        count: above 0.
    """
    points = smooth if isinstance(smooth, int) else round(smooth * count)
    # An even number would shift the curve by half a point: it has one more then.
    half = min(int(points) // 2, (count - 1) // 2)
    return 2 * half + 1


def moving_mean(y: Array, window: int) -> Array:
    """
    Return the mean of ``window`` points around each point.

    Near the ends the window is narrower, on both sides alike, down to the first and the last
    point themselves: so no point is made up, none counts twice, and a straight line stays one. A
    window cut off on one side only would hold a rising curve's end down.

    Args:
        y: [N].
        window: odd.

    Returns:
        [N].
    """
    count = len(y)
    halves = [min(window // 2, i, count - 1 - i) for i in range(count)]
    return np.array([y[i - half:i + half + 1].mean() for i, half in enumerate(halves)])


def align(runs: Sequence[Series]) -> tuple[Array, Array]:
    """
    Put runs on the same x, by straight lines between the points of each.

    The common x are those of all runs, from where the last of them begins to where the shortest
    ends: nothing is extrapolated, and the mean is one of the same runs everywhere.

    Args:
        runs: R of them.

    Returns:
        x, [M], and y, [R, M].

    Raises:
        ValueError: no x is within all the runs.
    """
    begin, end = max(run.x[0] for run in runs), min(run.x[-1] for run in runs)
    if begin > end:
        raise ValueError(f'one run ends at {end:g}, before another begins at {begin:g}')
    x = np.unique(np.concatenate([run.x for run in runs]))
    x = x[(begin <= x) & (x <= end)]
    return x, np.stack([np.interp(x, run.x, run.y) for run in runs])


def mean_and_band(y: Array, band: str) -> tuple[Array, Array | None]:
    """
    Return the mean over runs, and how far they are apart.

    Args:
        y: [R, M], one row for each run.
        band: of :data:`BANDS`; ``std`` is that of a sample, with R - 1 below the sum, since a few
            seeds stand for all.

    Returns:
        The mean, [M], and the edges, [2, M], or None where there is no spread to show.
    """
    mean = y.mean(0)
    if len(y) == 1 or band == 'none':
        return mean, None
    if band == 'minmax':
        return mean, np.stack([y.min(0), y.max(0)])
    spread = y.std(0, ddof=1)
    return mean, np.stack([mean - spread, mean + spread])


def make_curve(label: str, runs: Sequence[Series], smooth: float, band: str) -> Curve:
    """
    Smooth each run by itself, then take mean and band.

    Args:
        label: of the group.
        runs: its runs, at least one.
        smooth: see :func:`window_of`.
        band: of :data:`BANDS`.

    Raises:
        ValueError: no x is within all the runs.
    """
    windows = tuple(window_of(smooth, len(run.x)) for run in runs)
    x, y = align([Series(run.x, moving_mean(run.y, window))
                  for run, window in zip(runs, windows, strict=True)])
    mean, edges = mean_and_band(y, band)
    return Curve(label, x, mean, edges, tuple(runs), windows)
