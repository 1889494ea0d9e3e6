"""Learning curves: smoothing, interpolation to a common x, line and band over runs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Descriptions of the bands that show the spread of a group's runs, by the line.
BANDS = {
    'mean': 'mean ± standard deviation',
    'iqm': '95 % bootstrap interval of the line',
}
# Descriptions of the lines.
LINES = {'mean': 'mean', 'iqm': 'interquartile mean'}
# As in rliable; drawn by a fixed seed, so that a figure can be made again.
_RESAMPLES = 2000
_BOOTSTRAP_SEED = 0


@dataclass(frozen=True, eq=False)
class Series:
    """One quantity of one run: x [N], N > 0, strictly increasing; y [N], finite."""

    x: Array
    y: Array


@dataclass(frozen=True, eq=False)
class Curve:
    """The curve of one group of runs.

    ``x`` is [M], within the range of all its runs; ``line`` [M], over the smoothed runs; ``band``
    [2, M], lower and upper edge, or None; ``windows`` are the smoothing windows, in points.
    """

    label: str
    x: Array
    line: Array
    band: Array | None
    runs: tuple[Series, ...]
    windows: tuple[int, ...]


def tidy(x: Array, y: Array) -> Series:
    """Return a series without invalid points; ValueError: x decreases, or no point is left.

    Points whose y is not finite are dropped: a mean return is NaN before the first episode. Of
    points with the same x the last one, the most recent, is kept.
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
    """Return the window, in points, of a moving mean over ``count`` points; always odd.

    ``smooth`` is a number of points, int, or a fraction of all points, a float below 1.
    """
    points = smooth if isinstance(smooth, int) else round(smooth * count)
    # An even window would shift the curve by half a point.
    half = min(int(points) // 2, (count - 1) // 2)
    return 2 * half + 1


def moving_mean(y: Array, window: int) -> Array:
    """Return the mean of ``window`` points around each point.

    Near the ends the window shrinks symmetrically, so a straight line stays straight; a window
    cut off on one side would pull down the end of a rising curve.
    """
    count = len(y)
    halves = [min(window // 2, i, count - 1 - i) for i in range(count)]
    return np.array([y[i - half:i + half + 1].mean() for i, half in enumerate(halves)])


def align(runs: Sequence[Series]) -> tuple[Array, Array]:
    """Interpolate runs linearly to a common x; ValueError: no x is within the range of all runs.

    The common x are those of all runs within the range that all runs cover, so nothing is
    extrapolated and every mean is over all runs. Returned are x, [M], and y, [R, M].
    """
    begin, end = max(run.x[0] for run in runs), min(run.x[-1] for run in runs)
    if begin > end:
        raise ValueError(f'one run ends at {end:g}, before another starts at {begin:g}')
    x = np.unique(np.concatenate([run.x for run in runs]))
    x = x[(begin <= x) & (x <= end)]
    return x, np.stack([np.interp(x, run.x, run.y) for run in runs])


def interquartile_mean(y: Array) -> Array:
    """Return the mean of runs [..., R, M] without the lowest and highest quarter, [..., M].

    Agarwal et al. 2021, arXiv:2108.13264. A quarter is rounded down, so up to three runs it is the
    mean.
    """
    cut = y.shape[-2] // 4
    found: Array = np.sort(y, axis=-2)[..., cut:y.shape[-2] - cut, :].mean(-2)
    return found


def line_and_band(y: Array, line: str) -> tuple[Array, Array | None]:
    """Return the line, [M], and the band, [2, M], over runs ``y``, [R, M]; None: it is one run.

    ``line`` is a key of :data:`LINES`. The band of ``mean`` is the sample standard deviation
    (R - 1); that of ``iqm`` is from the 2.5th to the 97.5th percentile of the line of runs that
    are drawn with replacement.
    """
    middle = interquartile_mean(y) if line == 'iqm' else y.mean(0)
    if len(y) == 1:
        return middle, None
    if line == 'iqm':
        rng = np.random.default_rng(_BOOTSTRAP_SEED)
        drawn = rng.integers(len(y), size=(_RESAMPLES, len(y)))
        lines = np.stack([interquartile_mean(y[rows]) for rows in drawn])
        return middle, np.percentile(lines, (2.5, 97.5), axis=0)
    spread = y.std(0, ddof=1)
    return middle, np.stack([middle - spread, middle + spread])


def make_curve(label: str, runs: Sequence[Series], smooth: float, line: str = 'mean') -> Curve:
    """Smooth each run, then compute line and band; ValueError: the runs have no x in common."""
    windows = tuple(window_of(smooth, len(run.x)) for run in runs)
    x, y = align([Series(run.x, moving_mean(run.y, window))
                  for run, window in zip(runs, windows, strict=True)])
    middle, edges = line_and_band(y, line)
    return Curve(label, x, middle, edges, tuple(runs), windows)
