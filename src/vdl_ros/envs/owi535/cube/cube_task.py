"""
The tasks *push* and *pick and place*, for B arms at once: bring a cube to its goal.

An episode ends in success when the cube's centre has been within ``CLOSE`` of the goal, in truth,
for ``HOLD``, and in failure when the cube is out of the arm's reach.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.kinematics import Kinematics
from vdl_ros.arm.simulation.scene import build_scene
from vdl_ros.arm.twins.history import MEMORY
from vdl_ros.arm.twins.physics_twin import PhysicsTwin
from vdl_ros.envs.owi535.arm_observation import MOVING, RATE, JointReading, feature_space
from vdl_ros.envs.owi535.arm_task import AddedDelay, ArmTask, check_range
from vdl_ros.envs.owi535.cube.cube_observation import (
    CLOSE,
    CubeObserver,
    CubeReading,
    cube_features,
    grip_point,
)
from vdl_ros.envs.owi535.cube.cube_starts import (
    FARTHEST,
    NEAREST,
    SIDE,
    draw_grips,
    draw_starts,
)
from vdl_ros.envs.owi535.cube_scene import CUBE, CUBES, EDGE, add_cube
from vdl_ros.envs.owi535.task_renderer import TaskRenderer

__all__ = ['CubeTask', 'Outcome', 'PickPlaceTask', 'PushTask']

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: Distance from the base's axis where a cube is out of reach, m.
LOST = 0.33
#: How far a goal is from its cube, m.
SHORTEST, LONGEST = 0.05, 0.12
#: Heights of lifted goals above the table, m.
LOWEST, HIGHEST = 0.03, 0.08
#: Dense reward: for each m of the cube nearer to the goal and of ``tool0`` nearer to where it
#: moves the cube, for a step at the goal, less towards CLOSE, for success; costs of a step and of
#: a motor switched.
PROGRESS, APPROACH, WITHIN, SUCCESS = 40.0, 10.0, 0.1, 5.0
STEP_COST, SWITCH_COST = 0.01, 0.002


class Outcome(NamedTuple):
    """
    What a step of B arms gave.

    ``observations`` is float32 [B, features], ``rewards`` float64 [B], ``distance`` that of the
    cube from its goal, float64 [B], m; ``switched`` counts the motors whose command is not that
    of the step before, int [B]; ``lost`` says which cubes are out of reach, bool [B];
    ``observation_delay`` is the age of the measurements and ``action_delay`` that of commands when
    they are applied, float64 [B], s.
    """

    observations: NDArray[np.float32]
    rewards: Array
    success: Bools
    distance: Array
    lost: Bools
    switched: NDArray[np.intp]
    observation_delay: Array
    action_delay: Array

    @property
    def terminated(self) -> Bools:
        """Return which episodes are over, bool [B]."""
        return self.success | self.lost

    @property
    def info(self) -> dict[str, NDArray[Any]]:
        """Return what ``info`` has besides ``is_success``."""
        return {
            'distance': self.distance, 'lost': self.lost,
            'observation_delay': self.observation_delay, 'action_delay': self.action_delay}


class CubeTask(ArmTask):
    """
    B arms, each with a cube and its goal; the base of both tasks.

    ``positions`` are the true joint positions, float64 [B, 5], rad; ``goals`` float64 [B, 3], m
    in ``base_link``; ``cubes`` the true poses, float64 [B, 7], m and quaternions w, x, y, z.
    """

    #: The motors of the actions, and of the goals the share that is above the table.
    motors: ClassVar[tuple[str, ...]]
    lifted: ClassVar[float]
    #: How far behind the cube ``tool0`` moves it, m.
    behind: ClassVar[float]
    #: Whether the gripper is open at the start.
    is_open: ClassVar[bool]
    #: Share of episodes that begin around the cube.
    _practice = 0.0
    observation_space: ClassVar[spaces.Box]
    action_space: ClassVar[spaces.MultiDiscrete]

    def __init__(
        self, count: int, reward: str = 'dense', randomisation: str = 'inside',
        feedback: str = 'truth', calibration: str = '', *,
        measurement_delay: AddedDelay = 0.0, command_delay: AddedDelay = 0.0,
    ) -> None:
        """
        Make ``count`` arms; reset them before the first step.

        Args:
            count: number of arms, B.
            reward: ``dense``, or ``sparse``: 1 for success, else 0.
            randomisation: ``inside`` the ranges of training, ``held_out`` outside of all of
                them, or ``none``.
            feedback: joints measured by ``truth``, by ``camera``, or ``mixed``, by episode.
            calibration: file of ``ros2 run vdl_ros calibrate``: motors are drawn about those of
                that arm, by the shares of ``randomisation`` for speeds.
            measurement_delay: added to the age of every measurement, s; or [low, high], between
                which each episode draws.
            command_delay: added to that of every command.

        Raises:
            EnvError: an argument that is not allowed.
        """
        super().__init__(
            count, self.motors, reward, randomisation, feedback, calibration,
            measurement_delay=measurement_delay, command_delay=command_delay)
        self._cube_ranges = CUBES[randomisation]
        self._kinematics = Kinematics(self._geometry)
        self._observer = CubeObserver(self._geometry, self.motors, self.behind)
        self._twin = PhysicsTwin(
            build_scene(self._geometry, furnish=add_cube), count, CUBE, 1.0 / RATE,
            MEMORY + self._delays[0].high)
        self.goals: Array = np.zeros((count, 3))
        self._error = np.zeros((count, 2))
        self._distance, self._tool_away = np.zeros(count), np.zeros(count)
        self._renderer = TaskRenderer()

    @property
    def positions(self) -> Array:
        """Return the true joint positions, float64 [B, 5], rad."""
        return self._twin.positions

    @property
    def cubes(self) -> Array:
        """Return the true poses of the cubes, float64 [B, 7]."""
        return self._twin.object

    @property
    def cube_reading(self) -> CubeReading:
        """Return the latest measurements of the cubes, of the time of those of the joints."""
        return self._cubes_at(self.reading.stamp, np.arange(len(self._time)))

    def reset(self, rows: NDArray[np.intp], random: np.random.Generator) -> NDArray[np.float32]:
        """Start episodes of arms ``rows``, int [N]; return observations, float32 [N, features]."""
        count = len(rows)
        twins, by_camera = self._draw(count, random)
        cubes = self._cube_ranges.draw(random, count)
        starts = draw_starts(self._world, by_camera, self.is_open, random)
        self._bend(starts, by_camera, random)
        play = random.uniform(-1.0, 1.0, starts.shape)
        pose, goals = self._places(count, random)
        if self._practice:
            which = random.random(count) < self._practice
            starts[which], pose[which] = draw_grips(
                self._world, by_camera[which], pose[which, :2], random)
        self._twin.reset(rows, starts, play, twins.parameters, pose, cubes.mass, cubes.friction)
        reading = self._begin(rows, twins, by_camera, starts, random)
        self.goals[rows] = goals
        self._error[rows] = cubes.error
        self._distance[rows], self._tool_away[rows] = self._away(starts, pose[:, :3], goals)
        return self._observer.observe(
            reading, reading, self._time[rows], self._commands[rows],
            self._cubes_at(reading.stamp, rows), goals)

    def step(self, actions: NDArray[np.integer], random: np.random.Generator) -> Outcome:
        """Command the motors, int [B, motors]: 0 backward, 1 off, 2 forward; simulate 0.1 s."""
        directions, switched = self._command(actions, random)
        self._twin.step(directions)
        self._time += self._twin.period
        cube = self.cubes[:, :3]
        distance, tool_away = self._away(self._twin.positions, cube, self.goals)
        success = self._hold(distance <= CLOSE, self._twin.period)
        lost = (np.linalg.norm(cube[:, :2], axis=1) > LOST) | (cube[:, 2] < 0.0)
        if self._dense:
            rewards = (PROGRESS * (self._distance - distance)
                       + APPROACH * (self._tool_away - tool_away)
                       + WITHIN * np.maximum(1.0 - distance / CLOSE, 0.0) + SUCCESS * success
                       - STEP_COST - SWITCH_COST * switched)
        else:
            rewards = success.astype(np.float64)
        self._distance, self._tool_away = distance, tool_away
        before: JointReading = self._before
        self._before = self._sensor.read(self._twin, self._time, random)
        observations = self._observer.observe(
            self._before, before, self._time, self._commands, self.cube_reading, self.goals)
        return Outcome(observations, rewards, success, distance, lost & ~success, switched,
                       *self._lags())

    def render(self, arm: int) -> NDArray[np.uint8]:
        """Return an image of one arm, its cube and its goal, uint8 [H, W, 3]."""
        return self._renderer.render(self.positions[arm], self.goals[arm], self.cubes[arm])

    def close(self) -> None:
        """Free the renderer and the simulation."""
        self._renderer.close()
        self._twin.close()

    def _places(self, count: int, random: np.random.Generator) -> tuple[Array, Array]:
        """Return poses of cubes at rest, float64 [N, 7], and goals, float64 [N, 3], m."""
        cube, goals = np.empty((count, 2)), np.empty((count, 2))
        rows = np.arange(count)
        while len(rows):
            radius = np.sqrt(random.uniform(NEAREST**2, FARTHEST**2, len(rows)))
            cube[rows] = radius[:, None] * _direction(random.uniform(-SIDE, SIDE, len(rows)))
            away = random.uniform(SHORTEST, LONGEST, len(rows))[:, None]
            goals[rows] = cube[rows] + away * _direction(
                random.uniform(-np.pi, np.pi, len(rows)))
            radius = np.linalg.norm(goals[rows], axis=1)
            side = np.abs(np.arctan2(goals[rows, 1], goals[rows, 0]))
            rows = rows[(radius < NEAREST) | (radius > FARTHEST) | (side > SIDE)]
        height = np.where(random.random(count) < self.lifted,
                          random.uniform(LOWEST, HIGHEST, count), 0.0) + EDGE / 2.0
        half = random.uniform(-np.pi, np.pi, count) / 2.0
        zeros = np.zeros(count)
        pose = np.column_stack([
            cube, np.full(count, EDGE / 2.0), np.cos(half), zeros, zeros, np.sin(half)])
        return pose, np.column_stack([goals, height])

    def _away(self, positions: Array, cube: Array, goals: Array) -> tuple[Array, Array]:
        """Return the distances of cubes from goals and of ``tool0`` from its place, m."""
        tool = self._kinematics.pose(positions)[:, :3, 3]
        grip = grip_point(cube, goals, self.behind)
        return np.linalg.norm(cube - goals, axis=1), np.linalg.norm(tool - grip, axis=1)

    def _cubes_at(self, stamp: Array, rows: NDArray[np.intp]) -> CubeReading:
        """Return what is measured of the cubes of ``rows`` at the time ``stamp``, [N], s."""
        age = np.zeros(len(self._time))
        age[rows] = self._time[rows] - stamp
        pose = self._twin.object_before(age)[rows]
        place = pose[:, :3].copy()
        place[:, :2] += self._error[rows]
        w, x, y, z = pose[:, 3:].T
        angle = np.arctan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
        return CubeReading(place, angle)


class PushTask(CubeTask):
    """The gripper stays closed and pushes the cube over the table."""

    motors = MOVING
    lifted = 0.0
    behind = 0.03
    is_open = False
    observation_space = feature_space(cube_features(motors))
    action_space = spaces.MultiDiscrete([3] * len(motors))


class PickPlaceTask(CubeTask):
    """The gripper takes the cube; half of the goals are above the table."""

    motors = JOINTS
    lifted = 0.5
    behind = 0.0
    is_open = True
    observation_space = feature_space(cube_features(motors))
    action_space = spaces.MultiDiscrete([3] * len(motors))

    def __init__(self, count: int, *arguments: Any, practice: float = 0.0, **more: Any) -> None:
        """
        Make ``count`` arms; arguments as of :class:`CubeTask`, and one for training.

        Args:
            count: number of arms, B.
            arguments: of ``CubeTask``.
            practice: share of episodes that begin with the open gripper around the cube.
            more: of ``CubeTask``.

        Raises:
            EnvError: an argument that is not allowed.
        """
        check_range('practice', practice, 0.0, 1.0)
        super().__init__(count, *arguments, **more)
        self._practice = practice


def _direction(angle: Array) -> Array:
    """Return unit vectors, float64 [N, 2]."""
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)
