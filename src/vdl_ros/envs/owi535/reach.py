"""The task *reach*: its observation, for the real arm too, and what a checkpoint says of it.

``FEATURES`` states names, order and units of the numbers of an observation.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vdl_ros.arm.geometry import ArmGeometry, load
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.arm.simulation.twins import MEMORY, KinematicTwin
from vdl_ros.common.quoting import quoted
from vdl_ros.envs.owi535.arm_env import (
    IN_FLIGHT,
    MOVING,
    RATE,
    ArmObserver,
    Feature,
    JointReading,
    arm_features,
    bounded,
    environments,
    feature_space,
    target_features,
)
from vdl_ros.envs.owi535.arm_task import ArmTask, Bools, check_range, ranges_and_speed, shaped
from vdl_ros.envs.owi535.task_renderer import TaskRenderer
from vdl_ros.envs.registration import REACH, REACH_STEPS

Array = NDArray[np.float64]

#: The motors of the task, in the order of actions: the gripper does not move ``tool0``.
MOTORS = MOVING
FEATURES = (*arm_features(MOTORS), *target_features(), Feature('age', 's', 1.0))
SPACE = feature_space(FEATURES)


class ReachObserver(ArmObserver):
    """Assembles observations of the task for one arm, or for many at once."""

    def observe(
        self, reading: JointReading, before: JointReading, now: Array, commands: NDArray[np.int8],
        target: Array,
    ) -> NDArray[np.float32]:
        """Return the observation, float32 [..., len(FEATURES)]; arguments as of ``view``.

        Args:
            now: the time, of the clock of the stamps, float64 [...], s.
            target: the place that ``tool0`` should reach, in ``base_link``, float64 [..., 3], m.
        """
        view = self.view(reading, before, commands)
        age = np.asarray(now - reading.stamp)[..., None]
        return bounded([view.features, self.towards(view, target), age], SPACE)


# Rates that are allowed, Hz.
_RATES = 1.0, 100.0
#: Dense reward: for each m nearer to the target, for each s of travel less; cost of a collision.
PROGRESS, TRAVEL, COLLISION_COST = 10.0, 1.0, 0.05
#: Number of poses at the target of which the nearest counts, and the travel, s, below which they
#: do not matter: their places are up to a cube of the workspace away from the target.
POSES_AT_TARGET, NO_TRAVEL = 16, 0.3
# Joints that an obstacle holds, tried in this order: the weaker clutch slips first.
_HELD = np.array([[name in names for name in JOINTS] for names in (
    ('wrist',), ('elbow',), ('shoulder',), ('base',), ('elbow', 'wrist'),
    ('shoulder', 'elbow', 'wrist'), JOINTS)])


def travel_time(geometry: ArmGeometry, positions: Array, at_target: Array) -> Array:
    """Return the time to the nearest of several poses, all joints moving at once, float64 [N], s.

    Args:
        positions: float64 [N, 5], rad.
        at_target: poses, float64 [N, K, 5], rad; the gripper does not count.
    """
    count = len(MOTORS)
    times = np.abs(at_target[..., :count] - positions[:, None, :count])
    times /= geometry.velocity[:count]
    nearest: Array = times.max(axis=2).min(axis=1)
    return np.maximum(nearest, NO_TRAVEL)


def dense_reward(
    nearer: Array, travelled: Array, distance: Array, success: Bools,
    switched: NDArray[np.intp], collided: Bools,
) -> Array:
    """Return the dense reward of a step of N arms, float64 [N].

    Args:
        nearer: how much nearer ``tool0`` came to the target, m.
        travelled: by how much the travel time became less, s.
        distance: of ``tool0`` from the target after it, m.
    """
    return shaped(PROGRESS * nearer + TRAVEL * travelled, distance, success, switched) \
        - COLLISION_COST * collided


class ReachTask(ArmTask):
    """B arms, each with a target; arguments as of :class:`ArmTask`.

    ``targets`` are float64 [B, 3], m in ``base_link``.

    Args:
        rate: steps per second, for controllers that are faster than the task, Hz.
    """

    steps, event, is_fatal = REACH_STEPS, 'collided', False
    observation_space: Any = SPACE
    action_space = spaces.MultiDiscrete([3] * len(MOTORS))
    _twin: KinematicTwin

    def __init__(self, count: int, *arguments: Any, rate: float = RATE, **more: Any) -> None:
        check_range('rate', rate, *_RATES)
        super().__init__(count, *arguments, **more)
        self._observer = ReachObserver(self.geometry)
        self._twin = KinematicTwin(
            self._world.scene, count, 1.0 / rate, MEMORY + self._delays[0].high)
        self.targets: Array = np.zeros((count, 3))
        self._travel = np.zeros(count)
        self._at_target = np.zeros((count, POSES_AT_TARGET, len(JOINTS)))

    def reset(self, rows: NDArray[np.intp], random: np.random.Generator) -> Any:
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
        self._twin.reset(rows, starts, self._bend(starts, by_camera, random), twins.parameters)
        reading = self._begin(rows, twins, by_camera, starts, random)
        self.targets[rows], self._at_target[rows] = targets, at_target
        self._travel[rows] = travel_time(self.geometry, starts, at_target)
        self._distance[rows] = np.linalg.norm(
            self._kinematics.pose(starts)[:, :3, 3] - targets, axis=1)
        return self._observe(reading, reading, rows)

    def _simulate(self, directions: NDArray[np.int8]) -> tuple[Array, Bools]:
        before = self.positions
        self._twin.step(directions)
        collided = self.checker.collides(self.positions)
        if collided.any():
            self._twin.hold(self._blocked(before, np.flatnonzero(collided)))
        tool = self._kinematics.pose(self.positions)[:, :3, 3]
        return np.linalg.norm(tool - self.targets, axis=1), collided

    def _reward(
        self, distance: Array, success: Bools, switched: NDArray[np.intp], happened: Bools,
    ) -> Array:
        before, self._travel = self._travel, travel_time(
            self.geometry, self.positions, self._at_target)
        return dense_reward(self._distance - distance, before - self._travel, distance, success,
                            switched, happened)

    def _observe(self, reading: JointReading, before: JointReading, rows: Any) -> Any:
        return self._observer.observe(
            reading, before, self.time[rows], self._commands[rows], self.targets[rows])

    def render(self, arm: int) -> NDArray[np.uint8]:
        return self._renderer.render(self.positions[arm], self.targets[arm])

    def _blocked(self, before: Array, rows: NDArray[np.intp]) -> Bools:
        """Return which joints, bool [B, 5], the obstacles of arms ``rows`` hold, as few as can."""
        blocked = np.zeros(before.shape, np.bool_)
        for held in _HELD:
            blocked[rows] = held
            tried = np.where(held, before[rows], self.positions[rows])
            rows = rows[self.checker.collides(tried)]
            if not len(rows):
                break
        return blocked


# Differences of an arm from the one of the training that are too large: of limits, rad, and of
# the places of tool0, m.
_LIMIT, _PLACE = 0.35, 0.02
# tool0 is compared with all angles at zero, and with one motor after the other turned by so much,
# rad.
_TURN = 0.5


class MisfitError(ValueError):
    """A policy that does not fit this program or this arm; the message is one line."""


def describe(
    randomisation: str = 'inside', calibration: str = '', rate: float = RATE,
) -> dict[str, Any]:
    """Return the description, plain values in SI units; arguments as of ``ReachTask``."""
    geometry = load()
    twins, speed = ranges_and_speed(randomisation, calibration, geometry)
    ranges = dataclasses.asdict(twins)
    return {
        'task': REACH, 'rate': rate, 'motors': list(MOTORS),
        'actions': ['backward', 'off', 'forward'], 'commands': IN_FLIGHT,
        'features': [[*feature] for feature in FEATURES],
        'twins': {name: [[*each] for each in ranges[name]] for name in ranges},
        'arm': {'lower': geometry.lower.tolist(), 'upper': geometry.upper.tolist(),
                'velocity': speed.tolist(), 'tool0': _places(geometry).tolist()}}


def check(found: Mapping[str, Any], geometry: ArmGeometry) -> None:
    """Check by what a checkpoint says, from wherever it comes, that its policy may move an arm.

    Raises:
        MisfitError: names the first thing that differs, its value and the right one.
    """
    wanted = describe()
    if not found:
        raise MisfitError('the checkpoint does not describe its environment: only those of '
                          f'{REACH} do; one of an earlier version gets it when it is resumed')
    try:
        # A checkpoint may hold tensors too, whose comparison is one.
        found = json.loads(json.dumps(dict(found)))
    except (TypeError, ValueError, RecursionError):
        raise MisfitError('the description of the environment is not of plain values') from None
    for name in ('task', 'rate', 'motors', 'actions', 'commands'):
        if found.get(name) != wanted[name]:
            raise MisfitError(f'{name}: {quoted(found.get(name))} is not {wanted[name]!r}')
    features = found.get('features')
    if not isinstance(features, list) or len(features) != len(FEATURES):
        number = len(features) if isinstance(features, list) else 0
        raise MisfitError(f'features: {number} are not {len(FEATURES)}')
    for index, (one, other) in enumerate(zip(features, wanted['features'], strict=True)):
        if one != other:
            raise MisfitError(f'feature {index}: {quoted(one)} is not {other!r}')
    try:
        arm = {name: np.array(found['arm'][name], np.float64).reshape(np.shape(value))
               for name, value in wanted['arm'].items()}
        # Of a policy that learned on an arm, the speed is not known.
        speeds = None if 'robot' in found else [
            (float(low), float(high)) for low, high in found['twins']['speed']]
        if speeds is not None and not speeds:
            raise ValueError
    except (KeyError, OverflowError, TypeError, ValueError):
        raise MisfitError('arm, twins: not a description of an arm') from None
    _check_arm(arm, speeds, geometry)


def _check_arm(
    arm: Mapping[str, NDArray[np.float64]], speeds: list[tuple[float, float]] | None,
    geometry: ArmGeometry,
) -> None:
    """Compare the arm of the training with this one; None: its speed is not known."""
    for index, joint in enumerate(JOINTS):
        for name in ('lower', 'upper'):
            trained, here = arm[name][index], getattr(geometry, name)[index]
            if not abs(trained - here) <= _LIMIT:
                raise MisfitError(f'{joint}: its {name} limit is {here:.3f} rad, but '
                                  f'{trained:.3f} rad in the training')
        if speeds is None:
            continue
        trained, here = arm['velocity'][index], geometry.velocity[index]
        slowest = min(low for low, _ in speeds) * trained
        fastest = max(high for _, high in speeds) * trained
        if not slowest <= here <= fastest:
            raise MisfitError(f'{joint}: its speed is {here:.3f} rad/s, but {slowest:.3f} to '
                              f'{fastest:.3f} rad/s in the training')
    away = np.linalg.norm(arm['tool0'] - _places(geometry), axis=1).max()
    if not away <= _PLACE:
        raise MisfitError(f'lengths: tool0 is up to {away:.3f} m from where the arm of the '
                          f'training has it, more than {_PLACE:g} m')


def _places(geometry: ArmGeometry) -> NDArray[np.float64]:
    """Return places of tool0 that depend on the arm's lengths, float64 [5, 3], m."""
    count = len(MOTORS)
    poses = np.zeros((count + 1, len(JOINTS)))
    poses[1:, :count] = _TURN * np.eye(count)
    return Kinematics(geometry).pose(poses)[:, :3, 3]


