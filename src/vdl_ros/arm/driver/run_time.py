"""
Run-time limit of the motors, for an arm without limit switches.

Counted is a motor's net time: its time on in one direction, less its time on in the other times a
weight, over whatever interval gives the most. A joint with a net time of its limit has passed
through all of its travel and stands at its end. Pauses do not move a joint, so they change
nothing. The weight allows for a joint that lifts being slower than one that lowers: with a weight
of 1, work that repeats a lift would reach the limit within two minutes.
"""

from __future__ import annotations

from collections.abc import Callable

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.motor_command import Motors

__all__ = ['RunTimeLimiter']

# Binary fractions of a second add up to slightly less than the limit.
_ROUNDING_S = 1e-6
# What a motor ran beyond its limit must be run back, s; more only while the device takes no
# commands, and by then the joint stands at its end.
_BEYOND_S = 0.5


class RunTimeLimiter:
    """Net time of each motor in each direction; times are seconds of one clock."""

    def __init__(self, limit: Callable[[str], float], weight: float) -> None:
        """
        Start without any time.

        Args:
            limit: returns a motor's greatest net time in one direction, s.
            weight: of the time in the other direction.
        """
        self._limit, self._weight = limit, weight
        self.reset()

    def reset(self) -> None:
        """Forget all times: the joints may stand anywhere, and the motors are off."""
        self._net = {(name, direction): 0.0 for name in JOINTS for direction in (1, -1)}
        self._on, self._at = Motors(), 0.0

    def update(self, on: Motors, now: float) -> None:
        """Count the time up to ``now``; from now on the motors run as ``on``."""
        elapsed, self._at = max(0.0, now - self._at), now
        for (name, direction), net in self._net.items():
            run = direction * getattr(self._on, name) * elapsed
            run *= self._weight if run < 0.0 else 1.0
            self._net[name, direction] = min(
                max(0.0, net + run), max(net, self._limit(name) + _BEYOND_S))
        self._on = on

    def advance(self, now: float) -> None:
        """Count the time up to ``now``; the motors run on as they do."""
        self.update(self._on, now)

    @property
    def exhausted(self) -> dict[str, int]:
        """Return by motor the direction in which it has reached its limit."""
        return {name: direction for (name, direction), net in self._net.items()
                if net >= self._limit(name) - _ROUNDING_S}
