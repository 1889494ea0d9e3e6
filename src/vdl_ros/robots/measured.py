"""What is known of a robot at one tick of its clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ['HISTORY', 'Measured']

#: Number of latest actions that are known.
HISTORY = 16


@dataclass(frozen=True)
class Measured:
    """
    The latest measurements, and the actions before them.

    Attributes:
        values: features by name, in their units; NaN for one that is optional and missing.
        stamps: times of the measurements by topic, of the clock of the stamps, s.
        ages: times since the measurements by topic, s.
        time: time since the episode began, s.
        actions: those in force in the latest ticks, the newest first, float64 [HISTORY, parts];
            the neutral one before the episode.
    """

    values: dict[str, float]
    stamps: dict[str, float]
    ages: dict[str, float]
    time: float
    actions: NDArray[np.float64]

    def __getitem__(self, feature: str) -> float:
        """Return a feature."""
        return self.values[feature]
