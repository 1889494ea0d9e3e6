"""What happened while an arm was calibrated: readings and commands by time."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.model.joints import JOINTS

__all__ = ['Recording', 'Stroke']

Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Stroke:
    """
    One motor ran alone from ``start`` to ``end``, s, as ``command`` says, -1 or 1.

    The arm was at rest from ``rested`` on, as far as commands go, and after it until ``next``.
    """

    joint: int
    command: int
    start: float
    end: float
    rested: float
    next: float


@dataclasses.dataclass
class Recording:
    """
    Readings and commands of one clock, in the order of time.

    ``times`` has N times, s, and ``positions`` float64 [5] for each, rad, NaN where a joint is not
    measured; ``command_times`` has M times and ``commands`` five directions for each.
    """

    times: list[float] = dataclasses.field(default_factory=list)
    positions: list[Array] = dataclasses.field(default_factory=list)
    command_times: list[float] = dataclasses.field(default_factory=list)
    commands: list[tuple[int, ...]] = dataclasses.field(default_factory=list)

    def reading(self, stamp: float, positions: Array) -> None:
        """Add a reading, float64 [5], rad."""
        self.times.append(stamp)
        self.positions.append(np.array(positions, np.float64))

    def command(self, stamp: float, directions: tuple[int, ...]) -> None:
        """Add a command, if it differs from the last one."""
        if not self.commands or self.commands[-1] != directions:
            self.command_times.append(stamp)
            self.commands.append(directions)

    def strokes(self) -> list[Stroke]:
        """Return the moves of single motors from rest to rest."""
        found = []
        off = (0,) * len(JOINTS)
        ends = [*self.command_times[1:], math.inf]
        for number, (start, end, command) in enumerate(
                zip(self.command_times, ends, self.commands, strict=True)):
            around = [self.commands[other] for other in (number - 1, number + 1)
                      if 0 <= other < len(self.commands)]
            if sum(map(abs, command)) != 1 or len(around) < 2 or any(
                    each != off for each in around):
                continue
            joint = next(index for index, value in enumerate(command) if value)
            found.append(Stroke(joint, command[joint], start, end,
                                self.command_times[number - 1], ends[number + 1]))
        return found
