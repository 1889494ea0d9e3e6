"""The tasks *push* and *pick and place*: an arm, a cube and a goal.

:func:`cube_features` states names, order and units of the numbers of their observations.
"""

import functools
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vdl_ros.arm.geometry import EDGE, ArmGeometry
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.arm.simulation.scene import (
    CUBE,
    CollisionChecker,
    add_cube,
    build_scene,
    cube_address,
)
from vdl_ros.arm.simulation.twins import MEMORY, PhysicsTwin
from vdl_ros.envs.owi535.arm_env import (
    MOVING,
    NEAR,
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
from vdl_ros.envs.owi535.arm_task import (
    CLOSE,
    AddedDelay,
    ArmTask,
    Bools,
    Ranges,
    World,
    check_range,
    shaped,
    uniform,
)
from vdl_ros.envs.registration import PICK_PLACE_STEPS, PUSH_STEPS

Array = NDArray[np.float64]


class CubeRanges(NamedTuple):
    """Ranges of mass, kg, friction, and the distance of measured from true places, m."""

    mass: Ranges
    friction: Ranges
    error: Ranges

    def draw(self, random: np.random.Generator, count: int) -> tuple[Array, Array, Array]:
        """Return mass and friction on table and fingers, [count], and errors, [count, 2]."""
        mass, friction, error = (uniform(random, ranges, (count,)) for ranges in self)
        away = _direction(random.uniform(-np.pi, np.pi, count))
        return mass, friction, error[:, None] * away


#: By the value of an environment's argument ``randomisation``.
CUBES = {
    'inside': CubeRanges(((0.02, 0.05),), ((0.4, 0.8),), ((0.0, 0.004),)),
    'held_out': CubeRanges(((0.01, 0.02), (0.05, 0.07)), ((0.3, 0.4), (0.8, 1.0)),
                           ((0.004, 0.008),)),
    'none': CubeRanges(((0.03, 0.03),), ((0.6, 0.6),), ((0.0, 0.0),))}


class CubeReading(NamedTuple):
    """Its centre in ``base_link``, float64 [..., 3], m, and turn about the vertical axis, rad."""

    place: Array
    angle: Array


def cube_features(motors: Sequence[str]) -> tuple[Feature, ...]:
    """Return the features of a task with these motors, the first ones of ``JOINTS``."""
    return (
        *arm_features(motors), *target_features('grip'),
        *(Feature(f'cube_from_tool_{axis}', 'm', 2.0) for axis in ('forward', 'left', 'z')),
        *(Feature(f'goal_from_cube_{axis}', 'm', 2.0)
          for axis in ('x', 'y', 'z', 'forward', 'left')),
        Feature('goal_nearness', '', 1.0),
        *(Feature(f'{motor}_push', 'm/rad', 1.0) for motor in MOVING),
        Feature('cube_turn_cos', '', 1.0), Feature('cube_turn_sin', '', 1.0),
        Feature('age', 's', 1.0))


def grip_point(cube: Array, goal: Array, behind: float) -> Array:
    """Return where ``tool0`` should be to move the cube, float64 [..., 3], m.

    It is ``behind`` the cube, m, seen from the goal; nearer to its centre as the goal is nearer
    than ``CLOSE``.
    """
    away = goal - cube
    distance = np.linalg.norm(away, axis=-1, keepdims=True)
    return np.asarray(cube - behind * away / np.maximum(distance, CLOSE))


class CubeObserver(ArmObserver):
    """Assembles observations for one arm, or for many at once."""

    def __init__(self, geometry: ArmGeometry, motors: Sequence[str], behind: float) -> None:
        super().__init__(geometry, motors)
        self._behind = behind
        self._space = feature_space(cube_features(motors), motors)

    def observe(
        self, reading: JointReading, before: JointReading, now: Array, commands: NDArray[np.int8],
        cube: CubeReading, goal: Array,
    ) -> NDArray[np.float32]:
        """Return the observation, float32 [..., features]; arguments as of ``ArmObserver.view``.

        Args:
            now: the time, of the clock of the stamps, float64 [...], s.
            goal: where the cube's centre should be, in ``base_link``, float64 [..., 3], m.
        """
        view = self.view(reading, before, commands)
        grip = grip_point(cube.place, goal, self._behind)
        from_tool, from_cube = cube.place - view.tool, goal - cube.place
        distance = np.linalg.norm(from_cube, axis=-1, keepdims=True)
        push = ((from_cube / np.maximum(distance, CLOSE))[..., None, :] @ view.jacobian)[..., 0, :]
        plane = np.arctan2(view.turntable[..., 1, 0], view.turntable[..., 0, 0])
        # A quarter of a turn makes no difference.
        turn = 4.0 * (cube.angle - plane)[..., None]
        return bounded([
            view.features, self.towards(view, grip),
            view.turned(from_tool), from_tool[..., 2:], from_cube, view.turned(from_cube),
            NEAR / (NEAR + distance), push, np.cos(turn), np.sin(turn),
            np.asarray(now - reading.stamp)[..., None]], self._space)


#: The area of cubes and goals in front of the arm: distances from the base's axis, m, and largest
#: angle to either side, rad.
MIN_RADIUS, MAX_RADIUS, MAX_ANGLE = 0.16, 0.25, 1.2
#: Heights of ``tool0``, m: above any cube, and around one on the table.
_ABOVE, _AROUND = (0.06, 0.12), (0.01, 0.018)
#: The third component of the hand's direction: downwards, so that no other part is as low as a
#: cube; and at least 30 degrees downwards.
_DOWN, _STEEP = 0.0, -0.5
#: How far the gripper is open around a cube, share of its range: from where the cube is just free.
_OPEN = (0.85, 1.0)
#: Largest difference between the directions of gripper and cube, rad.
_ASLANT = 0.1
#: So many poses have about the same distance from the axis.
_CHOICE = 8


def draw_starts(
    world: World, by_camera: Bools, is_open: bool, random: np.random.Generator,
) -> Array:
    """Return random poses above a cube, float64 [N, 5], rad; by camera of a straight wrist."""
    starts = np.empty((len(by_camera), len(JOINTS)))
    for poses, which in zip(_above(world), (~by_camera, by_camera), strict=True):
        starts[which] = poses[random.integers(len(poses), size=int(which.sum()))]
    if is_open:
        gripper = JOINTS.index('gripper')
        starts[:, gripper] = world.scene.geometry.upper[gripper]
    return starts


def draw_grips(
    world: World, by_camera: Bools, cubes: Array, random: np.random.Generator,
) -> tuple[Array, Array]:
    """Return random poses around cubes, open, and the poses of these cubes.

    Args:
        cubes: where the cubes are to be, about, float64 [N, 2], m.

    Returns:
        Joint positions, float64 [N, 5], rad, and poses of cubes that lie on the table in the
        direction of the fingers, float64 [N, 7], m and quaternions w, x, y, z.
    """
    geometry = world.scene.geometry
    count, base, gripper = len(cubes), JOINTS.index('base'), JOINTS.index('gripper')
    grips = np.empty((count, len(JOINTS)))
    radius, angle = np.linalg.norm(cubes, axis=1), np.arctan2(cubes[:, 1], cubes[:, 0])
    for (poses, reach), which in zip(_around(world), (~by_camera, by_camera), strict=True):
        nearest = np.abs(reach - radius[which][:, None]).argsort(axis=1)[:, :_CHOICE]
        chosen = random.integers(_CHOICE, size=len(nearest))
        grips[which] = poses[nearest[np.arange(len(nearest)), chosen]]
    grips[:, base] += angle
    grips[:, gripper] = random.uniform(*_OPEN, count) * geometry.upper[gripper]
    half = (angle + random.uniform(-_ASLANT, _ASLANT, count)) / 2.0
    tool = Kinematics(geometry).pose(grips)[:, :2, 3]
    zeros = np.zeros(count)
    return grips, np.column_stack([
        tool, np.full(count, EDGE / 2.0), np.cos(half), zeros, zeros, np.sin(half)])


@functools.cache
def _above(world: World) -> tuple[Array, Array]:
    """Return poses above a cube, float64 [M, 5]: of any wrist, and of a straight one."""
    found = []
    for space in (world.free, world.straight):
        pose = Kinematics(world.scene.geometry).pose(space.poses)
        low, high = _ABOVE
        height, side = pose[:, 2, 3], np.arctan2(pose[:, 1, 3], pose[:, 0, 3])
        found.append(space.poses[(height > low) & (height < high) & (np.abs(side) < MAX_ANGLE)
                                 & (pose[:, 2, 2] < _DOWN)])
    return found[0], found[1]


@functools.cache
def _around(world: World) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return poses around a cube, float64 [M, 5], and distances from the axis, float64 [M], m."""
    scene = build_scene(world.scene.geometry, furnish=add_cube)
    checker, kinematics = CollisionChecker(scene), Kinematics(scene.geometry)
    along = cube_address(scene.model)
    assert along is not None
    base, gripper = JOINTS.index('base'), JOINTS.index('gripper')
    found = []
    for space in (world.free, world.straight):
        pose = kinematics.pose(space.poses)
        low, high = _AROUND
        height, radius = pose[:, 2, 3], np.linalg.norm(pose[:, :2, 3], axis=1)
        which = ((height > low) & (height < high) & (radius > MIN_RADIUS) & (radius < MAX_RADIUS)
                 & (pose[:, 2, 2] < _STEEP))
        # Turned towards a cube on the x axis; not those that bend over backwards.
        turned = space.poses[:, base] - np.arctan2(pose[:, 1, 3], pose[:, 0, 3])
        which &= np.abs(turned) < np.pi / 2.0
        poses = space.poses[which]
        poses[:, base] = turned[which]
        poses[:, gripper] = _OPEN[0] * scene.geometry.upper[gripper]
        free = np.zeros(len(poses), np.bool_)
        for row, distance in enumerate(radius[which]):
            scene.model.qpos0[along.start] = distance
            free[row] = not checker.collides(poses[row:row + 1])[0]
        found.append((poses[free], radius[which][free]))
    return found[0], found[1]


#: Distance from the base's axis where a cube is out of reach, m.
LOST = 0.33
#: How far a goal is from its cube, m.
MIN_DISTANCE, MAX_DISTANCE = 0.05, 0.12
# Goals that are tried for a cube that a robot has.
_TRIED = 200
#: Heights of lifted goals above the table, m.
MIN_HEIGHT, MAX_HEIGHT = 0.03, 0.08
#: Dense reward: for each m of the cube nearer to the goal, and of ``tool0`` nearer to where it
#: moves the cube.
PROGRESS, APPROACH = 40.0, 10.0


def dense_reward(
    nearer: Array, approached: Array, distance: Array, success: Bools,
    switched: NDArray[np.intp],
) -> Array:
    """Return the dense reward of a step of N arms, float64 [N].

    Args:
        nearer: how much nearer the cube came to its goal, m.
        approached: and ``tool0`` to where it moves the cube, m.
        distance: of the cube from the goal after it, m.
    """
    return shaped(PROGRESS * nearer + APPROACH * approached, distance, success, switched)


def is_lost(cubes: Array) -> Bools:
    """Return which cubes, float64 [N, 3], m, are out of reach or have fallen, bool [N]."""
    lost: Bools = (np.linalg.norm(cubes[:, :2], axis=1) > LOST) | (cubes[:, 2] < 0.0)
    return lost


class CubeTask(ArmTask):
    """B arms, each with a cube and its goal; arguments as of :class:`ArmTask`.

    ``goals`` are float64 [B, 3], m in ``base_link``; ``cubes`` the true poses, float64 [B, 7], m
    and quaternions w, x, y, z.
    """

    event, is_fatal = 'lost', True
    #: Share of the goals that is above the table.
    lifted: ClassVar[float]
    #: How far behind the cube ``tool0`` moves it, m.
    behind: ClassVar[float]
    #: Whether the gripper is open at the start.
    is_open: ClassVar[bool]
    #: Share of episodes that begin around the cube.
    _practice = 0.0
    _twin: PhysicsTwin

    def __init__(
        self, count: int, reward: str = 'dense', randomisation: str = 'inside',
        feedback: str = 'truth', calibration: str = '', **delays: AddedDelay,
    ) -> None:
        super().__init__(count, reward, randomisation, feedback, calibration, **delays)
        self._cube_ranges = CUBES[randomisation]
        self._observer = CubeObserver(self.geometry, self.motors, self.behind)
        self._twin = PhysicsTwin(
            build_scene(self.geometry, furnish=add_cube), count, CUBE, 1.0 / RATE,
            MEMORY + self._delays[0].high)
        self.goals: Array = np.zeros((count, 3))
        self._error, self._tool_away = np.zeros((count, 2)), np.zeros(count)

    @property
    def cubes(self) -> Array:
        return self._twin.object

    @property
    def cube_reading(self) -> CubeReading:
        """Return the latest measurements of the cubes, of the time of those of the joints."""
        return self._cubes_at(self.reading.stamp, slice(None))

    def reset(self, rows: NDArray[np.intp], random: np.random.Generator) -> Any:
        count = len(rows)
        twins, by_camera = self._draw(count, random)
        mass, friction, error = self._cube_ranges.draw(random, count)
        starts = draw_starts(self._world, by_camera, self.is_open, random)
        play = self._bend(starts, by_camera, random)
        pose, goals = self._places(count, random)
        if self._practice:
            which = random.random(count) < self._practice
            starts[which], pose[which] = draw_grips(
                self._world, by_camera[which], pose[which, :2], random)
        self._twin.reset(rows, starts, play, twins.parameters, pose, mass, friction)
        reading = self._begin(rows, twins, by_camera, starts, random)
        self.goals[rows] = goals
        self._error[rows] = error
        self._distance[rows] = np.linalg.norm(pose[:, :3] - goals, axis=1)
        self._tool_away[rows] = self._away(starts, pose[:, :3], goals)
        return self._observe(reading, reading, rows)

    def _simulate(self, directions: NDArray[np.int8]) -> tuple[Array, Bools]:
        self._twin.step(directions)
        cube = self.cubes[:, :3]
        return np.linalg.norm(cube - self.goals, axis=1), is_lost(cube)

    def _reward(
        self, distance: Array, success: Bools, switched: NDArray[np.intp], happened: Bools,
    ) -> Array:
        before, self._tool_away = self._tool_away, self._away(
            self.positions, self.cubes[:, :3], self.goals)
        return dense_reward(self._distance - distance, before - self._tool_away, distance, success,
                            switched)

    def _observe(self, reading: JointReading, before: JointReading, rows: Any) -> Any:
        return self._observer.observe(
            reading, before, self.time[rows], self._commands[rows],
            self._cubes_at(reading.stamp, rows), self.goals[rows])

    def render(self, arm: int) -> NDArray[np.uint8]:
        return self._renderer.render(self.positions[arm], self.goals[arm], self.cubes[arm])

    def close(self) -> None:
        super().close()
        self._twin.close()

    def _places(self, count: int, random: np.random.Generator) -> tuple[Array, Array]:
        """Return poses of cubes at rest, float64 [N, 7], and goals, float64 [N, 3], m."""
        cube, goals = np.empty((count, 2)), np.empty((count, 2))
        rows = np.arange(count)
        while len(rows):
            radius = np.sqrt(random.uniform(MIN_RADIUS**2, MAX_RADIUS**2, len(rows)))
            angle = random.uniform(-MAX_ANGLE, MAX_ANGLE, len(rows))
            cube[rows] = radius[:, None] * _direction(angle)
            goals[rows], good = _goals(cube[rows], random)
            rows = rows[~good]
        height = goal_heights(self.lifted, count, random)
        half = random.uniform(-np.pi, np.pi, count) / 2.0
        zeros = np.zeros(count)
        pose = np.column_stack([
            cube, np.full(count, EDGE / 2.0), np.cos(half), zeros, zeros, np.sin(half)])
        return pose, np.column_stack([goals, height])

    def _away(self, positions: Array, cube: Array, goals: Array) -> Array:
        """Return the distance of ``tool0`` from where it moves the cube, float64 [N], m."""
        tool = self._kinematics.pose(positions)[:, :3, 3]
        away: Array = np.linalg.norm(tool - grip_point(cube, goals, self.behind), axis=1)
        return away

    def _cubes_at(self, stamp: Array, rows: Any) -> CubeReading:
        """Return what is measured of the cubes of ``rows`` at the time ``stamp``, [N], s."""
        age = np.zeros(len(self.time))
        age[rows] = self.time[rows] - stamp
        pose = self._twin.object_before(age)[rows]
        place = pose[:, :3].copy()
        place[:, :2] += self._error[rows]
        w, x, y, z = pose[:, 3:].T
        angle = np.arctan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
        return CubeReading(place, angle)


def _goals(cubes: Array, random: np.random.Generator) -> tuple[Array, Bools]:
    """Return a random goal for each place of a cube, [N, 2], m, and whether it is in the area."""
    away = random.uniform(MIN_DISTANCE, MAX_DISTANCE, len(cubes))[:, None]
    goals = cubes + away * _direction(random.uniform(-np.pi, np.pi, len(cubes)))
    radius, side = np.linalg.norm(goals, axis=1), np.abs(np.arctan2(goals[:, 1], goals[:, 0]))
    return goals, (radius >= MIN_RADIUS) & (radius <= MAX_RADIUS) & (side <= MAX_ANGLE)


def goal_heights(lifted: float, count: int, random: np.random.Generator) -> Array:
    """Return heights of goals, float64 [N], m, of which the share ``lifted`` is lifted."""
    return np.where(random.random(count) < lifted,
                    random.uniform(MIN_HEIGHT, MAX_HEIGHT, count), 0.0) + EDGE / 2.0


def goal_near(cube: Array, lifted: float, random: np.random.Generator) -> Array:
    """Return a random goal for a cube, float64 [3], m, that may lie where goals do not."""
    goals, good = _goals(np.tile(cube[:2], (_TRIED, 1)), random)
    height = goal_heights(lifted, 1, random)
    if good.any():
        return np.append(goals[good.argmax()], height)
    angle = np.clip(np.arctan2(cube[1], cube[0]), -MAX_ANGLE, MAX_ANGLE)
    return np.append((MIN_RADIUS + MAX_RADIUS) / 2.0 * _direction(angle), height)


class PushTask(CubeTask):
    """The gripper stays closed and pushes the cube over the table."""

    steps, lifted, behind, is_open = PUSH_STEPS, 0.0, 0.03, False
    observation_space = feature_space(cube_features(MOVING))
    action_space = spaces.MultiDiscrete([3] * len(MOVING))


class PickPlaceTask(CubeTask):
    """The gripper takes the cube; half of the goals are above the table.

    Args:
        practice: share of episodes that begin with the open gripper around the cube.
    """

    motors = JOINTS
    steps, lifted, behind, is_open = PICK_PLACE_STEPS, 0.5, 0.0, True
    observation_space = feature_space(cube_features(JOINTS), JOINTS)
    action_space = spaces.MultiDiscrete([3] * len(JOINTS))

    def __init__(self, count: int, *arguments: Any, practice: float = 0.0, **more: Any) -> None:
        check_range('practice', practice, 0.0, 1.0)
        super().__init__(count, *arguments, **more)
        self._practice = practice


def _direction(angle: Array) -> Array:
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


PushEnv, PushVectorEnv = environments(PushTask)
PickPlaceEnv, PickPlaceVectorEnv = environments(PickPlaceTask)
