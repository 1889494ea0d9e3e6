"""
DC motors that are on or off, each with a worm gear that holds when the motor does not turn.

A motor reaches its speed with a delay and a time constant. Load slows it, and lets it run faster
when it goes its way. Between motor and joint lies the gears' play: after a reversal the motor
turns through it before the joint moves. At the joint's end, and when something is in the way, a
clutch slips.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.simulation.simulation_config import SimulationConfig

__all__ = ['GearMotors']

Array = NDArray[np.float64]


class GearMotors:
    """
    Five motors, and where their gears would have the joints.

    Plain floats, since for five numbers they are several times faster than arrays.
    """

    def __init__(
        self, config: SimulationConfig, speed: Array, lower: Array, upper: Array, load: Array,
        give: Array,
    ):
        """
        Make motors at rest at 0.

        Args:
            config: delays, play and slowing.
            speed: of the joints without load, float64 [5], rad/s.
            lower: where the joints end, float64 [5], rad.
            upper: likewise.
            load: torque at which ``load_slowdown`` counts, float64 [5], N m.
            give: how far a joint can lag behind its gear until the clutch slips, float64 [5], rad.
        """
        self._play = config.dead_zone / 2.0
        self._start_delay = config.start_delay
        time_constant, step = config.time_constant, config.timestep
        self._gain = 1.0 - math.exp(-step / time_constant) if time_constant > 0.0 else 1.0
        self._step = step
        # Where gravity has no hold, load means nothing.
        self._slowing = [
            config.load_slowdown / value if value > 0.0 else 0.0 for value in load.tolist()]
        # A gear may push against the end of a joint, as far as the joint gives way.
        self._lower = (lower - config.sag).tolist()
        self._upper = (upper + config.sag).tolist()
        self._give = give.tolist()
        self.speed: list[float] = speed.tolist()
        count = len(self.speed)
        self.target: list[float] = [0.0] * count
        self._motor = [0.0] * count
        self._turning = [0.0] * count
        self._told = [0] * count
        self._wait = [0.0] * count

    def place(self, target: Array, play: Array) -> None:
        """
        Put the gears at ``target``, at rest.

        Args:
            target: float64 [5], rad.
            play: where each motor is within the play, float64 [5], from -1 to 1.
        """
        self.target = target.tolist()
        self._motor = (target + play * self._play).tolist()
        count = len(self.target)
        self._turning = [0.0] * count
        self._told = [0] * count
        self._wait = [0.0] * count

    def step(self, told: Sequence[int], positions: list[float], torques: list[float]) -> bool:
        """
        Turn the motors for one step; return whether any gear moved.

        Args:
            told: -1, 0 or 1 for each motor.
            positions: of the joints, rad.
            torques: that the gears exert on the joints, N m.
        """
        moved = False
        for index, now in enumerate(told):
            turning = self._turning[index]
            if now != self._told[index]:
                self._told[index] = now
                self._wait[index] = self._start_delay if now else 0.0
            if now == 0 and turning == 0.0:
                continue
            if self._wait[index] > 1e-9:
                self._wait[index] -= self._step
                now = 0
            turning += (now - turning) * self._gain
            if now == 0 and abs(turning) < 1e-3:
                turning = 0.0
            self._turning[index] = turning
            if turning == 0.0:
                continue
            against = torques[index] if turning > 0.0 else -torques[index]
            factor = min(2.0, max(0.0, 1.0 - self._slowing[index] * against))
            self._turn(index, turning * self.speed[index] * factor * self._step, positions[index])
            moved = True
        return moved

    def _turn(self, index: int, angle: float, position: float) -> None:
        """Turn one motor by ``angle``, and the gear with it where there is no play left."""
        motor = self._motor[index] + angle
        target = min(max(self.target[index], motor - self._play), motor + self._play)
        low = max(self._lower[index], position - self._give[index])
        high = min(self._upper[index], position + self._give[index])
        target = min(max(target, low), high)
        self.target[index] = target
        self._motor[index] = min(max(motor, target - self._play), target + self._play)
