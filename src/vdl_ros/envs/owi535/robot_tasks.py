"""The arm's tasks on its topics, for contracts: reach, push, pick and place.

Observations, rewards and success are those of the environments. No ROS.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vdl_ros.arm.geometry import ArmGeometry, GeometryConfig
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.envs.owi535 import cube, reach
from vdl_ros.envs.owi535.arm_env import IN_FLIGHT, Feature, JointReading, bounded, feature_space
from vdl_ros.envs.owi535.arm_task import CLOSE, CUBE, HOLD, check_range, world
from vdl_ros.robots.contract import Contract, ContractError
from vdl_ros.robots.task import Measured, Task

Array = NDArray[np.float64]

_WRIST = JOINTS.index('wrist')
_COMMANDS = [feature for feature in reach.FEATURES if '_command_' in feature.name]
#: Features of a contract that measure the cube: m in ``base_link``, and rad.
CUBE_FEATURES = ('cube_x', 'cube_y', 'cube_z', 'cube_yaw')


class Past:
    """What an observation and success depend on: two measurements, and how long it was close."""

    def __init__(self) -> None:
        self._before: JointReading | None = None
        self._latest: JointReading | None = None
        self.close_since = math.nan

    def before(self, reading: JointReading) -> JointReading:
        """Return the measurement before this one, or this one if it is the first."""
        # The same measurement may come twice, by a slow camera.
        if self._latest is None or reading.stamp != self._latest.stamp:
            self._before, self._latest = self._latest, reading
        return self._before or reading

    def is_success(
        self, now: float, distance: float, rate: float, close: float = CLOSE, hold: float = HOLD,
    ) -> bool:
        """Return whether ``distance`` has been within ``close``, m, for ``hold``, s."""
        if distance > close:
            self.close_since = math.nan
            return False
        if math.isnan(self.close_since):
            self.close_since = now
        # Updates vary a little in time.
        return now - self.close_since >= hold - 0.5 / rate


class PlaceTask(Task):
    """Something has to be within ``close`` of the target, m, for ``hold``, s.

    ``needed`` are the features that the contract must have.

    Raises:
        ContractError: the contract lacks a feature.
        ValueError: a distance or time that is not allowed.
    """

    def __init__(
        self, contract: Contract, needed: Sequence[str], close: float = CLOSE, hold: float = HOLD,
    ) -> None:
        super().__init__(contract)
        check_range('close', close, 0.001, 1.0)
        check_range('hold', hold, 0.0, 60.0)
        if missing := {*needed} - {feature.name for feature in contract.features}:
            raise ContractError(f'features: {", ".join(sorted(missing))}: missing: '
                                f'{", ".join(needed)}')
        self._near = contract.rate, close, hold
        self.target: Array = np.zeros(3)
        self._forget()

    def _forget(self) -> None:
        self._past, self._success = Past(), False

    def begin(self, measured: Measured, random: np.random.Generator) -> None:
        self._forget()

    def success(self, after: Measured) -> bool:
        return self._success

    def _judge(self, after: Measured, distance: float) -> NDArray[np.bool_]:
        """Take the distance from the target; return success as the rewards take it, bool [1]."""
        self.distance = distance
        self._success = self._past.is_success(after.time, distance, *self._near)
        return np.array([self._success])


class ArmOnRobot(PlaceTask):
    """A task of the arm: the motors of the contract are those of the environment.

    Args:
        motors: the first ones of ``JOINTS``.
        features: that the contract needs beside the joints.
        urdf, xacro_args: of the arm's description, as of ``arm.launch.py``.

    Raises:
        ContractError: the contract has other actions, or as of :class:`PlaceTask`.
    """

    def __init__(
        self, contract: Contract, motors: Sequence[str], features: Sequence[str] = (), *,
        close: float = CLOSE, hold: float = HOLD, urdf: str = '', xacro_args: str = '',
    ) -> None:
        super().__init__(contract, (*JOINTS, *features), close, hold)
        parts = contract.actions.parts
        if [(part.name, part.levels) for part in parts] != [
                (name, (-1.0, 0.0, 1.0)) for name in motors]:
            raise ContractError(f'actions: parts: {[part.name for part in parts]} is not allowed: '
                                f'{", ".join(motors)}, each with levels [-1, 0, 1]')
        self._source = next(each.source for each in contract.features if each.name == JOINTS[0])
        self._geometry = GeometryConfig(urdf, xacro_args).load()
        self._kinematics, self._assumed = Kinematics(self._geometry), self._geometry.upright

    def command(self, action: NDArray[np.float64], measured: Measured) -> NDArray[np.float64]:
        """Keep a wrist that is not measured where it is, as in the environment."""
        if math.isnan(measured['wrist']):
            action = np.where(np.arange(len(action)) == _WRIST, 0.0, action)
        return action

    def _reading(self, measured: Measured) -> tuple[JointReading, Array, NDArray[np.int8]]:
        """Return the joints, the time, s, and the latest commands, int8 [IN_FLIGHT, motors]."""
        stamp = measured.stamps[self._source]
        reading = JointReading(np.array([measured[name] for name in JOINTS]), np.array(stamp))
        return (reading, np.array(stamp + measured.ages[self._source]),
                measured.actions[:IN_FLIGHT].astype(np.int8))

    def _positions(self, measured: Measured) -> Array:
        positions = np.array([measured[name] for name in JOINTS])
        return np.where(np.isfinite(positions), positions, self._assumed)

    def _tools(self, before: Measured, after: Measured) -> tuple[Array, Array]:
        """Return joints, float64 [2, 5], rad, and places of ``tool0``, float64 [2, 3], m."""
        positions = np.stack([self._positions(before), self._positions(after)])
        return positions, self._kinematics.pose(positions)[:, :3, 3]


class ReachOnRobot(ArmOnRobot):
    """A random reachable target in each episode; it ends ``hold`` after ``tool0`` is there.

    Args:
        joints: whether measured joints are observed, and not only rewarded. Without them the
            observation is the place of the target, the latest commands, and the ages of images.
        place: the target of each episode instead, float [3], m in ``base_link``.
    """

    def __init__(
        self, contract: Contract, joints: bool = True, place: Sequence[float] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(contract, reach.MOTORS, (), **more)
        self._seen = reach.SPACE if joints else feature_space([
            *_COMMANDS, *(Feature(f'target_{axis}', 'm', 1.0) for axis in 'xyz'),
            *(Feature(f'{image.name}_age', 's', 1.0) for image in contract.observed_images)])
        self._world = world()
        self._observer = reach.ReachObserver(self._geometry)
        self._at_target = np.zeros((reach.POSES_AT_TARGET, len(JOINTS)))
        # Whether the target is a person's, or the contract's.
        self._is_asked = place is not None
        if place is not None:
            self._turn_to(np.array(place, np.float64), is_straight=False)

    @staticmethod
    def description(contract: Contract) -> dict[str, Any]:
        """As of the environment of the same task; of one arm, which nobody measured.

        Without joints it is another task, for no other program.
        """
        if contract.task is not None and not contract.task.arguments.get('joints', True):
            return {}
        found = reach.describe(rate=contract.rate)
        del found['twins']
        return found | {'robot': contract.name}

    @staticmethod
    def check_policy(contract: Contract, described: Mapping[str, Any]) -> None:
        reach.check(described, _geometry(contract))

    @property
    def observation_space(self) -> spaces.Box:
        return self._seen

    def begin(self, measured: Measured, random: np.random.Generator) -> None:
        super().begin(measured, random)
        if self._is_asked:
            return
        space = self._world.straight if math.isnan(measured['wrist']) else self._world.free
        drawn = space.draw(random, 1)
        self.target = space.places[drawn[0]]
        self._at_target = space.neighbours(random, drawn, reach.POSES_AT_TARGET)[0]

    def aim(self, place: Array, values: Mapping[str, float]) -> None:
        # A target may come before the first measurement.
        self._turn_to(place, is_straight=math.isnan(values.get('wrist', 0.0)))
        self._forget()
        self._is_asked, self.distance = True, math.nan

    def _turn_to(self, place: Array, *, is_straight: bool) -> None:
        space = self._world.straight if is_straight else self._world.free
        away = np.linalg.norm(space.places - place, axis=1)
        if away.min() > CUBE:
            raise ValueError(f'no pose without a collision comes nearer than '
                             f'{100.0 * away.min():.0f} cm to the target')
        self.target = place
        self._at_target = np.tile(space.poses[away.argmin()], (reach.POSES_AT_TARGET, 1))

    def begin_demonstrated(self, measured: Sequence[Measured]) -> None:
        """Take the place of ``tool0`` at the end as the target."""
        self._forget()
        positions = self._positions(measured[-1])
        self.target = self._kinematics.pose(positions)[:3, 3]
        self._at_target = np.tile(positions, (reach.POSES_AT_TARGET, 1))

    def observe(self, measured: Measured) -> NDArray[np.float32]:
        if self._seen is not reach.SPACE:
            ages = [measured.ages[image.name] for image in self.contract.observed_images]
            return bounded(
                [measured.actions[:IN_FLIGHT].ravel(), self.target, np.array(ages)], self._seen)
        reading, now, commands = self._reading(measured)
        return self._observer.observe(
            reading, self._past.before(reading), now, commands, self.target)

    def reward(self, before: Measured, after: Measured) -> float:
        """Return the dense reward of the environment."""
        positions, tools = self._tools(before, after)
        distances = np.linalg.norm(tools - self.target, axis=1)
        travel = reach.travel_time(
            self._geometry, positions, np.broadcast_to(
                self._at_target, (2, *self._at_target.shape)))
        success = self._judge(after, float(distances[1]))
        switched = np.count_nonzero(before.actions[0] != after.actions[0])
        return float(reach.dense_reward(
            distances[:1] - distances[1:], travel[:1] - travel[1:], distances[1:],
            success, np.array([switched]), self._world.checker.collides(positions[1:]))[0])


class _CubeOnRobot(ArmOnRobot):
    """The cube gets a random goal in each episode, which ends ``hold`` after it is there."""

    task: ClassVar[type[cube.CubeTask]]

    def __init__(self, contract: Contract, **more: Any) -> None:
        super().__init__(contract, self.task.motors, CUBE_FEATURES, **more)
        self._observer = cube.CubeObserver(self._geometry, self.task.motors, self.task.behind)

    @property
    def observation_space(self) -> spaces.Box:
        space: spaces.Box = self.task.observation_space
        return space

    def begin(self, measured: Measured, random: np.random.Generator) -> None:
        super().begin(measured, random)
        self.target = cube.goal_near(_cube(measured).place, self.task.lifted, random)

    def begin_demonstrated(self, measured: Sequence[Measured]) -> None:
        """Take the place of the cube at the end as the goal."""
        self._forget()
        self.target = _cube(measured[-1]).place

    def observe(self, measured: Measured) -> NDArray[np.float32]:
        reading, now, commands = self._reading(measured)
        return self._observer.observe(
            reading, self._past.before(reading), now, commands, _cube(measured), self.target)

    def reward(self, before: Measured, after: Measured) -> float:
        """Return the dense reward of the environment."""
        _, tools = self._tools(before, after)
        cubes = np.stack([_cube(before).place, _cube(after).place])
        grips = cube.grip_point(cubes, self.target, self.task.behind)
        away = np.linalg.norm(tools - grips, axis=1)
        distances = np.linalg.norm(cubes - self.target, axis=1)
        success = self._judge(after, float(distances[1]))
        switched = np.count_nonzero(before.actions[0] != after.actions[0])
        return float(cube.dense_reward(
            distances[:1] - distances[1:], away[:1] - away[1:], distances[1:], success,
            np.array([switched]))[0])

    def failure(self, after: Measured) -> bool:
        """Return whether the cube is out of reach, or has fallen."""
        return bool(cube.is_lost(_cube(after).place[None])[0])


class PushOnRobot(_CubeOnRobot):
    """The closed gripper pushes the cube over the table."""

    task = cube.PushTask


class PickPlaceOnRobot(_CubeOnRobot):
    """The gripper takes the cube; half of the goals are above the table."""

    task = cube.PickPlaceTask


def _geometry(contract: Contract) -> ArmGeometry:
    arguments = contract.task.arguments if contract.task else {}
    return GeometryConfig(
        arguments.get('urdf', ''), arguments.get('xacro_args', '')).load()


def _cube(measured: Measured) -> cube.CubeReading:
    *place, yaw = (measured[name] for name in CUBE_FEATURES)
    return cube.CubeReading(np.array(place), np.array(yaw))
