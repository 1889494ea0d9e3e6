"""What the arm's tasks share: random twins, sensors, poses to reach, the step of an episode."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.calibration import calibration_file
from vdl_ros.arm.geometry import ArmGeometry
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.arm.simulation.batched_motors import TwinParameters
from vdl_ros.arm.simulation.motor_model import SimulationConfig
from vdl_ros.arm.simulation.scene import CollisionChecker, build_scene
from vdl_ros.arm.simulation.twins import KinematicTwin, PhysicsTwin
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import SettingError, build
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.owi535.arm_env import IN_FLIGHT, MOVING, JointReading, Outcome
from vdl_ros.envs.owi535.task_renderer import TaskRenderer
from vdl_ros.envs.realtime import Delay

Array = NDArray[np.float64]
#: Intervals; a value is drawn uniformly from their union.
Ranges = tuple[tuple[float, float], ...]


class Twins(NamedTuple):
    """N twins and their sensors, one for each episode.

    ``age`` is that of the youngest measurement, float64 [N], s. ``noise`` is the standard
    deviation of angles measured by camera, float64 [N, 5], rad.
    """

    parameters: TwinParameters
    age: Array
    noise: Array


# Parameters of a twin's motors, all but the speed of its joints.
_MOTORS = [field.name for field in dataclasses.fields(TwinParameters)[1:]]


@dataclasses.dataclass(frozen=True)
class TwinRanges:
    """Ranges of a twin's parameters; those of the motors have the names of ``SimulationConfig``.

    ``speed``, a multiple of the description's, and ``noise`` are drawn for each joint.
    """

    speed: Ranges = ((0.8, 1.2),)
    dead_zone: Ranges = ((0.0, 0.05),)
    start_delay: Ranges = ((0.0, 0.05),)
    time_constant: Ranges = ((0.01, 0.06),)
    load_slowdown: Ranges = ((0.0, 0.35),)
    sag: Ranges = ((0.003, 0.02),)
    command_delay: Ranges = ((0.0, 0.1),)
    #: Of a measurement when it is used: rendering, network, topics.
    age: Ranges = ((0.0, 0.15),)
    #: Of angles tracked by camera: 0.6 to 2.3 degrees.
    noise: Ranges = ((0.01, 0.04),)

    def about(self, config: SimulationConfig) -> 'TwinRanges':
        """Return these ranges about a measured arm instead of the described one.

        Each parameter of its motors is drawn as a share of the measured value, the share of
        ``speed``; those of the sensor stay as they are. Draw with its speed.
        """
        motors: dict[str, Any] = {}
        for name in _MOTORS:
            value = float(getattr(config, name))
            motors[name] = tuple((low * value, high * value) for low, high in self.speed)
        return dataclasses.replace(self, **motors)

    def draw(
        self, random: np.random.Generator, geometry: ArmGeometry, count: int,
        speed: Array | None = None,
    ) -> Twins:
        """Return ``count`` random twins.

        ``speed`` is that of each joint, float64 [5], rad/s; by default the description's.
        """
        speed = geometry.velocity if speed is None else speed
        joints = (count, len(JOINTS))
        parameters = TwinParameters(
            speed=speed * uniform(random, self.speed, joints),
            **{name: uniform(random, getattr(self, name), (count,)) for name in _MOTORS})
        return Twins(parameters, uniform(random, self.age, (count,)),
                     uniform(random, self.noise, joints))


def uniform(random: np.random.Generator, ranges: Ranges, shape: tuple[int, ...]) -> Array:
    """Return values uniformly distributed over the union of ``ranges``."""
    lengths = np.array([high - low for low, high in ranges])
    along = random.uniform(0.0, lengths.sum(), shape)
    result = np.full(shape, ranges[0][0]) + along
    for before, after in zip(np.cumsum(lengths)[:-1], ranges[1:], strict=True):
        result = np.where(along > before, after[0] + along - before, result)
    return result


#: What a policy is trained on.
INSIDE = TwinRanges()
#: Twins of which every parameter lies outside of ``INSIDE``.
HELD_OUT = TwinRanges(
    speed=((0.65, 0.8), (1.2, 1.35)), dead_zone=((0.05, 0.08),), start_delay=((0.05, 0.08),),
    time_constant=((0.06, 0.1),), load_slowdown=((0.35, 0.5),), sag=((0.02, 0.03),),
    command_delay=((0.1, 0.2),), age=((0.15, 0.25),), noise=((0.04, 0.06),))
#: The arm of the description and of the default settings, measured at once.
NOMINAL = TwinRanges(speed=((1.0, 1.0),), age=((0.0, 0.0),), noise=((0.0, 0.0),)).about(
    SimulationConfig())
#: By the value of an environment's argument ``randomisation``.
RANDOMISATIONS = {'inside': INSIDE, 'held_out': HELD_OUT, 'none': NOMINAL}

#: Measurements come at the rate of the camera: an age varies by its period, s.
JITTER = 1.0 / 30.0
#: Errors of angles this far apart, rad, or this long, s, are independent.
INDEPENDENT_AFTER, RENEWED_AFTER = 0.2, 2.0
#: Joints that the camera does not see.
UNSEEN = np.array([name in ('wrist', 'gripper') for name in JOINTS])


class JointSensor:
    """Measures the joints of B twins.

    By truth, positions are exact. By camera, errors of neighbouring poses are similar, as those of
    ``pose/joint_filter.py`` are, and wrist and gripper are not measured.
    """

    def __init__(self, count: int) -> None:
        shape = (count, len(JOINTS))
        self.by_camera = np.zeros(count, np.bool_)
        self._age = np.zeros(count)
        self._noise, self._error = np.zeros(shape), np.zeros(shape)
        #: True positions at the time of the last measurement, float64 [B, 5], rad.
        self.late_positions = np.zeros(shape)

    def reset(
        self, rows: NDArray[np.intp], twins: Twins, by_camera: NDArray[np.bool_],
        positions: Array, random: np.random.Generator,
    ) -> JointReading:
        """Start new episodes of the arms ``rows``, int [N], which rest at ``positions``, [N, 5].

        Returns:
            Their first measurement, at time 0.
        """
        self.by_camera[rows] = by_camera
        self._age[rows] = twins.age
        self._noise[rows] = np.where(by_camera[:, None], twins.noise, 0.0)
        self._error[rows] = self._noise[rows] * random.standard_normal(positions.shape)
        self.late_positions[rows] = positions
        return JointReading(self._seen(positions, self._error[rows], by_camera), -twins.age)

    def read(self, twin: 'Twin', now: Array, random: np.random.Generator) -> JointReading:
        """Return the latest measurement at ``now``, float64 [B], s."""
        late = np.where(self._age > 0.0, random.uniform(0.0, JITTER, len(now)), 0.0)
        age = self._age + late
        positions = twin.positions_before(age)
        moved = np.abs(positions - self.late_positions).max(axis=1, keepdims=True)
        keep = np.exp(-moved / INDEPENDENT_AFTER - twin.period / RENEWED_AFTER)
        fresh = self._noise * random.standard_normal(positions.shape)
        self._error = keep * self._error + np.sqrt(1.0 - keep**2) * fresh
        self.late_positions = positions
        return JointReading(self._seen(positions, self._error, self.by_camera), now - age)

    @staticmethod
    def _seen(positions: Array, error: Array, by_camera: NDArray[np.bool_]) -> Array:
        """Return measured positions, NaN for joints that are not measured."""
        return np.where(by_camera[:, None] & UNSEEN, np.nan, positions + error)


#: Number of poses; half of them are in collision and are left out.
POSES = 40_000
_PARTS = 50
#: Edge of the cubes, m.
CUBE = 0.03


class Workspace:
    """Poses of the arm, float64 [N, 5], rad, gripper closed, and their places, float64 [N, 3], m.

    Places are those of ``tool0`` in ``base_link``.

    Args:
        straight: whether the wrist stays at 0, for arms whose wrist is not measured.
        count: of random poses, those in collision included.
    """

    def __init__(
        self, checker: CollisionChecker, *, straight: bool = False, count: int = POSES,
    ) -> None:
        geometry = checker.scene.geometry
        random = np.random.default_rng(0)
        poses = random.uniform(geometry.lower, geometry.upper, (count, len(JOINTS)))
        poses[:, JOINTS.index('gripper')] = geometry.lower[JOINTS.index('gripper')]
        if straight:
            poses[:, JOINTS.index('wrist')] = 0.0
        self.poses: Array = poses[~checker.collides(poses)]
        # In parts, and copied: matrices of all poses need 20 MB, in each actor.
        kinematics = Kinematics(geometry)
        self.places: Array = np.concatenate([
            kinematics.pose(part)[:, :3, 3] for part in np.array_split(self.poses, _PARTS)])
        cubes = np.floor(self.places / CUBE).astype(np.int64)
        _, cube, sizes = np.unique(cubes, axis=0, return_inverse=True, return_counts=True)
        cube = cube.reshape(-1)
        # All poses cube after cube; of each pose, where its cube begins there, and its size.
        self._by_cube = np.argsort(cube, kind='stable')
        self._begin, self._size = (np.cumsum(sizes) - sizes)[cube], sizes[cube]
        weights = 1.0 / self._size
        self._cumulative = np.cumsum(weights) / weights.sum()

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.intp]:
        """Return the indices of ``count`` random poses, uniform in space, int [count]."""
        found = np.searchsorted(self._cumulative, random.random(count))
        return np.minimum(found, len(self.poses) - 1)

    def neighbours(
        self, random: np.random.Generator, indices: NDArray[np.intp], count: int,
    ) -> Array:
        """Return random poses whose places are in the same cube, float64 [N, count, 5], rad.

        The first is the pose of ``indices``, int [N], itself. A pose may be returned twice.
        """
        within = random.integers(self._size[indices, None], size=(len(indices), count))
        within = self._by_cube[self._begin[indices, None] + within]
        within[:, 0] = indices
        poses: Array = self.poses[within]
        return poses


Twin = KinematicTwin | PhysicsTwin
#: A delay, or the lowest and highest one, s.
AddedDelay = float | Sequence[float]
Bools = NDArray[np.bool_]

#: Distance of success, m, and for how long it has to be kept, s.
CLOSE, HOLD = 0.02, 1.0
#: Dense reward: for a step at the target, of which less is left the nearer CLOSE is, for success,
#: which is worth more than to stay near without it; costs of a step and of a motor switched.
WITHIN, SUCCESS = 0.1, 5.0
STEP_COST, SWITCH_COST = 0.01, 0.002
REWARDS = ('dense', 'sparse')
#: How joints are measured; `mixed`: an episode in four by camera.
FEEDBACKS = ('mixed', 'truth', 'camera')
CAMERA_SHARE = 0.25
#: Inside the ranges, the largest share of steps whose command is a step late, by chance: a policy
#: that learned with it waits to see what its commands do, also on twins that are slower to react.
LATE = 0.5
#: Largest delay that may be added, s.
MAX_DELAY = 2.0
# Somebody straightens a wrist that is not measured by hand, rad.
STRAIGHT = 0.05


class World:
    """What all tasks of a process share: scene, collisions, poses to start from and to reach."""

    def __init__(self) -> None:
        self.scene = build_scene()
        self.checker = CollisionChecker(self.scene)
        self.free = Workspace(self.checker)
        self.straight = Workspace(self.checker, straight=True)


world = functools.cache(World)


def ranges_and_speed(
    randomisation: str, calibration: str, geometry: ArmGeometry,
) -> tuple[TwinRanges, Array]:
    """Return from which ranges twins are drawn, and about which speed, float64 [5], rad/s.

    Raises:
        EnvError: an argument that is not allowed.
    """
    check_choice('randomisation', randomisation, RANDOMISATIONS)
    ranges = RANDOMISATIONS[randomisation]
    if not calibration:
        return ranges, geometry.velocity
    try:
        config = build(SimulationConfig, calibration_file.read(calibration).simulation)
    except SettingError as error:
        raise EnvError(str(error)) from None
    return ranges.about(config), TwinParameters.of(geometry, 1, config).speed[0]


def check_choice(name: str, value: object, allowed: Iterable[str]) -> None:
    if value not in tuple(allowed):
        raise EnvError(f'{name}: {value!r} is not allowed: one of {", ".join(allowed)}')


def check_range(name: str, value: object, low: float, high: float) -> None:
    if (isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high):
        raise EnvError(f'{name}: {quoted(value)} is not allowed: {low:g} to {high:g}')


def shaped(progress: Array, distance: Array, success: Bools, switched: NDArray[np.intp]) -> Array:
    """Return what the dense rewards of all tasks have, float64 [N], added to that of progress."""
    return np.asarray(
        progress + WITHIN * np.maximum(1.0 - distance / CLOSE, 0.0) + SUCCESS * success
        - STEP_COST - SWITCH_COST * switched)


class ArmTask:
    """B arms with their sensors and commands; the base of all tasks.

    A task states ``motors``, ``steps`` and the spaces, sets ``_twin``, and has ``reset``,
    ``render``, ``_observe``, ``_simulate`` and ``_reward``.

    Args:
        reward: one of ``REWARDS``; sparse: 1 for success, else 0.
        randomisation: a name in ``RANDOMISATIONS``.
        feedback: one of ``FEEDBACKS``.
        calibration: file of a measured arm, about which twins are drawn; empty: none.
        measurement_delay: added to the age of every measurement, s; or [low, high], between
            which each episode draws.
        command_delay: added to that of every command.

    Raises:
        EnvError: an argument that is not allowed.
    """

    #: The motors of the actions, the first ones of ``JOINTS``.
    motors: ClassVar[tuple[str, ...]] = MOVING
    #: Steps after which an episode is truncated.
    steps: ClassVar[int]
    #: What may happen in a step besides success, its name in ``info``; whether it ends an episode.
    event: ClassVar[str]
    is_fatal: ClassVar[bool]
    observation_space: Any
    action_space: Any
    _twin: Twin

    def __init__(
        self, count: int, reward: str = 'dense', randomisation: str = 'inside',
        feedback: str = 'mixed', calibration: str = '', *,
        measurement_delay: AddedDelay = 0.0, command_delay: AddedDelay = 0.0,
    ) -> None:
        check_choice('reward', reward, REWARDS)
        check_choice('feedback', feedback, FEEDBACKS)
        self._delays = (Delay.of('measurement_delay', measurement_delay, MAX_DELAY),
                        Delay.of('command_delay', command_delay, MAX_DELAY))
        self._dense = reward == 'dense'
        self._camera_share = {'truth': 0.0, 'camera': 1.0}.get(feedback, CAMERA_SHARE)
        self._world = world()
        self.geometry, self.checker = self._world.scene.geometry, self._world.checker
        self._ranges, self._speed = ranges_and_speed(randomisation, calibration, self.geometry)
        self._most_late = LATE if randomisation == 'inside' else 0.0
        self._kinematics = Kinematics(self.geometry)
        self._renderer = TaskRenderer()
        self._sensor = JointSensor(count)
        #: Since each arm's reset, float64 [B], s.
        self.time, self._held = np.zeros(count), np.zeros(count, np.int64)
        motors = len(self.motors)
        self._commands = np.zeros((count, IN_FLIGHT, motors), np.int8)
        # What the motors do: the latest command or, if that is late, the one before.
        self._motors, self._late = np.zeros((count, motors), np.int8), np.zeros(count)
        self._command_delay, self._distance = np.zeros(count), np.zeros(count)
        #: The latest measurements; their stamps are times as of ``time``.
        self.reading = JointReading(np.zeros((count, len(JOINTS))), np.zeros(count))

    @property
    def positions(self) -> Array:
        """True joint positions, float64 [B, 5], rad."""
        return self._twin.positions

    def step(self, actions: NDArray[np.integer], random: np.random.Generator) -> Outcome:
        """Command the motors, int [B, motors]: 0 backward, 1 off, 2 forward; simulate a period."""
        directions, switched = self._command(actions, random)
        distance, happened = self._simulate(directions)
        self.time = self.time + self._twin.period
        self._held = np.where(distance <= CLOSE, self._held + 1, 0)
        # The first of these steps begins the time, so one more than HOLD has periods.
        success = self._held > round(HOLD / self._twin.period)
        if self.is_fatal:
            happened &= ~success
        rewards = self._reward(distance, success, switched, happened) if self._dense \
            else success.astype(np.float64)
        self._distance = distance
        before, self.reading = self.reading, self._sensor.read(self._twin, self.time, random)
        observations = self._observe(self.reading, before, slice(None))
        return Outcome(
            observations, rewards, success, success | happened if self.is_fatal else success,
            switched, {
                'distance': distance, self.event: happened,
                'observation_delay': self.time - self.reading.stamp,
                'action_delay': self._command_delay.copy()})

    def close(self) -> None:
        self._renderer.close()

    def _simulate(self, directions: NDArray[np.int8]) -> tuple[Array, Bools]:
        """Simulate a period; return the distances, float64 [B], m, and where :attr:`event` is."""
        raise NotImplementedError

    def _reward(
        self, distance: Array, success: Bools, switched: NDArray[np.intp], happened: Bools,
    ) -> Array:
        """Return the dense reward of a step, after which ``_distance`` will be ``distance``."""
        raise NotImplementedError

    def _observe(self, reading: JointReading, before: JointReading, rows: Any) -> Any:
        """Return the observations of arms ``rows``, of which the readings are."""
        raise NotImplementedError

    def _draw(self, count: int, random: np.random.Generator) -> tuple[Twins, Bools]:
        """Return ``count`` twins, and which of them are measured by camera."""
        parameters, age, noise = self._ranges.draw(
            random, self.geometry, count, self._speed)
        age += self._delays[0].draw(random, count)
        parameters.command_delay += self._delays[1].draw(random, count)
        return Twins(parameters, age, noise), random.random(count) < self._camera_share

    @staticmethod
    def _bend(starts: Array, by_camera: Bools, random: np.random.Generator) -> Array:
        """Bend wrists that are not measured by what somebody leaves who straightens them.

        Returns:
            The play of the motors, float64 [N, 5].
        """
        bent = random.uniform(-STRAIGHT, STRAIGHT, len(starts))
        starts[by_camera, JOINTS.index('wrist')] = bent[by_camera]
        return random.uniform(-1.0, 1.0, starts.shape)

    def _begin(
        self, rows: NDArray[np.intp], twins: Twins, by_camera: Bools, starts: Array,
        random: np.random.Generator,
    ) -> JointReading:
        """Start episodes of arms ``rows`` [N] at ``starts`` [N, 5]; return what is measured."""
        reading = self._sensor.reset(rows, twins, by_camera, starts, random)
        self.reading.positions[rows], self.reading.stamp[rows] = reading
        for state in (self.time, self._held, self._commands, self._motors):
            state[rows] = 0
        self._late[rows] = random.uniform(0.0, self._most_late, len(rows))
        self._command_delay[rows] = twins.parameters.command_delay
        return reading

    def _command(
        self, actions: NDArray[np.integer], random: np.random.Generator,
    ) -> tuple[NDArray[np.int8], NDArray[np.intp]]:
        """Return what the motors do now, int8 [B, 5], and how many were switched, int [B]."""
        motors = np.asarray(actions, np.int8) - np.int8(1)
        # A wrist that is not measured is not moved.
        motors[self._sensor.by_camera, MOVING.index('wrist')] = 0
        switched = (motors != self._commands[:, 0]).sum(axis=1)
        self._commands = np.concatenate([motors[:, None], self._commands[:, :-1]], axis=1)
        directions = np.zeros((len(motors), len(JOINTS)), np.int8)
        late = random.random(len(motors)) < self._late
        self._motors = np.where(late[:, None], self._motors, motors)
        directions[:, :motors.shape[1]] = self._motors
        return directions, switched
