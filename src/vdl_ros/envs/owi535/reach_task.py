"""
The task *reach*, for B arms at once: bring ``tool0`` to a target and stay there.

An episode ends in success when ``tool0`` has been within ``CLOSE`` of the target, in truth, for
``HOLD``. Joints that would move an arm into a collision stay where they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.kinematics import Kinematics
from vdl_ros.arm.twins.history import MEMORY
from vdl_ros.arm.twins.kinematic_twin import KinematicTwin
from vdl_ros.envs.owi535.arm_observation import feature_space
from vdl_ros.envs.owi535.arm_task import HOLD, AddedDelay, ArmTask, check_range
from vdl_ros.envs.owi535.reach_observation import (
    FEATURES,
    MOTORS,
    RATE,
    ReachObserver,
)
from vdl_ros.envs.owi535.task_renderer import TaskRenderer

__all__ = ['CLOSE', 'HOLD', 'Outcome', 'ReachTask']

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: Distance of success, m.
CLOSE = 0.02
# Rates that are allowed, Hz.
_RATES = 1.0, 100.0
#: Dense reward: for each m nearer to the target, for each s of travel less, for a step at the
#: target, of which less is left the nearer CLOSE is, for success, which is worth more than to stay
#: near without it; costs of a step, of a motor switched, of a collision.
PROGRESS, TRAVEL, WITHIN, SUCCESS = 10.0, 1.0, 0.1, 5.0
STEP_COST, SWITCH_COST, COLLISION_COST = 0.01, 0.002, 0.05
#: Number of poses at the target of which the nearest counts, and the travel, s, below which they
#: do not matter: their places are up to a cube of the workspace away from the target.
POSES_AT_TARGET, NO_TRAVEL = 16, 0.3
# Joints that an obstacle holds, tried in this order: the weaker clutch slips first.
_HELD = np.array([[name in names for name in JOINTS] for names in (
    ('wrist',), ('elbow',), ('shoulder',), ('base',), ('elbow', 'wrist'),
    ('shoulder', 'elbow', 'wrist'), JOINTS)])


class Outcome(NamedTuple):
    """
    What a step of B arms gave.

    ``observations`` is float32 [B, features], ``rewards`` float64 [B], ``distance`` the one
    of ``tool0`` from its target, float64 [B], m; ``switched`` counts the motors whose command is
    not that of the step before, int [B]; ``observation_delay`` is the age of the measurements and
    ``action_delay`` that of commands when they are applied, float64 [B], s; the others are bool
    [B].
    """

    observations: NDArray[np.float32]
    rewards: Array
    success: Bools
    distance: Array
    collided: Bools
    switched: NDArray[np.intp]
    observation_delay: Array
    action_delay: Array

    @property
    def terminated(self) -> Bools:
        """Return which episodes are over, bool [B]."""
        return self.success

    @property
    def info(self) -> dict[str, NDArray[Any]]:
        """Return what ``info`` has besides ``is_success``."""
        return {
            'distance': self.distance, 'collided': self.collided,
            'observation_delay': self.observation_delay, 'action_delay': self.action_delay}


class ReachTask(ArmTask):
    """
    B arms, each with a target.

    ``positions`` are the true joint positions, float64 [B, 5], rad; ``targets`` float64 [B, 3], m
    in ``base_link``.
    """

    observation_space = feature_space(FEATURES)
    action_space = spaces.MultiDiscrete([3] * len(MOTORS))

    def __init__(
        self, count: int, reward: str = 'dense', randomisation: str = 'inside',
        feedback: str = 'mixed', calibration: str = '', *, rate: float = RATE,
        measurement_delay: AddedDelay = 0.0, command_delay: AddedDelay = 0.0,
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
            measurement_delay: added to the age of every measurement, s; or [low, high], between
                which each episode draws.
            command_delay: added to that of every command.

        Raises:
            EnvError: an argument that is not allowed.
        """
        check_range('rate', rate, *_RATES)
        super().__init__(
            count, MOTORS, reward, randomisation, feedback, calibration,
            measurement_delay=measurement_delay, command_delay=command_delay)
        self._kinematics = Kinematics(self._geometry)
        self._observer = ReachObserver(self._geometry)
        self._twin = KinematicTwin(
            self._world.scene, count, 1.0 / rate, MEMORY + self._delays[0].high)
        self.targets: Array = np.zeros((count, 3))
        self._distance, self._travel = np.zeros(count), np.zeros(count)
        self._at_target = np.zeros((count, POSES_AT_TARGET, len(JOINTS)))
        self._renderer = TaskRenderer()

    @property
    def positions(self) -> Array:
        """Return the true joint positions, float64 [B, 5], rad."""
        return self._twin.positions

    def reset(self, rows: NDArray[np.intp], random: np.random.Generator) -> NDArray[np.float32]:
        """Start episodes of arms ``rows``, int [N]; return observations, float32 [N, features]."""
        count = len(rows)
        twins, by_camera = self._draw(count, random)
        starts, targets = np.empty((count, len(JOINTS))), np.empty((count, 3))
        at_target = np.empty((count, POSES_AT_TARGET, len(JOINTS)))
        for space, which in ((self._world.free, ~by_camera), (self._world.straight, by_camera)):
            number = int(which.sum())
            starts[which] = space.poses[space.draw(random, number)]
            drawn = space.draw(random, number)
            targets[which] = space.places[drawn]
            at_target[which] = space.neighbours(random, drawn, POSES_AT_TARGET)
        self._bend(starts, by_camera, random)
        play = random.uniform(-1.0, 1.0, starts.shape)
        self._twin.reset(rows, starts, play, twins.parameters)
        reading = self._begin(rows, twins, by_camera, starts, random)
        self.targets[rows] = targets
        self._at_target[rows], self._travel[rows] = at_target, self._travel_time(starts, at_target)
        self._distance[rows] = np.linalg.norm(
            self._kinematics.pose(starts)[:, :3, 3] - targets, axis=1)
        return self._observer.observe(
            reading, reading, self._time[rows], self._commands[rows], targets)

    def step(self, actions: NDArray[np.integer], random: np.random.Generator) -> Outcome:
        """Command the motors, int [B, 4]: 0 backward, 1 off, 2 forward; simulate one period."""
        directions, switched = self._command(actions, random)
        before = self._twin.positions
        self._twin.step(directions)
        collided = self._world.checker.collides(self._twin.positions)
        if collided.any():
            self._twin.hold(self._blocked(before, np.flatnonzero(collided)))
        self._time += self._twin.period
        tool = self._kinematics.pose(self._twin.positions)[:, :3, 3]
        distance = np.linalg.norm(tool - self.targets, axis=1)
        success = self._hold(distance <= CLOSE, self._twin.period)
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
        return Outcome(observations, rewards, success, distance, collided, switched,
                       *self._lags())

    def render(self, arm: int) -> NDArray[np.uint8]:
        """Return an image of one arm and its target, uint8 [H, W, 3]."""
        return self._renderer.render(self.positions[arm], self.targets[arm])

    def close(self) -> None:
        """Free the renderer."""
        self._renderer.close()

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
