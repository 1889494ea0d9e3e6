"""Motors and gears of many simulated arms, as ``motor_model.py`` has those of one."""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.geometry import ArmGeometry
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.simulation.motor_model import SimulationConfig
from vdl_ros.arm.simulation.scene import Scene

Array = NDArray[np.float64]


@dataclasses.dataclass(eq=False)
class TwinParameters:
    """Parameters of B arms; names and units are those of ``SimulationConfig``.

    ``speed`` is float64 [B, 5], rad/s, without load; all others are float64 [B].
    """

    speed: Array
    dead_zone: Array
    start_delay: Array
    time_constant: Array
    load_slowdown: Array
    sag: Array
    command_delay: Array

    @classmethod
    def of(
        cls, geometry: ArmGeometry, count: int, config: SimulationConfig | None = None,
    ) -> 'TwinParameters':
        """Return the parameters of ``count`` equal arms, without ``speed_variation``."""
        config = config or SimulationConfig()
        given = np.array([getattr(config, f'{name}_speed') for name in JOINTS])
        speed = np.where(given > 0.0, given, geometry.velocity)
        return cls(np.tile(speed, (count, 1)), **{
            field.name: np.full(count, getattr(config, field.name))
            for field in dataclasses.fields(cls)[1:]})

    def config(self, arm: int) -> SimulationConfig:
        values = {f'{name}_speed': float(speed)
                  for name, speed in zip(JOINTS, self.speed[arm], strict=True)}
        values |= {field.name: float(getattr(self, field.name)[arm])
                   for field in dataclasses.fields(self)[1:]}
        return SimulationConfig(speed_variation=0.0, **values)

    def replace(self, rows: NDArray[np.intp], others: 'TwinParameters') -> None:
        for field in dataclasses.fields(self):
            getattr(self, field.name)[rows] = getattr(others, field.name)


SUBSTEPS = 5


