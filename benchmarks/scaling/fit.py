"""A law of how agent steps/s grow with the number of actors, fitted to measurements.

    y(n) = ((a n)^-p + L^-p)^(-1/p)

``a`` is the speed of one actor, ``L`` the limit of one learner, ``p`` the sharpness of the knee
between them: 1 is gradual, as where actors wait for each other; for large p the law is
min(a n, L). The two straight lines cross at the knee, L / a actors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ['Fit', 'fit', 'held_out', 'law']

# Bounds of p; and p where there are too few numbers of actors for three parameters.
_SHARPNESS, _FIXED = (0.5, 16.0), 2.0
_FEW = 4
# Bounds of the knee, relative to the fewest and the most actors.
_KNEE = (0.5, 64.0)
_GRID, _ROUNDS = 41, 12


@dataclass(frozen=True)
class Fit:
    """A fitted law.

    Attributes:
        per_actor: a, agent steps/s.
        limit: L, agent steps/s.
        error: root mean square of log(law / measured): 0.05 is 5 %.
        fewest: the smallest number of actors that was measured.
    """

    per_actor: float
    limit: float
    sharpness: float
    error: float
    fewest: float
    most: float

    @property
    def knee(self) -> float:
        """Number of actors L / a."""
        return self.limit / self.per_actor

    @property
    def reached(self) -> bool:
        """Whether the learner was at its limit in a measurement; otherwise L is a guess."""
        return self.knee <= self.most

    @property
    def begun(self) -> bool:
        """Whether it was below its limit in a measurement; otherwise a is a guess."""
        return self.knee >= self.fewest

    def predict(self, actors: float) -> float:
        """Return the agent steps/s with so many actors."""
        return float(law(np.array([actors]), self.per_actor, self.limit, self.sharpness)[0])

    def actors_for(self, share: float) -> float:
        """Return the number of actors for a ``share``, 0 to 1, of the limit."""
        missing = share ** -self.sharpness - 1.0
        return float(self.knee * missing ** (-1.0 / self.sharpness))


def law(
    actors: NDArray[np.float64], per_actor: float, limit: float, sharpness: float,
) -> NDArray[np.float64]:
    """Return agent steps/s, float64 of the shape of ``actors``."""
    return limit * np.exp(_log_share(np.asarray(actors) * per_actor / limit, sharpness))


def _log_share(load: NDArray[np.float64], sharpness: NDArray[np.float64] | float,
               ) -> NDArray[np.float64]:
    """Return log y / L for a ``load`` of a n / L, without overflow."""
    found: NDArray[np.float64] = -np.logaddexp(-sharpness * np.log(load), 0.0) / sharpness
    return found


def fit(points: Sequence[tuple[float, float]]) -> Fit:
    """Fit the law by least squares on log y; with fewer than four numbers of actors, p is 2.

    For any knee and p, the best L is a mean; so only these two are searched, on a grid that is
    refined around its best point.

    Args:
        points: actors and agent steps/s; more than one point may have the same actors.

    Raises:
        ValueError: fewer than two numbers of actors, or a figure that is not above 0.
    """
    if not all(0.0 < number < np.inf for point in points for number in point):
        raise ValueError('a law needs actors and steps/s above 0')
    numbers = sorted({actors for actors, _ in points})
    if len(numbers) < 2:
        raise ValueError(f'{len(numbers)} numbers of actors are too few for a law: at least 2')
    actors, measured = np.array(points, np.float64).T
    bounds = np.log([[numbers[0] * _KNEE[0], numbers[-1] * _KNEE[1]],
                     _SHARPNESS if len(numbers) >= _FEW else (_FIXED, _FIXED)])
    low, high = bounds.T
    for _ in range(_ROUNDS):
        knees, sharps = (np.exp(np.linspace(*ends, _GRID)) for ends in zip(low, high, strict=True))
        shares = _log_share(actors / knees[:, None, None], sharps[:, None])
        rest = np.log(measured) - shares
        errors = rest.var(axis=-1)
        best = np.unravel_index(errors.argmin(), errors.shape)
        center = np.log([knees[best[0]], sharps[best[1]]])
        reach = (high - low) / 8.0
        low, high = np.maximum(center - reach, bounds[:, 0]), np.minimum(
            center + reach, bounds[:, 1])
    limit = float(np.exp(rest[best].mean()))
    return Fit(limit / float(knees[best[0]]), limit, float(sharps[best[1]]),
               float(np.sqrt(errors[best])), float(numbers[0]), float(numbers[-1]))


def held_out(points: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Return actors and steps/s that a law of all other points predicts for the most actors.

    None if fewer than three numbers of actors are left for that law.

    Raises:
        ValueError: as :func:`fit`.
    """
    most = max((actors for actors, _ in points), default=0.0)
    others = [point for point in points if point[0] != most]
    if len({actors for actors, _ in others}) < _FEW - 1:
        return None
    return most, fit(others).predict(most)
