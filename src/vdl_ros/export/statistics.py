"""Statistics of features as LeRobot stores them, for each episode and for all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ['ImageCounts', 'merge', 'of_values']

_QUANTILES = {'q01': 0.01, 'q10': 0.10, 'q50': 0.50, 'q90': 0.90, 'q99': 0.99}
# Larger images are subsampled to about this size.
_COUNTED_SIZE = 160
#: By name: min, max, mean, std, the quantiles, and count, int64 [1].
Statistics = dict[str, NDArray[Any]]


def of_values(values: NDArray[Any]) -> Statistics:
    """
    Return the statistics of one episode's numbers.

    Args:
        values: [rows] or [rows, D].

    Returns:
        float64 [1] or [D] each.
    """
    table = values.reshape(len(values), -1).astype(np.float64)
    found: Statistics = {
        'min': table.min(axis=0), 'max': table.max(axis=0), 'mean': table.mean(axis=0),
        'std': table.std(axis=0), 'count': np.array([len(table)])}
    quantiles = np.quantile(table, list(_QUANTILES.values()), axis=0)
    return found | dict(zip(_QUANTILES, quantiles, strict=True))


class ImageCounts:
    """Histograms of an episode's images, by colour."""

    def __init__(self) -> None:
        """Start with empty histograms."""
        self._counts = np.zeros((3, 256), np.int64)
        self._images = 0

    def add(self, image: NDArray[np.uint8]) -> None:
        """Add an image, uint8 [height, width, 3]."""
        step = max(1, max(image.shape[:2]) // _COUNTED_SIZE)
        pixels = image[::step, ::step].reshape(-1, 3)
        for channel in range(3):
            self._counts[channel] += np.bincount(pixels[:, channel], minlength=256)
        self._images += 1

    def statistics(self) -> Statistics:
        """Return the statistics, float64 [3, 1, 1] each, of values from 0 to 1."""
        levels = np.arange(256) / 255.0
        counts = self._counts
        total = counts.sum(axis=1)
        mean = counts @ levels / total
        found: Statistics = {
            'min': levels[(counts > 0).argmax(axis=1)],
            'max': levels[255 - (counts[:, ::-1] > 0).argmax(axis=1)],
            'mean': mean,
            'std': np.sqrt(np.maximum(0.0, counts @ levels**2 / total - mean**2))}
        below = counts.cumsum(axis=1)
        for name, share in _QUANTILES.items():
            found[name] = levels[(below >= share * total[:, None]).argmax(axis=1)]
        found = {name: value.reshape(3, 1, 1) for name, value in found.items()}
        return found | {'count': np.array([self._images])}


def merge(first: Statistics | None, second: Statistics) -> Statistics:
    """
    Return the statistics of two sets of rows together.

    Quantiles cannot be merged; the outer one of the two is a bound.
    """
    if first is None:
        return second
    counts = float(first['count'][0]), float(second['count'][0])
    share = counts[1] / sum(counts)
    distance = second['mean'] - first['mean']
    mean = first['mean'] + share * distance
    variance = ((1.0 - share) * first['std']**2 + share * second['std']**2
                + share * (1.0 - share) * distance**2)
    found: Statistics = {
        'min': np.minimum(first['min'], second['min']),
        'max': np.maximum(first['max'], second['max']), 'mean': mean, 'std': np.sqrt(variance),
        'count': first['count'] + second['count']}
    for name, share in _QUANTILES.items():
        outer = np.minimum if share <= 0.5 else np.maximum
        found[name] = outer(first[name], second[name])
    return found
