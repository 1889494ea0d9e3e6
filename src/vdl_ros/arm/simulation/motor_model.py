"""Motors and gears of the simulated arm, and their settings."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.settings import setting

_SPEED = 'Speed without load; 0: from the URDF.'


@dataclasses.dataclass(frozen=True)
class SimulationConfig:
    """The simulated arm: motors, gears and cable."""

    timestep: float = setting(
        0.004, 'Time step of the physics.', minimum=0.0005, maximum=0.008, unit='s')
    base_speed: float = setting(0.0, _SPEED, minimum=0.0, unit='rad/s')
    shoulder_speed: float = setting(0.0, _SPEED, minimum=0.0, unit='rad/s')
    elbow_speed: float = setting(0.0, _SPEED, minimum=0.0, unit='rad/s')
    wrist_speed: float = setting(0.0, _SPEED, minimum=0.0, unit='rad/s')
    gripper_speed: float = setting(
        0.0, 'Speed of each finger; 0: from the URDF.', minimum=0.0, unit='rad/s')
    speed_variation: float = setting(
        0.05, 'Range of speeds drawn at each reset, as a share.', minimum=0.0, maximum=0.9)
    dead_zone: float = setting(
        0.02, 'Play of the gears after a reversal.', minimum=0.0, maximum=0.5, unit='rad')
    start_delay: float = setting(
        0.02, 'Time until a motor starts to turn.', minimum=0.0, maximum=1.0, unit='s')
    time_constant: float = setting(
        0.03, 'Time in which a motor gains or loses 63 % of its speed.', minimum=0.0, maximum=1.0,
        unit='s')
    load_slowdown: float = setting(
        0.2, 'Share of its speed that a joint loses when it lifts the stretched arm, and gains '
        'when it lowers it.', minimum=0.0, maximum=0.9)
    sag: float = setting(
        0.01, 'Deflection of a joint under the stretched arm.', minimum=0.001, maximum=0.1,
        unit='rad')
    command_delay: float = setting(
        0.01, 'Delay of commands, as over USB.', minimum=0.0, maximum=2.0, unit='s')


Array = NDArray[np.float64]


class GearMotors:
    """Five motors and the joint targets that their gears set.

    Plain floats: for five numbers they are several times faster than arrays.

    Args:
        speed: of the joints without load, float64 [5], rad/s.
        lower: lower joint limits, float64 [5], rad.
        upper: upper joint limits, float64 [5], rad.
        load: torque at which ``load_slowdown`` applies, float64 [5], N m.
        give: how far a joint can lag behind its gear before the clutch slips, float64 [5],
            rad.
    """

    def __init__(
        self, config: SimulationConfig, speed: Array, lower: Array, upper: Array, load: Array,
        give: Array,
    ):
        self._play = config.dead_zone / 2.0
        self._start_delay = config.start_delay
        time_constant, step = config.time_constant, config.timestep
        self._gain = 1.0 - math.exp(-step / time_constant) if time_constant > 0.0 else 1.0
        self._step = step
        # Joints without gravity load are not slowed.
        self._slowing = [
            config.load_slowdown / value if value > 0.0 else 0.0 for value in load.tolist()]
        # A gear may push against the joint's limit, as far as the joint sags.
        self._lower = (lower - config.sag).tolist()
        self._upper = (upper + config.sag).tolist()
        self._give = give.tolist()
        self.speed: list[float] = speed.tolist()
        self.place(np.zeros(len(speed)), np.zeros(len(speed)))

    def place(self, target: Array, play: Array) -> None:
        """Set the gears to ``target``, float64 [5], rad, at rest.

        ``play`` is the position of each motor within the play, float64 [5], from -1 to 1.
        """
        self.target: list[float] = target.tolist()
        self._motor: list[float] = (target + play * self._play).tolist()
        self._turning, self._command, self._wait = (
            [0.0] * len(target), [0] * len(target), [0.0] * len(target))

    def step(self, command: Sequence[int], positions: list[float], torques: list[float]) -> bool:
        moved = False
        for index, now in enumerate(command):
            turning = self._turning[index]
            if now != self._command[index]:
                self._command[index] = now
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
        motor = self._motor[index] + angle
        target = min(max(self.target[index], motor - self._play), motor + self._play)
        low = max(self._lower[index], position - self._give[index])
        high = min(self._upper[index], position + self._give[index])
        target = min(max(target, low), high)
        self.target[index] = target
        self._motor[index] = min(max(motor, target - self._play), target + self._play)
