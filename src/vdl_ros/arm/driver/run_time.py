"""How long each motor of the arm has run in one direction, less the way back."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from vdl_ros.arm.driver.guardian import SILENCE_S
from vdl_ros.arm.joints import JOINTS, Motors

# Binary fractions of a second add up to slightly less than the limit.
_ROUNDING_S = 1e-6
# What a motor ran beyond its limit must be run back, s; more only while the device takes no
# commands, and by then the joint stands at its end. Less than any limit: a motor that runs back
# must not reach its other limit before it is below this one.
_BEYOND_S = 0.5


class RunTimeLimiter:
    """Net time of each motor in each direction; times are seconds of one clock.

    Args:
        limit: returns a motor's greatest net time in one direction, s.
        weight: of the time in the other direction.
    """

    def __init__(self, limit: Callable[[str], float], weight: float) -> None:
        self._limit, self._weight = limit, weight
        # After so much of a pause of this process the guardian may have ended the way back, s.
        self.unattended = SILENCE_S
        # Whether there was such a pause since this was set to False.
        self.was_unattended = False
        # How the motors may run now: more than one while the device fails.
        self._on = frozenset({Motors()})
        self.reset(0.0)

    def reset(self, now: float) -> None:
        """Forget all times, because the joints may stand anywhere; the motors run on."""
        self._net = {(name, direction): 0.0 for name in JOINTS for direction in (1, -1)}
        self._at = now

    def attempt(self, on: Motors, now: float) -> None:
        """Count the time up to ``now``; from now on the motors may run as ``on``, or as before."""
        self.advance(now)
        # Which way a motor runs whose reversal fails cannot be known. To count both would lock it
        # out in both, so it counts as running as before.
        unknown: dict[str, Any] = {
            name: 0 for name in JOINTS
            if any(getattr(on, name) * getattr(each, name) < 0 for each in self._on)}
        self._on |= {dataclasses.replace(on, **unknown)}

    def update(self, on: Motors, now: float) -> None:
        self.advance(now)
        self._on = frozenset({on})

    def advance(self, now: float) -> None:
        """Count the time up to ``now``; what may run in a direction counts as running in it."""
        elapsed, self._at = max(0.0, now - self._at), now
        self.was_unattended |= elapsed >= self.unattended
        for (name, direction), net in self._net.items():
            way = max(direction * getattr(on, name) for on in self._on)
            run = elapsed if way > 0 else min(elapsed, self.unattended) * self._weight
            most = max(net, self._limit(name) + _BEYOND_S)
            self._net[name, direction] = min(max(0.0, net + way * run), most)

    @property
    def left(self) -> float:
        """Time until a motor that may run reaches its limit, s; negative beyond it."""
        return min((self._limit(name) - net for (name, direction), net in self._net.items()
                    if any(direction * getattr(on, name) > 0 for on in self._on)),
                   default=math.inf)

    @property
    def exhausted(self) -> dict[str, int]:
        """By motor the direction in which it has reached its limit."""
        # While the device failed, a motor may seem to have reached both: the greater counts.
        return {name: direction for (name, direction), net in self._net.items()
                if net >= max(self._limit(name) - _ROUNDING_S, self._net[name, -direction])}
