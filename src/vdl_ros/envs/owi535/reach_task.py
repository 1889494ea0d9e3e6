"""
The task *reach*, for B arms at once: bring ``tool0`` to a target and stay there.

An episode ends in success when ``tool0`` has been within ``CLOSE`` of the target, in truth, for
``HOLD``. Joints that would move an arm into a collision stay where they are.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.calibration import calibration_file
from vdl_ros.arm.model.geometry import ArmGeometry
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.kinematics import Kinematics
from vdl_ros.arm.simulation.collisions import CollisionChecker
from vdl_ros.arm.simulation.kinematic_twin import MEMORY, KinematicTwin
from vdl_ros.arm.simulation.scene import build_scene
from vdl_ros.arm.simulation.simulation_config import SimulationConfig
from vdl_ros.arm.simulation.twin_parameters import TwinParameters
from vdl_ros.common.settings import SettingError, build
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.owi535.joint_sensor import JointSensor
from vdl_ros.envs.owi535.reach_observation import (
    IN_FLIGHT,
    MOTORS,
    RATE,
    JointReading,
    ReachObserver,
)
from vdl_ros.envs.owi535.twin_ranges import INSIDE, RANDOMISATIONS
from vdl_ros.envs.owi535.workspace import Workspace

__all__ = ['CLOSE', 'FEEDBACKS', 'HOLD', 'REWARDS', 'Outcome', 'ReachTask']

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: Distance of success, m, and for how long, s.
CLOSE, HOLD = 0.02, 1.0
REWARDS = ('dense', 'sparse')
#: How joints are measured; `mixed`: an episode in four by camera.
FEEDBACKS = ('mixed', 'truth', 'camera')
CAMERA_SHARE = 0.25
#: Dense reward: for each m nearer to the target, for each s of travel less, for a step at the
#: target, of which less is left the nearer CLOSE is, for success, which is worth more than to stay
#: near without it; costs of a step, of a motor switched, of a collision.
PROGRESS, TRAVEL, WITHIN, SUCCESS = 10.0, 1.0, 0.1, 5.0
STEP_COST, SWITCH_COST, COLLISION_COST = 0.01, 0.002, 0.05
#: Number of poses at the target of which the nearest counts, and the travel, s, below which they
#: do not matter: their places are up to a cube of the workspace away from the target.
POSES_AT_TARGET, NO_TRAVEL = 16, 0.3
#: Inside the ranges, the largest share of steps whose command is a step late, by chance: a policy
#: that learned with it waits to see what its commands do, also on twins that are slower to react.
LATE = 0.5
# Joints that an obstacle holds, tried in this order: the weaker clutch slips first.
_HELD = np.array([[name in names for name in JOINTS] for names in (
    ('wrist',), ('elbow',), ('shoulder',), ('base',), ('elbow', 'wrist'),
    ('shoulder', 'elbow', 'wrist'), JOINTS)])
# Somebody straightens a wrist that is not measured by hand, rad.
STRAIGHT = 0.05


class Outcome(NamedTuple):
    """
    What a step of B arms gave.

    ``observations`` is float32 [B, features], ``rewards`` float64 [B], ``distance`` the one
    of ``tool0`` from its target, float64 [B], m; ``switched`` counts the motors whose command is
    not that of the step before, int [B]; the others are bool [B].
    """

    observations: NDArray[np.float32]
    rewards: Array
    success: Bools
    distance: Array
    collided: Bools
    switched: NDArray[np.intp]


class _World:
    """What all tasks of a process share: scene, collisions, poses to start from and to reach."""

    def __init__(self) -> None:
        self.scene = build_scene()
        self.checker = CollisionChecker(self.scene)
        self.free = Workspace(self.checker)
        self.straight = Workspace(self.checker, straight=True)


_world = functools.cache(_World)


def _measured(path: str, geometry: ArmGeometry) -> TwinParameters:
    """Return the parameters of the arm in a calibration file; defaults for those it lacks."""
    try:
        config = build(SimulationConfig, calibration_file.read(path).simulation)
    except SettingError as error:
        raise EnvError(str(error)) from None
    return TwinParameters.of(geometry, 1, config)


class ReachTask:
    """
    B arms, each with a target.

    ``positions`` are the true joint positions, float64 [B, 5], rad; ``targets`` float64 [B, 3], m
    in ``base_link``.
    """

    def __init__(
        self, count: int, reward: str = 'dense', randomisation: str = 'inside',
        feedback: str = 'mixed', calibration: str = '', *, rate: float = RATE,
        measurement_delay: float = 0.0, command_delay: float = 0.0,
    ) -> None:
        """
        Make ``count`` arms; reset them before the first step.

        Args:
            count: number of arms, B.
            reward: one of ``REWARDS``.
            randomisation: a name in ``RANDOMISATIONS``.
            feedback: one of ``FEEDBACKS``.
            calibration: file of a measured arm, about which twins are drawn; empty: none.
            rate: steps per second, for controllers that are faster than the task, Hz.
            measurement_delay: added to the age of every measurement, s.
            command_delay: added to that of every command, s.

        Raises:
            EnvError: an argument that is not allowed.
        """
        for name, value, allowed in (
                ('reward', reward, REWARDS), ('feedback', feedback, FEEDBACKS),
                ('randomisation', randomisation, tuple(RANDOMISATIONS))):
            if value not in allowed:
                raise EnvError(f'{name}: {value!r} is not allowed: one of {", ".join(allowed)}')
        self._dense = reward == 'dense'
        self._ranges = RANDOMISATIONS[randomisation]
        self._most_late = LATE if self._ranges is INSIDE else 0.0
        self._camera_share = {'truth': 0.0, 'camera': 1.0}.get(feedback, CAMERA_SHARE)
        self._world = _world()
        self._geometry = self._world.scene.geometry
        self._speed = self._geometry.velocity
        if calibration:
            measured = _measured(calibration, self._geometry)
            self._ranges, self._speed = self._ranges.about(measured), measured.speed[0]
        self._kinematics = Kinematics(self._geometry)
        self._observer = ReachObserver(self._geometry)
        self._twin = KinematicTwin(
            self._world.scene, count, 1.0 / rate, MEMORY + measurement_delay)
        self._sensor = JointSensor(count)
        self._delays = measurement_delay, command_delay
        self.targets: Array = np.zeros((count, 3))
        self._time = np.zeros(count)
        self._held = np.zeros(count, np.int64)
        self._distance, self._travel = np.zeros(count), np.zeros(count)
        self._at_target = np.zeros((count, POSES_AT_TARGET, len(JOINTS)))
        self._commands = np.zeros((count, IN_FLIGHT, len(MOTORS)), np.int8)
        # What the motors do: the latest command or, if that is late, the one before.
        self._motors, self._late = np.zeros((count, len(MOTORS)), np.int8), np.zeros(count)
        self._before = JointReading(np.zeros((count, len(JOINTS))), np.zeros(count))

    @property
    def positions(self) -> Array:
        """Return the true joint positions, float64 [B, 5], rad."""
        return self._twin.positions

    @property
    def geometry(self) -> ArmGeometry:
        """Return the arm's geometry."""
        return self._geometry

    @property
    def checker(self) -> CollisionChecker:
        """Return what finds its collisions."""
        return self._world.checker

    @property
    def time(self) -> Array:
        """Return the time since each arm's reset, float64 [B], s."""
        return np.array(self._time)

    @property
    def reading(self) -> JointReading:
        """Return the latest measurements; their stamps are times as of ``time``."""
        return self._before

    def reset(self, rows: NDArray[np.intp], random: np.random.Generator) -> NDArray[np.float32]:
        """Start episodes of arms ``rows``, int [N]; return observations, float32 [N, features]."""
        count = len(rows)
        twins = self._ranges.draw(
            random, self._geometry, count, self._speed).delayed(*self._delays)
        by_camera = random.random(count) < self._camera_share
        starts, targets = np.empty((count, len(JOINTS))), np.empty((count, 3))
        at_target = np.empty((count, POSES_AT_TARGET, len(JOINTS)))
        for space, which in ((self._world.free, ~by_camera), (self._world.straight, by_camera)):
            number = int(which.sum())
            starts[which] = space.poses[space.draw(random, number)]
            drawn = space.draw(random, number)
            targets[which] = space.places[drawn]
            at_target[which] = space.neighbours(random, drawn, POSES_AT_TARGET)
        bent = random.uniform(-STRAIGHT, STRAIGHT, count)
        starts[by_camera, JOINTS.index('wrist')] = bent[by_camera]
        play = random.uniform(-1.0, 1.0, starts.shape)
        self._twin.reset(rows, starts, play, twins.parameters)
        reading = self._sensor.reset(rows, twins, by_camera, starts, random)
        self._before.positions[rows], self._before.stamp[rows] = reading
        self.targets[rows] = targets
        self._time[rows] = 0.0
        self._held[rows] = 0
        self._commands[rows] = 0
        self._motors[rows] = 0
        self._late[rows] = random.uniform(0.0, self._most_late, count)
        self._at_target[rows], self._travel[rows] = at_target, self._travel_time(starts, at_target)
        self._distance[rows] = np.linalg.norm(
            self._kinematics.pose(starts)[:, :3, 3] - targets, axis=1)
        return self._observer.observe(
            reading, reading, self._time[rows], self._commands[rows], targets)

    def step(self, actions: NDArray[np.integer], random: np.random.Generator) -> Outcome:
        """Command the motors, int [B, 4]: 0 backward, 1 off, 2 forward; simulate one period."""
        motors = np.asarray(actions, np.int8) - np.int8(1)
        # A joint that is not measured is not moved.
        motors[self._sensor.by_camera, MOTORS.index('wrist')] = 0
        switched = (motors != self._commands[:, 0]).sum(axis=1)
        self._commands = np.concatenate([motors[:, None], self._commands[:, :-1]], axis=1)
        directions = np.zeros((len(motors), len(JOINTS)), np.int8)
        late = random.random(len(motors)) < self._late
        self._motors = np.where(late[:, None], self._motors, motors)
        directions[:, :len(MOTORS)] = self._motors
        before = self._twin.positions
        self._twin.step(directions)
        collided = self._world.checker.collides(self._twin.positions)
        if collided.any():
            self._twin.hold(self._blocked(before, np.flatnonzero(collided)))
        self._time += self._twin.period
        tool = self._kinematics.pose(self._twin.positions)[:, :3, 3]
        distance = np.linalg.norm(tool - self.targets, axis=1)
        close = distance <= CLOSE
        self._held = np.where(close, self._held + 1, 0)
        # The first of these steps begins the time, so one more than HOLD has periods.
        success = self._held > round(HOLD / self._twin.period)
        if self._dense:
            travel = self._travel_time(self._twin.positions, self._at_target)
            rewards = (PROGRESS * (self._distance - distance) + TRAVEL * (self._travel - travel)
                       + WITHIN * np.maximum(1.0 - distance / CLOSE, 0.0) + SUCCESS * success
                       - STEP_COST - SWITCH_COST * switched - COLLISION_COST * collided)
            self._travel = travel
        else:
            rewards = success.astype(np.float64)
        self._distance = distance
        reading = self._sensor.read(self._twin, self._time, random)
        observations = self._observer.observe(
            reading, self._before, self._time, self._commands, self.targets)
        self._before = reading
        return Outcome(observations, rewards, success, distance, collided, switched)

    def _travel_time(self, positions: Array, at_target: Array) -> Array:
        """
        Return the time to the nearest of several poses, all joints moving at once, float64 [N], s.

        Args:
            positions: float64 [N, 5], rad.
            at_target: poses, float64 [N, K, 5], rad; the gripper does not count.
        """
        count = len(MOTORS)
        times = np.abs(at_target[..., :count] - positions[:, None, :count])
        times /= self._geometry.velocity[:count]
        nearest: Array = times.max(axis=2).min(axis=1)
        return np.maximum(nearest, NO_TRAVEL)

    def _blocked(self, before: Array, rows: NDArray[np.intp]) -> Bools:
        """Return which joints, bool [B, 5], the obstacles of arms ``rows`` hold, as few as can."""
        blocked = np.zeros(before.shape, np.bool_)
        for held in _HELD:
            blocked[rows] = held
            tried = np.where(held, before[rows], self._twin.positions[rows])
            rows = rows[self._world.checker.collides(tried)]
            if not len(rows):
                break
        return blocked