# The description is what a checkpoint says of it, for the node that runs its policy.
ReachEnv, ReachVectorEnv = environments(ReachTask, checkpoint_description=staticmethod(describe))

#: Width and height of the images, pixels.
SIZE = 84
#: An image for ``render()`` is so many times larger.
ENLARGED = 4
#: Columns of the observation of *reach* that do not depend on the target: with measured joints,
#: and the commands alone.
_OF_ARM = {feature.name for feature in arm_features(MOTORS)} | {'age'}
_JOINTS = [index for index, feature in enumerate(FEATURES) if feature.name in _OF_ARM]
_COMMANDS = [index for index in _JOINTS if '_command_' in FEATURES[index].name]


class ReachPixelsTask(ReachTask):
    """B arms of the task *reach*, each with an image; arguments as of :class:`ReachTask`.

    Args:
        joints: whether measured joints are observed beside image and commands.
    """

    def __init__(self, count: int, joints: bool = True, **arguments: Any) -> None:
        super().__init__(count, **arguments)
        self._columns = _JOINTS if joints else _COMMANDS
        self._images = np.zeros((count, SIZE, SIZE, 3), np.uint8)
        self._renderer = TaskRenderer(SIZE, SIZE, rod=True)
        self.observation_space = spaces.Dict({
            'image': spaces.Box(0, 255, (SIZE, SIZE, 3), np.uint8),
            'arm': feature_space([FEATURES[index] for index in self._columns])})

    def render(self, arm: int) -> NDArray[np.uint8]:
        """Return the last image of one arm, enlarged, uint8 [H, W, 3]."""
        return np.kron(self._images[arm], np.ones((ENLARGED, ENLARGED, 1), np.uint8))

    def _observe(self, reading: JointReading, before: JointReading, rows: Any) -> Any:
        numbers = super()._observe(reading, before, rows)
        # Images are as old as measurements.
        for row in np.arange(len(self._images))[rows]:
            self._renderer.render(
                self._sensor.late_positions[row], self.targets[row], out=self._images[row])
        return {'image': self._images[rows].copy(), 'arm': numbers[:, self._columns]}


ReachPixelsEnv, ReachPixelsVectorEnv = environments(ReachPixelsTask)
