"""
The kinematic twin: B simulated arms at once, without physics, for training.

The motors are those of ``motor_model.py``: command delay, start delay, time constant, slowing by
load, play, clutch. Between two commands their equations are linear, so a step is solved in
``SUBSTEPS`` parts instead of one for each step of the physics. Joints follow their gears by
stiffness, damping and gravity, without inertia. Nothing touches: the owner checks for collisions
and calls :meth:`KinematicTwin.hold`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.simulation.gravity import Gravity
from vdl_ros.arm.simulation.scene import Scene
from vdl_ros.arm.simulation.twin_parameters import TwinParameters

__all__ = ['MEMORY', 'KinematicTwin']

Array = NDArray[np.float64]

SUBSTEPS = 5
#: How far back positions are kept by default, s.
MEMORY = 0.5


class KinematicTwin:
    """
    B arms that are commanded together, once in each period.

    ``positions`` are the joints' true positions, float64 [B, 5], rad.
    """

    def __init__(
        self, scene: Scene, count: int, period: float = 0.1, memory: float = MEMORY,
    ) -> None:
        """
        Make ``count`` arms with nominal parameters, standing straight up, at rest.

        Args:
            scene: the arm's description, masses and loads; it is not simulated.
            count: number of arms, B.
            period: between two commands, s.
            memory: how far back positions are kept, s.
        """
        self.count = count
        self.period = period
        self._scene = scene
        self._substep = period / SUBSTEPS
        self._gravity = Gravity(scene)
        self._lower, self._upper = scene.geometry.lower, scene.geometry.upper
        self._effort = np.array([scene.geometry.joints[name].effort for name in JOINTS])
        self.parameters = TwinParameters.of(scene.geometry, count)
        shape = (count, len(JOINTS))
        self.positions: Array = np.zeros(shape)
        self._target, self._motor = np.zeros(shape), np.zeros(shape)
        self._turning, self._wait = np.zeros(shape), np.zeros(shape)
        #: Where the joints are at rest with the gears as they are.
        self._rest = np.zeros(shape)
        # Commands given, the newest last, and positions after each substep likewise.
        self._commands = np.zeros((1, *shape))
        self._drive = np.zeros(shape)
        self._history = np.zeros((math.ceil(memory / self._substep) + 1, *shape))
        upright = np.clip(self.positions, self._lower, self._upper)
        self.reset(np.arange(count), upright, np.zeros(shape), self.parameters)

    def reset(
        self, rows: NDArray[np.intp], positions: Array, play: Array, parameters: TwinParameters,
    ) -> None:
        """
        Place arms at rest, motors off.

        Args:
            rows: which arms, int [N].
            positions: resting positions, sag included, float64 [N, 5], rad.
            play: of each motor within the play of its gear, float64 [N, 5], from -1 to 1.
            parameters: of the N arms.
        """
        self.parameters.replace(rows, parameters)
        own = self.parameters
        stiffness, damping = self._scene.gears(own.sag)
        self._compliance = 1.0 / stiffness
        self._give = self._effort / stiffness
        self._lag = damping / stiffness
        load = self._scene.load
        # Joints without gravity load are not slowed.
        self._slowing = own.load_slowdown[:, None] * np.divide(
            1.0, load, out=np.zeros_like(load), where=load > 0.0)
        self._half_play = own.dead_zone[:, None] / 2.0
        keep = int(own.command_delay.max() / self.period) + 2
        if keep > len(self._commands):
            missing = np.zeros((keep - len(self._commands), *self.positions.shape))
            self._commands = np.concatenate([missing, self._commands])
        self.positions[rows] = self._rest[rows] = positions
        self._history[:, rows] = positions
        # The gears lead the joints by the sag.
        target = positions + (self._gravity(positions) * self._compliance[rows])
        self._target[rows] = target
        self._motor[rows] = target + play * self._half_play[rows]
        for state in (self._turning, self._wait, self._drive):
            state[rows] = 0.0
        self._commands[:, rows] = 0.0

    def step(self, directions: NDArray[np.integer]) -> None:
        """Command all motors, -1, 0 or 1, int [B, 5], and simulate one period."""
        self._commands[:-1] = self._commands[1:]
        self._commands[-1] = directions
        turning = self._turn()
        angle = turning * (self.parameters.speed * self._substep)
        # About where the joints are in the middle of the period.
        torque = self._gravity(self.positions + 0.5 * angle.sum(axis=0))
        self._before = self.positions.copy(), self._target.copy()
        angle *= np.clip(1.0 - self._slowing * torque * np.sign(turning), 0.0, 2.0)
        sag = torque * self._compliance
        # A gear may push against the joint's limit, as far as the joint sags.
        lower = self._lower - self.parameters.sag[:, None]
        upper = self._upper + self.parameters.sag[:, None]
        fade = np.exp(-self._substep / self._lag)
        q = self.positions
        self._history[:-SUBSTEPS] = self._history[SUBSTEPS:]
        for part in range(SUBSTEPS):
            motor = self._motor + angle[part]
            target = np.clip(self._target, motor - self._half_play, motor + self._half_play)
            target = np.clip(target, np.maximum(lower, q - self._give),
                             np.minimum(upper, q + self._give))
            self._motor = np.clip(motor, target - self._half_play, target + self._half_play)
            self._target = target
            # Exact for a gear that turns at a steady speed during the substep.
            rest = target - sag
            behind = (rest - self._rest) * (self._lag / self._substep)
            q = rest - behind + (q - self._rest + behind) * fade
            q = np.clip(q, self._lower, self._upper)
            self._rest = rest
            self._history[part - SUBSTEPS] = q
        self.positions = q

    def hold(self, joints: NDArray[np.bool_]) -> None:
        """Put joints, bool [B, 5], and their gears back to before the last step; clutches slip."""
        positions, target = self._before
        for state, before in ((self.positions, positions), (self._rest, positions),
                              (self._target, target)):
            np.copyto(state, before, where=joints)
        np.copyto(self._history[-SUBSTEPS:], positions, where=joints)
        # Motors turn through their play all the same, or an arm could jam.
        np.clip(self._motor, self._target - self._half_play, self._target + self._half_play,
                out=self._motor)

    def positions_before(self, age: Array) -> Array:
        """Return the positions ``age`` ago, float64 [B, 5], rad; ``age`` is float64 [B], s."""
        back = np.clip(age / self._substep, 0.0, len(self._history) - 1.0)
        whole = np.minimum(back.astype(np.intp), len(self._history) - 2)
        share = (back - whole)[:, None]
        rows = np.arange(self.count)
        newer = self._history[-1 - whole, rows]
        return np.asarray(newer + share * (self._history[-2 - whole, rows] - newer))

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
        mean = np.empty((SUBSTEPS, *self.positions.shape))
        turning = self._turning
        for part in range(SUBSTEPS):
            mean[part] = on[part] + (turning - on[part]) * gained
            turning = on[part] + (turning - on[part]) * fade
        self._turning = turning
        return mean
