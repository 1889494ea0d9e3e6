"""
Run-time limit of the motors, for an arm without limit switches.

Counted is a motor's net time: its time on in one direction, less its time on in the other times a
weight, over whatever interval gives the most. A joint with a net time of its limit has passed
through all of its travel and stands at its end. Pauses do not move a joint, so they change
nothing. The weight allows for a joint that lifts being slower than one that lowers: with a weight
of 1, work that repeats a lift would reach the limit within two minutes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.motor_command import Motors

__all__ = ['RunTimeLimiter']

# Binary fractions of a second add up to slightly less than the limit.
_ROUNDING_S = 1e-6
# What a motor ran beyond its limit must be run back, s; more only while the device takes no
# commands, and by then the joint stands at its end. Also at most this share of the limit: a motor
# that runs back must not reach its other limit before it is below this one.
_BEYOND_S, _BEYOND_SHARE = 0.5, 0.5


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
        """Count the time up to ``now``; from now on the motors run as ``on``."""
        self.advance(now)
        self._on = frozenset({on})

    def advance(self, now: float) -> None:
        """
        Count the time up to ``now``; the motors run on as they do.

        What may run in a direction counts as running in it.
        """
        elapsed, self._at = max(0.0, now - self._at), now
        for (name, direction), net in self._net.items():
            way = max(direction * getattr(on, name) for on in self._on)
            run = elapsed * (self._weight * way if way < 0 else way)
            limit = self._limit(name)
            most = limit + min(_BEYOND_S, _BEYOND_SHARE * limit)
            self._net[name, direction] = min(max(0.0, net + run), max(net, most))

    @property
    def exhausted(self) -> dict[str, int]:
        """
        Return by motor the direction in which it has reached its limit.

        While the device failed, a motor may seem to have reached both: then the greater counts.
        """
        return {name: direction for (name, direction), net in self._net.items()
                if net >= max(self._limit(name) - _ROUNDING_S, self._net[name, -direction])}
