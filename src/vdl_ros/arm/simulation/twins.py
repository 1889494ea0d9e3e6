"""Twins of many arms, commanded together: by kinematics alone, or with MuJoCo's physics."""

import copy
import math
from typing import Any

import mujoco
import numpy as np
from mujoco import rollout
from numpy.typing import NDArray

from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.arm.simulation.batched_motors import SUBSTEPS, BatchedMotors, TwinParameters
from vdl_ros.arm.simulation.scene import PREFIX, Scene

Array = NDArray[np.float64]


class Gravity:
    """Torques of the arm's weight on its joints, from the masses of the description."""

    def __init__(self, scene: Scene) -> None:
        model, geometry = scene.model, scene.geometry
        self._kinematics = Kinematics(geometry)
        self._joints = [index for index, load in enumerate(scene.load) if load > 0.0]
        names = [JOINTS[index] for index in self._joints]
        self._moved = [geometry.joints[name].child for name in names]
        self._axes = [geometry.joints[name].axis for name in names]
        parents = {joint.child: joint.parent for joint in geometry.joints.values()}

        def moves(link: str, by: str) -> bool:
            return link == by or (link in parents and moves(parents[link], by))

        self._links = [link for link in geometry.links
                       if model.body(PREFIX + link).mass[0] > 0.0
                       and any(moves(link, by) for by in self._moved)]
        bodies = [model.body(PREFIX + link) for link in self._links]
        self._centres = [np.append(body.ipos, 1.0) for body in bodies]
        mass = np.array([float(body.mass[0]) for body in bodies])
        weight = -float(model.opt.gravity[2])
        #: Weight of each link on each joint, N.
        self._weights = weight * mass * [
            [moves(link, by) for link in self._links] for by in self._moved]

    def __call__(self, positions: Array) -> Array:
        """Return the torques that hold the arm, float64 [N, 5], N m."""
        poses = self._kinematics.poses(positions, {*self._moved, *self._links})
        centres = np.stack([(poses[link] @ centre)[..., :3]
                            for link, centre in zip(self._links, self._centres, strict=True)])
        result = np.zeros(positions.shape)
        for index, joint in enumerate(self._joints):
            pose = poses[self._moved[index]]
            axis = pose[..., :3, :3] @ self._axes[index]
            # The sum of weight times lever; only its vertical part turns the joint.
            weights = self._weights[index]
            lever = np.tensordot(weights, centres, 1) - weights.sum() * pose[..., :3, 3]
            result[..., joint] = axis[..., 0] * lever[..., 1] - axis[..., 1] * lever[..., 0]
        return result


#: How far back by default, s.
MEMORY = 0.5


class History:
    """The last values of B rows, at equal intervals; between two of them they are linear.

    Args:
        interval: between two values, s.
        memory: how far back values are kept, s.
    """

    def __init__(self, shape: tuple[int, int], interval: float, memory: float = MEMORY) -> None:
        self._interval = interval
        self._rows = np.arange(shape[0])
        self._values = np.zeros((math.ceil(memory / interval) + 1, *shape))
        self._newest = 0

    def append(self, values: Array) -> None:
        self._newest = (self._newest + 1) % len(self._values)
        self._values[self._newest] = values

    def fill(self, rows: NDArray[np.intp], values: Array) -> None:
        """Forget what ``rows``, int [K], did: they always had ``values``, float64 [K, N]."""
        self._values[:, rows] = values

    def overwrite(self, count: int, values: Array, where: NDArray[np.bool_]) -> None:
        """Replace the newest ``count`` values by ``values`` where ``where``, both [B, N]."""
        for back in range(count):
            np.copyto(self._values[self._newest - back], values, where=where)

    def before(self, age: Array) -> Array:
        """Return the values ``age`` ago, float64 [B, N]; ``age`` is float64 [B], s."""
        length = len(self._values)
        back = np.clip(age / self._interval, 0.0, length - 1.0)
        whole = np.minimum(back.astype(np.intp), length - 2)
        share = (back - whole)[:, None]
        newer = self._values[(self._newest - whole) % length, self._rows]
        older = self._values[(self._newest - whole - 1) % length, self._rows]
        return np.asarray(newer + share * (older - newer))


class _Twin:
    """B arms that are commanded together, once in each ``period``, s.

    Args:
        scene: the arm's description, masses and loads.
        columns: numbers for each arm whose past is kept, the joints' positions first.
        memory: how far back, s.
    """

    def __init__(
        self, scene: Scene, count: int, period: float, columns: int, memory: float,
    ) -> None:
        self.period = period
        self._gravity = Gravity(scene)
        self._motors = BatchedMotors(scene, count, period)
        self._history = History((count, columns), period / SUBSTEPS, memory)

    @property
    def parameters(self) -> TwinParameters:
        return self._motors.parameters

    def positions_before(self, age: Array) -> Array:
        """Return the positions ``age`` ago, float64 [B, 5], rad; ``age`` is float64 [B], s."""
        return self._history.before(age)[:, :len(JOINTS)]


