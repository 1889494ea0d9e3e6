"""
B simulated arms with contacts, each with an object that it can push or hold, for training.

The motors are those of ``batched_motors.py``; MuJoCo's ``rollout`` steps all arms in one call for
each of their substeps, so little is added to bare steps of the physics.
"""

from __future__ import annotations

import copy
from typing import Any

import mujoco
import numpy as np
from mujoco import rollout
from numpy.typing import NDArray

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.simulation.scene import Scene
from vdl_ros.arm.twins.batched_motors import SUBSTEPS, BatchedMotors
from vdl_ros.arm.twins.gravity import Gravity
from vdl_ros.arm.twins.history import MEMORY, History
from vdl_ros.arm.twins.twin_parameters import TwinParameters

__all__ = ['PhysicsTwin']

Array = NDArray[np.float64]


class PhysicsTwin:
    """
    B arms that are commanded together, once in each period, each in its own copy of a scene.

    ``positions`` are the joints' true positions, float64 [B, 5], rad. ``object`` is the pose of
    the object in ``base_link``, float64 [B, 7]: x, y, z, m, and the quaternion w, x, y, z.
    """

    def __init__(
        self, scene: Scene, count: int, movable: str, period: float = 0.1,
        memory: float = MEMORY,
    ) -> None:
        """
        Make ``count`` arms with nominal parameters; reset them before the first step.

        Args:
            scene: the arm and its surroundings; it is copied for each arm.
            count: number of arms, B.
            movable: name of the object, a body with a free joint and one geom.
            period: between two commands, s.
            memory: how far back positions are kept, s.

        Raises:
            ValueError: a substep is not a whole number of physics steps, two at least.
        """
        steps = period / SUBSTEPS / scene.model.opt.timestep
        if abs(steps - round(steps)) > 1e-6 or round(steps) < 2:
            raise ValueError(
                f'period: {period:g} is not allowed: a multiple of '
                f'{SUBSTEPS * scene.model.opt.timestep:g} s, at least twice that')
        self.count, self.period = count, period
        self._scene = scene
        self._models: list[Any] = [copy.copy(scene.model) for _ in range(count)]
        self._data: list[Any] = [mujoco.MjData(scene.model)]
        self._gravity = Gravity(scene)
        self._motors = BatchedMotors(scene, count, period)
        model = scene.model
        body = model.body(movable)
        self._body, self._geom = body.id, body.geomadr[0]
        # A row of the state: the time, then positions, then velocities.
        self._joints, self._speeds = 1 + scene.qpos, 1 + model.nq + scene.dof
        first = 1 + model.jnt_qposadr[body.jntadr[0]]
        self._pose = slice(first, first + 7)
        self._torque: Array = np.zeros((count, len(JOINTS)))
        size = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        self._state: Array = np.zeros((count, size))
        self._shares = (np.arange(round(steps)) + 1.0)[:, None] / round(steps)
        self._out: Array = np.zeros((count, round(steps), size))
        self._sensors: Array = np.zeros((count, round(steps), model.nsensordata))
        self._controls: Array = np.zeros((count, round(steps), model.nu))
        self._rollout = rollout.Rollout(nthread=0)
        self._history = History((count, len(JOINTS) + 7), period / SUBSTEPS, memory)

    @property
    def parameters(self) -> TwinParameters:
        """Return the parameters of the arms."""
        return self._motors.parameters

    @property
    def positions(self) -> Array:
        """Return the true positions, float64 [B, 5], rad."""
        return np.array(self._state[:, self._joints])

    @property
    def object(self) -> Array:
        """Return the object's pose, float64 [B, 7]."""
        return np.array(self._state[:, self._pose])

    def reset(
        self, rows: NDArray[np.intp], positions: Array, play: Array, parameters: TwinParameters,
        pose: Array, mass: Array, friction: Array,
    ) -> None:
        """
        Place arms and objects at rest, motors off.

        Args:
            rows: which arms, int [N].
            positions: resting positions, sag included, float64 [N, 5], rad.
            play: of each motor within the play of its gear, float64 [N, 5], from -1 to 1.
            parameters: of the N arms.
            pose: of the objects, float64 [N, 7].
            mass: of the objects, float64 [N], kg.
            friction: coefficient of the objects, float64 [N].
        """
        self._motors.replace(rows, parameters)
        actuators = self._scene.actuators
        for index, row in enumerate(rows):
            model = self._models[row]
            model.actuator_gainprm[actuators, 0] = self._motors.stiffness[row]
            model.actuator_biasprm[actuators, 1] = -self._motors.stiffness[row]
            model.actuator_biasprm[actuators, 2] = -self._motors.damping[row]
            model.geom_friction[self._geom, 0] = friction[index]
            model.body_inertia[self._body] *= mass[index] / model.body_mass[self._body]
            model.body_mass[self._body] = mass[index]
            mujoco.mj_setConst(model, self._data[0])
        self._state[rows] = 0.0
        qpos = np.zeros((len(rows), self._scene.model.nq))
        self._scene.write_positions(qpos, positions)
        self._state[rows, 1:1 + self._scene.model.nq] = qpos
        self._state[rows, self._pose] = pose
        self._history.fill(rows, np.concatenate([positions, pose], axis=1))
        # The gears lead the joints by the sag.
        self._torque[rows] = self._gravity(positions)
        target = positions + self._torque[rows] * self._motors.compliance[rows]
        self._motors.place(rows, target, play)

    def step(self, directions: NDArray[np.integer]) -> None:
        """Command all motors, -1, 0 or 1, int [B, 5], and simulate one period."""
        angle = self._motors.command(directions)
        motors, actuators = self._motors, self._scene.actuators
        for part in angle:
            positions, before = self.positions, motors.target
            target = motors.turn(part * motors.slowing(part, self._torque), positions)
            self._controls[..., actuators] = (
                before[:, None] + self._shares * (target - before)[:, None])
            self._rollout.rollout(
                self._models, self._data, self._state, self._controls, nstep=len(self._shares),
                state=self._out, sensordata=self._sensors, skip_checks=True)
            # The gears' pull in the last step, which the physics computes at its start.
            last = self._out[:, -2]
            self._torque = motors.stiffness * (target - last[:, self._joints]) \
                - motors.damping * last[:, self._speeds]
            self._state[:] = self._out[:, -1]
            self._history.append(
                np.concatenate([self.positions, self._state[:, self._pose]], axis=1))

    def positions_before(self, age: Array) -> Array:
        """Return the positions ``age`` ago, float64 [B, 5], rad; ``age`` is float64 [B], s."""
        return self._history.before(age)[:, :len(JOINTS)]

    def object_before(self, age: Array) -> Array:
        """Return the object's pose ``age`` ago, float64 [B, 7]; ``age`` is float64 [B], s."""
        return self._history.before(age)[:, len(JOINTS):]

    def close(self) -> None:
        """Free MuJoCo's rollout."""
        self._rollout.close()
