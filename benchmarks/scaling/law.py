"""A law of how agent steps/s grow with the number of actors: fitted to measurements, and plotted.

    y(n) = ((a n)^-p + L^-p)^(-1/p)

``a`` is the speed of one actor, ``L`` the limit of one learner, ``p`` the sharpness of the knee
between them: 1 is gradual, as where actors wait for each other; for large p the law is
min(a n, L). The two straight lines cross at the knee, L / a actors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

# impala_horovod_gym, Pong, one learner with a GPU, an actor is one machine of 4 cores: actors and
# agent steps/s. It measured 45 twice.
SEED_ACTORS = ((15, 2300.0), (25, 4300.0), (35, 6000.0), (45, 6200.0), (45, 5800.0),
               (50, 6200.0), (110, 6300.0))

# Bounds of p; and p where there are fewer than four numbers of actors.
_SHARPNESS, _FIXED = (0.5, 16.0), 2.0
# Bounds of the knee, relative to the fewest and the most actors.
_KNEE = (0.5, 64.0)
_GRID, _ROUNDS = 41, 12
KINDS = ('.pdf', '.png', '.svg')


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

    def predict(self, actors: Any) -> Any:
        """Return the agent steps/s with so many actors, a number or an array."""
        return law(actors, self.per_actor, self.limit, self.sharpness)

    def actors_for(self, share: float) -> float:
        """Return the number of actors for a ``share``, 0 to 1, of the limit."""
        missing = share ** -self.sharpness - 1.0
        return float(self.knee * missing ** (-1.0 / self.sharpness))


def law(actors: Any, per_actor: float, limit: float, sharpness: float) -> Any:
    """Return agent steps/s, float64 of the shape of ``actors``."""
    return limit * np.exp(_log_share(np.asarray(actors) * per_actor / limit, sharpness))


def _log_share(load: Any, sharpness: Any) -> Any:
    """Return log y / L for a ``load`` of a n / L, without overflow."""
    return -np.logaddexp(-sharpness * np.log(load), 0.0) / sharpness


def fit(points: Sequence[tuple[float, float]]) -> Fit:
    """Fit the law by least squares on log y; with fewer than four numbers of actors, p is 2.

    For any knee and p, the best L is a mean; so only these two are searched, on a grid that is
    refined around its best point.

    Args:
        points: actors, at least two numbers, and agent steps/s; more than one point may have the
            same actors.
    """
    numbers = sorted({actors for actors, _ in points})
    actors, measured = np.array(points, np.float64).T
    bounds = np.log([[numbers[0] * _KNEE[0], numbers[-1] * _KNEE[1]],
                     _SHARPNESS if len(numbers) >= 4 else (_FIXED, _FIXED)])
    low, high = bounds.T
    for _ in range(_ROUNDS):
        knees, sharps = (np.exp(np.linspace(*ends, _GRID)) for ends in zip(low, high, strict=True))
        rest = np.log(measured) - _log_share(actors / knees[:, None, None], sharps[:, None])
        errors = rest.var(axis=-1)
        best = np.unravel_index(errors.argmin(), errors.shape)
        center = np.log([knees[best[0]], sharps[best[1]]])
        reach = (high - low) / 8.0
        low = np.maximum(center - reach, bounds[:, 0])
        high = np.minimum(center + reach, bounds[:, 1])
    limit = float(np.exp(rest[best].mean()))
    return Fit(limit / float(knees[best[0]]), limit, float(sharps[best[1]]),
               float(np.sqrt(errors[best])), float(numbers[0]), float(numbers[-1]))


def draw(path: Path, points: Sequence[tuple[float, float]]) -> None:
    """Plot actors and agent steps/s, and their law, into a file of one of ``KINDS``."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(6.0, 4.2), dpi=110, layout='constrained')
    axes = figure.add_subplot()
    found = fit(points)
    end = 1.1 * max(found.most, min(found.knee, 2 * found.most))
    actors = np.linspace(end / 400, end, 400)
    axes.plot(actors, found.predict(actors), linewidth=1.8, label='law')
    axes.plot(*np.array(points, np.float64).T, 'o', markersize=5, label='measured')
    if found.reached and found.begun:
        axes.plot([0, found.knee, end], [0, found.limit, found.limit], color='#24292f',
                  linewidth=0.8, alpha=0.6, label=f'knee at {found.knee:.1f} actors')
    axes.set(xlim=(0, end), ylim=(0, None), xlabel='actors of one learner', ylabel='agent steps/s')
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path)
