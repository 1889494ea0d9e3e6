"""What B simulated arms did lately, for measurements that come late."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ['MEMORY', 'History']

Array = NDArray[np.float64]

#: How far back by default, s.
MEMORY = 0.5


class History:
    """The last values of B rows, at equal intervals; between two of them they are linear."""

    def __init__(self, shape: tuple[int, int], interval: float, memory: float = MEMORY) -> None:
        """
        Keep values of ``shape`` [B, N], all 0 so far.

        Args:
            shape: of the values at one time.
            interval: between two values, s.
            memory: how far back values are kept, s.
        """
        self._interval = interval
        self._rows = np.arange(shape[0])
        self._values = np.zeros((math.ceil(memory / interval) + 1, *shape))
        self._newest = 0

    def append(self, values: Array) -> None:
        """Add the values, float64 [B, N], of one interval later."""
        self._newest = (self._newest + 1) % len(self._values)
        self._values[self._newest] = values

    def fill(self, rows: NDArray[np.intp], values: Array) -> None:
        """Forget what ``rows``, int [K], did: they always had ``values``, float64 [K, N]."""
        self._values[:, rows] = values

    def overwrite(self, count: int, values: Array, where: NDArray[np.bool_]) -> None:
        """Replace the newest ``count`` values by ``values`` where ``where``, both [B, N]."""
        for back in range(count):
            np.copyto(self._values[self._newest - back], values, where=where)

    def before(self, age: Array) -> Array:
        """Return the values ``age`` ago, float64 [B, N]; ``age`` is float64 [B], s."""
        length = len(self._values)
        back = np.clip(age / self._interval, 0.0, length - 1.0)
        whole = np.minimum(back.astype(np.intp), length - 2)
        share = (back - whole)[:, None]
        newer = self._values[(self._newest - whole) % length, self._rows]
        older = self._values[(self._newest - whole - 1) % length, self._rows]
        return np.asarray(newer + share * (older - newer))
