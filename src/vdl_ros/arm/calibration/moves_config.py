"""How far and how long joints move while they are calibrated, by the kind of measurement."""

from __future__ import annotations

import dataclasses

__all__ = ['BY_CAMERA', 'BY_TRUTH', 'MovesConfig']


@dataclasses.dataclass(frozen=True)
class MovesConfig:
    """
    Moves of a calibration.

    A joint moves ``reach`` (rad) to both sides of the arm upright, or ``share`` of its travel if
    that is less, ``rounds`` times. Readings are averaged for ``average`` s at rest, and may be
    ``stale_after`` s old. ``noticed`` is the least distance that shows that a joint moved, rad,
    within ``onset`` s; ``close`` is how far an angle may be off, rad.
    """

    reach: float
    rounds: int
    average: float
    stale_after: float
    noticed: float
    onset: float
    close: float
    share: float = 0.35


#: Exact positions, 60 times a second.
BY_TRUTH = MovesConfig(0.5, 1, 0.25, 0.5, 0.03, 2.0, 0.08)
#: Estimates from pictures: errors of some degrees that change within seconds.
BY_CAMERA = MovesConfig(0.8, 2, 0.6, 1.0, 0.12, 4.0, 0.2)