class KinematicTwin(_Twin):
    """B arms without dynamics; the scene is not simulated.

    ``positions`` are the joints' true positions, float64 [B, 5], rad.
    """

    def __init__(
        self, scene: Scene, count: int, period: float = 0.1, memory: float = MEMORY,
    ) -> None:
        super().__init__(scene, count, period, len(JOINTS), memory)
        self._substep = period / SUBSTEPS
        self._lower, self._upper = scene.geometry.lower, scene.geometry.upper
        shape = (count, len(JOINTS))
        self.positions: Array = np.zeros(shape)
        #: Where the joints are at rest with the gears as they are.
        self._rest = np.zeros(shape)
        upright = np.tile(scene.geometry.upright, (count, 1))
        self.reset(np.arange(count), upright, np.zeros(shape), self._motors.parameters)

    def reset(
        self, rows: NDArray[np.intp], positions: Array, play: Array, parameters: TwinParameters,
    ) -> None:
        """Place arms at rest, motors off.

        Args:
            rows: which arms, int [N].
            positions: resting positions, sag included, float64 [N, 5], rad.
            play: of each motor within the play of its gear, float64 [N, 5], from -1 to 1.
            parameters: of the N arms.
        """
        self._motors.replace(rows, parameters)
        self.positions[rows] = self._rest[rows] = positions
        self._history.fill(rows, positions)
        # The gears lead the joints by the sag.
        target = positions + self._gravity(positions) * self._motors.compliance[rows]
        self._motors.place(rows, target, play)

    def step(self, directions: NDArray[np.integer]) -> None:
        """Command all motors, -1, 0 or 1, int [B, 5], and simulate one period."""
        angle = self._motors.command(directions)
        # About where the joints are in the middle of the period.
        torque = self._gravity(self.positions + 0.5 * angle.sum(axis=0))
        self._before = self.positions.copy(), self._motors.target.copy()
        angle *= self._motors.slowing(angle, torque)
        sag = torque * self._motors.compliance
        lag = self._motors.damping / self._motors.stiffness
        fade = np.exp(-self._substep / lag)
        q = self.positions
        for part in range(SUBSTEPS):
            # Exact for a gear that turns at a steady speed during the substep.
            rest = self._motors.turn(angle[part], q) - sag
            behind = (rest - self._rest) * (lag / self._substep)
            q = rest - behind + (q - self._rest + behind) * fade
            q = np.clip(q, self._lower, self._upper)
            self._rest = rest
            self._history.append(q)
        self.positions = q

    def hold(self, joints: NDArray[np.bool_]) -> None:
        """Put joints, bool [B, 5], and their gears back to before the last step; clutches slip."""
        positions, target = self._before
        for state in (self.positions, self._rest):
            np.copyto(state, positions, where=joints)
        self._history.overwrite(SUBSTEPS, positions, joints)
        self._motors.hold(joints, target)


class PhysicsTwin(_Twin):
    """B arms, each in its own copy of a scene with an object.

    ``movable`` is its name, a body with a free joint and one geom. ValueError: a substep is not a
    whole number of physics steps, two at least.
    """

    def __init__(
        self, scene: Scene, count: int, movable: str, period: float = 0.1,
        memory: float = MEMORY,
    ) -> None:
        model = scene.model
        steps = period / SUBSTEPS / model.opt.timestep
        if abs(steps - round(steps)) > 1e-6 or round(steps) < 2:
            raise ValueError(
                f'period: {period:g} is not allowed: a multiple of '
                f'{SUBSTEPS * model.opt.timestep:g} s, at least twice that')
        steps = round(steps)
        super().__init__(scene, count, period, len(JOINTS) + 7, memory)
        self._scene = scene
        self._models: list[Any] = [copy.copy(model) for _ in range(count)]
        self._data: list[Any] = [mujoco.MjData(model)]
        body = model.body(movable)
        self._body, self._geom = body.id, body.geomadr[0]
        # A row of the state: the time, then positions, then velocities.
        self._joints, self._speeds = 1 + scene.qpos, 1 + model.nq + scene.dof
        first = 1 + model.jnt_qposadr[body.jntadr[0]]
        self._pose = slice(first, first + 7)
        self._torque: Array = np.zeros((count, len(JOINTS)))
        size = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        self._state: Array = np.zeros((count, size))
        self._shares = (np.arange(steps) + 1.0)[:, None] / steps
        self._out: Array = np.zeros((count, steps, size))
        self._sensors: Array = np.zeros((count, steps, model.nsensordata))
        self._controls: Array = np.zeros((count, steps, model.nu))
        self._rollout = rollout.Rollout(nthread=0)

    @property
    def positions(self) -> Array:
        """Return the true positions, float64 [B, 5], rad."""
        return np.array(self._state[:, self._joints])

    @property
    def object(self) -> Array:
        """Return the object's pose in ``base_link``, float64 [B, 7]: m, and a quaternion wxyz."""
        return np.array(self._state[:, self._pose])

    def reset(
        self, rows: NDArray[np.intp], positions: Array, play: Array, parameters: TwinParameters,
        pose: Array, mass: Array, friction: Array,
    ) -> None:
        """Place arms and objects at rest, motors off.

        Args:
            rows: int [N]; positions, play, parameters: as of :meth:`KinematicTwin.reset`.
            pose: of the objects, float64 [N, 7]; mass: float64 [N], kg; friction: its
                coefficient, float64 [N].
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

    def object_before(self, age: Array) -> Array:
        """Return the object's pose ``age`` ago, float64 [B, 7]; ``age`` is float64 [B], s."""
        return self._history.before(age)[:, len(JOINTS):]

    def close(self) -> None:
        self._rollout.close()