class BatchedMotors:
    """The motors of B arms that are commanded together, once in each period.

    In each period call :meth:`command` once, then :meth:`turn` for each substep. ``target`` is
    where the gears hold the joints, float64 [B, 5], rad; ``stiffness`` and ``damping`` are
    those of the gears, float64 [B, 5], N m/rad and N m s/rad, ``compliance`` is 1 / ``stiffness``.

    Args:
        scene: the arm's description, masses and loads; it is not simulated.
        period: between two commands, s.
    """

    def __init__(self, scene: Scene, count: int, period: float) -> None:
        self.count, self.period = count, period
        self._scene = scene
        self._substep = period / SUBSTEPS
        self._lower, self._upper = scene.geometry.lower, scene.geometry.upper
        self._effort = scene.geometry.effort
        self.parameters = TwinParameters.of(scene.geometry, count)
        shape = (count, len(JOINTS))
        self.target, self._motor = np.zeros(shape), np.zeros(shape)
        self._turning, self._wait, self._drive = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        # Commands given, the newest last.
        self._commands = np.zeros((1, *shape))
        self.replace(np.arange(count), self.parameters)

    def replace(self, rows: NDArray[np.intp], parameters: TwinParameters) -> None:
        """Give the arms ``rows``, int [N], the parameters of N arms; :meth:`place` them next."""
        self.parameters.replace(rows, parameters)
        own = self.parameters
        self.stiffness, self.damping = self._scene.gears(own.sag)
        self.compliance = 1.0 / self.stiffness
        self._give = self._effort / self.stiffness
        load = self._scene.load
        # Joints without gravity load are not slowed.
        self._slowing = own.load_slowdown[:, None] * np.divide(
            1.0, load, out=np.zeros_like(load), where=load > 0.0)
        self._half_play = own.dead_zone[:, None] / 2.0
        # A gear may push against the joint's limit, as far as the joint sags.
        self._lowest = self._lower - own.sag[:, None]
        self._highest = self._upper + own.sag[:, None]
        keep = int(own.command_delay.max() / self.period) + 2
        if keep > len(self._commands):
            missing = np.zeros((keep - len(self._commands), *self.target.shape))
            self._commands = np.concatenate([missing, self._commands])

    def place(self, rows: NDArray[np.intp], target: Array, play: Array) -> None:
        """Set gears of arms ``rows``, int [N], to ``target``, float64 [N, 5], rad; motors off.

        ``play`` is where each motor is within the play of its gear, float64 [N, 5], -1 to 1.
        """
        self.target[rows] = target
        self._motor[rows] = target + play * self._half_play[rows]
        for state in (self._turning, self._wait, self._drive):
            state[rows] = 0.0
        self._commands[:, rows] = 0.0

    def command(self, directions: NDArray[np.integer]) -> Array:
        """Command all motors, -1, 0 or 1, int [B, 5], for one period.

        Return the angles by which motors without load turn, float64 [SUBSTEPS, B, 5], rad.
        """
        self._commands[:-1] = self._commands[1:]
        self._commands[-1] = directions
        return self._turn() * (self.parameters.speed * self._substep)

    def slowing(self, angle: Array, torque: Array) -> Array:
        """Return the share of their speed that motors have left under load, from 0 to 2.

        The sign of ``angle`` is their direction, float64 [..., B, 5]; ``torque`` is that of the
        gears on the joints, float64 [..., B, 5], N m.
        """
        return np.asarray(np.clip(1.0 - self._slowing * torque * np.sign(angle), 0.0, 2.0))

    def turn(self, angle: Array, positions: Array) -> Array:
        """Turn the motors by ``angle``, float64 [B, 5], rad, and the gears; return ``target``.

        A clutch slips that would pull a joint, at ``positions`` [B, 5], with more than its effort.
        """
        motor = self._motor + angle
        target = np.clip(self.target, motor - self._half_play, motor + self._half_play)
        target = np.clip(target, np.maximum(self._lowest, positions - self._give),
                         np.minimum(self._highest, positions + self._give))
        self._motor = np.clip(motor, target - self._half_play, target + self._half_play)
        self.target = target
        return target

    def hold(self, joints: NDArray[np.bool_], target: Array) -> None:
        """Put gears, bool [B, 5], back to an earlier ``target``, float64 [B, 5], rad."""
        np.copyto(self.target, target, where=joints)
        # Motors turn through their play all the same, or an arm could jam.
        np.clip(self._motor, self.target - self._half_play, self.target + self._half_play,
                out=self._motor)

    def _turn(self) -> Array:
        """Return each motor's mean speed, as a share, in the substeps: [SUBSTEPS, B, 5]."""
        own, step = self.parameters, self._substep
        late = (own.command_delay / self.period).astype(np.intp)
        arrival = (own.command_delay - late * self.period)[:, None]
        rows = np.arange(self.count)
        old, new = self._drive, self._commands[-1 - late, rows]
        # From when on the old and the new command turn the motor, s from the step's start.
        starts = np.where(new != 0.0, own.start_delay[:, None], 0.0)
        begins = np.where(new == old, np.maximum(self._wait, arrival), arrival + starts)
        edges = (np.arange(SUBSTEPS + 1) * step)[:, None, None]
        by_old = np.maximum(0.0, np.minimum(edges[1:], arrival) - np.maximum(
            edges[:-1], self._wait))
        by_new = np.maximum(0.0, edges[1:] - np.maximum(edges[:-1], begins))
        on = (by_old * old + by_new * new) / step
        self._wait = np.maximum(begins - self.period, 0.0)
        self._drive = new
        # A first-order delay, solved for a steady drive within each substep.
        constant = np.maximum(own.time_constant, 1e-9)[:, None]
        fade = np.exp(-step / constant)
        gained = (1.0 - fade) * (constant / step)
        mean = np.empty((SUBSTEPS, *self.target.shape))
        turning = self._turning
        for part in range(SUBSTEPS):
            mean[part] = on[part] + (turning - on[part]) * gained
            turning = on[part] + (turning - on[part]) * fade
        self._turning = turning
        return mean
