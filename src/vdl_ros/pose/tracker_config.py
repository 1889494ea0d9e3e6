"""Settings of the joint tracker."""

from __future__ import annotations

import dataclasses
import math

__all__ = ['TrackerConfig']


@dataclasses.dataclass(frozen=True)
class TrackerConfig:
    """Noise of commands and estimates; rad and s."""

    #: From a command until the motor follows it: cable, start and coasting.
    response_time: float = 0.06
    #: Between neighbouring angles of the grid.
    cell: float = math.radians(0.5)
    #: Speeds may be off by this share, over moves of about ``stretch``.
    speed_error: float = 0.2
    stretch: float = 0.3
    #: Standard deviation of a joint's motion in a second in which its motor was off.
    drift: float = 0.01
    #: Degrees of freedom of Student's t, the likelihood of an estimate.
    tails: float = 2.0
    #: Estimates this far apart have independent errors.
    independent_after: float = 0.2
    #: An estimate of the same pose is independent after this time: noise, light, passers-by.
    renewed_after: float = 1.0
    #: Share of the probability that is spread over all angles for each independent estimate, to
    #: recover an arm that was moved by hand.
    lost: float = 1e-5
