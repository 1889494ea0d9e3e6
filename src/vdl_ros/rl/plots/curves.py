"""Learning curves: smoothing, interpolation to a common x, mean and band over runs."""

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

# Descriptions of the bands that show the spread of a group's runs.
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
    The curve of one group of runs.

    Attributes:
        label: label of the group.
        x: [M], within the range of all its runs.
        mean: [M], over the smoothed runs.
        band: [2, M], lower and upper edge; None for one run or without a band.
        runs: as recorded.
        windows: smoothing window of each run, in points.
    """

    label: str
    x: Array
    mean: Array
    band: Array | None
    runs: tuple[Series, ...]
    windows: tuple[int, ...]


def tidy(x: Array, y: Array) -> Series:
    """
    Return a series without invalid points.

    Points whose y is not finite are dropped: a mean return is NaN before the first episode. Of
    points with the same x the last one, the most recent, is kept.

    Args:
        x: [N].
        y: [N].

    Raises:
        ValueError: x decreases, or no point is left.
    """
    back = np.flatnonzero(np.diff(x) < 0)
    if len(back):
        raise ValueError(f'x decreases from {x[back[0]]:g} to {x[back[0] + 1]:g}')
    kept = np.isfinite(y)
    if not kept.any():
        raise ValueError('there is no value yet')
    x, y = x[kept], y[kept]
    last = np.append(np.diff(x) > 0, True)
    return Series(x[last], y[last])


def window_of(smooth: float, count: int) -> int:
    """
    Return the window, in points, of a moving mean over ``count`` points; always odd.

    Args:
        smooth: number of points as an int, or a fraction of all points as a float below 1.
        count: above 0.
    """
    points = smooth if isinstance(smooth, int) else round(smooth * count)
    # An even window would shift the curve by half a point.
    half = min(int(points) // 2, (count - 1) // 2)
    return 2 * half + 1


def moving_mean(y: Array, window: int) -> Array:
    """
    Return the mean of ``window`` points around each point.

    Near the ends the window shrinks symmetrically, so a straight line stays straight; a window
    cut off on one side would pull down the end of a rising curve.

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
    Interpolate runs linearly to a common x.

    The common x are those of all runs within the range that all runs cover, so nothing is
    extrapolated and every mean is over all runs.

    Args:
        runs: R of them.

    Returns:
        x, [M], and y, [R, M].

    Raises:
        ValueError: no x is within the range of all runs.
    """
    begin, end = max(run.x[0] for run in runs), min(run.x[-1] for run in runs)
    if begin > end:
        raise ValueError(f'one run ends at {end:g}, before another starts at {begin:g}')
    x = np.unique(np.concatenate([run.x for run in runs]))
    x = x[(begin <= x) & (x <= end)]
    return x, np.stack([np.interp(x, run.x, run.y) for run in runs])


def mean_and_band(y: Array, band: str) -> tuple[Array, Array | None]:
    """
    Return the mean and the band over runs.

    Args:
        y: [R, M], one row for each run.
        band: a key of :data:`BANDS`; ``std`` is the sample standard deviation (R - 1).

    Returns:
        The mean, [M], and the edges, [2, M], or None without a band.
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
    Smooth each run, then compute mean and band.

    Args:
        label: label of the group.
        runs: its runs, at least one.
        smooth: see :func:`window_of`.
        band: a key of :data:`BANDS`.

    Raises:
        ValueError: no x is within the range of all runs.
    """
    windows = tuple(window_of(smooth, len(run.x)) for run in runs)
    x, y = align([Series(run.x, moving_mean(run.y, window))
                  for run, window in zip(runs, windows, strict=True)])
    mean, edges = mean_and_band(y, band)
    return Curve(label, x, mean, edges, tuple(runs), windows)
