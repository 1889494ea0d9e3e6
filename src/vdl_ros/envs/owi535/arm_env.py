"""Observations of the arm's tasks, as lists of :class:`Feature`, and their Gymnasium classes."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from vdl_ros.arm.geometry import ArmGeometry
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.common.observation_spaces import MirroredBox
from vdl_ros.envs.checked_vector_env import ResetResult, SingleStepResult, StepResult

Array = NDArray[np.float64]

#: Observations and commands per second, Hz.
RATE = 10.0
#: The motors that move ``tool0``: all but the gripper's.
MOVING = JOINTS[:4]
#: Number of latest commands in an observation.
IN_FLIGHT = 8
# Below this distance, m, directions to the target mean little.
MIN_DISTANCE = 0.005
# Distance of which the nearness is a half, m.
NEAR = 0.02


class Feature(NamedTuple):
    """One number of an observation; it is clipped to -``bound`` to ``bound``."""

    name: str
    unit: str
    bound: float

    @property
    def sign(self) -> int:
        """-1 for what changes its sign in a mirror that exchanges left and right, else 1."""
        is_odd = self.name.startswith('base_') or self.name.endswith(('_y', '_left', '_sin'))
        return -1 if is_odd else 1


class JointReading(NamedTuple):
    """A measurement of the joints at the time ``stamp``, float64 [...], s.

    ``positions`` is float64 [..., 5], rad, in the order of ``joints.JOINTS``; NaN: not measured.
    """

    positions: Array
    stamp: Array


class ArmView(NamedTuple):
    """What a measurement says of the arm.

    ``features`` are those of :func:`arm_features`, float64 [..., N]; ``tool`` the place of
    ``tool0``, float64 [..., 3], m; ``turntable`` the rotation of the arm's plane, float64
    [..., 3, 3]; ``jacobian`` that of ``tool0``'s place, float64 [..., 3, 4], m/rad.
    """

    features: Array
    tool: Array
    turntable: Array
    jacobian: Array

    def turned(self, direction: Array) -> Array:
        """Return what is forward and left of a direction, float64 [..., 2]."""
        return np.asarray((direction[..., None, :] @ self.turntable)[..., 0, :2])


def arm_features(motors: Sequence[str] = MOVING) -> tuple[Feature, ...]:
    """Return the features of the arm itself; ``motors`` are the first ones of ``JOINTS``."""
    return (
        *(Feature(f'{motor}_position', 'rad', 2.0 * math.pi) for motor in motors),
        *(Feature(f'{motor}_velocity', 'rad/s', 2.0) for motor in motors),
        Feature('wrist_measured', '', 1.0),
        *(Feature(f'{motor}_command_{back}', '', 1.0)
          for back in range(1, IN_FLIGHT + 1) for motor in motors),
        *(Feature(f'tool_{axis}', 'm', 1.0) for axis in 'xyz'))


def target_features(name: str = 'target') -> tuple[Feature, ...]:
    """Return the features of a place that ``tool0`` should reach."""
    return (
        *(Feature(f'{name}_from_tool_{axis}', 'm', 2.0) for axis in 'xyz'),
        Feature(f'{name}_from_tool_forward', 'm', 2.0),
        Feature(f'{name}_from_tool_left', 'm', 2.0),
        *(Feature(f'{motor}_approach', 'm/rad', 1.0) for motor in MOVING),
        *(Feature(f'{motor}_turn', 'rad', 0.2) for motor in MOVING),
        Feature('nearness', '', 1.0))


def feature_space(features: Sequence[Feature], motors: Sequence[str] = MOVING) -> MirroredBox:
    limits = np.array([feature.bound for feature in features])
    return MirroredBox(-limits, limits, [feature.sign for feature in features],
                       [-1 if motor == 'base' else 1 for motor in motors])


def bounded(values: Sequence[Array], space: spaces.Box) -> NDArray[np.float32]:
    """Join parts of observations, float64 [..., n] each, and clip them: float32 [..., N]."""
    joined = np.concatenate(values, axis=-1, dtype=np.float32)
    return np.clip(joined, space.low, space.high, out=joined)


class ArmObserver:
    """Assembles what observations have in common, for one arm or for many at once.

    A joint without a measurement counts as upright.
    """

    def __init__(self, geometry: ArmGeometry, motors: Sequence[str] = MOVING) -> None:
        self._kinematics, self._assumed = Kinematics(geometry), geometry.upright
        self._count = len(motors)

    def view(
        self, reading: JointReading, before: JointReading, commands: NDArray[np.int8],
    ) -> ArmView:
        """Return what is known of the arm.

        Args:
            before: the measurement of the observation before, or ``reading`` if there is none.
            commands: the latest, the newest first, -1, 0 or 1, int8 [..., IN_FLIGHT, motors]; 0
                where there was none.
        """
        measured = np.isfinite(reading.positions)
        positions = np.where(measured, reading.positions, self._assumed)
        passed = np.asarray(reading.stamp - before.stamp)[..., None]
        moved = np.where(measured & (passed > 0.0), reading.positions - before.positions, 0.0)
        velocities = np.nan_to_num(moved) / np.where(passed > 0.0, passed, 1.0)
        poses = self._kinematics.poses(positions, ('turntable', 'tool0'))
        tool = poses['tool0'][..., :3, 3]
        jacobian = self._kinematics.jacobian(positions)[..., :len(MOVING)]
        features = np.concatenate([
            positions[..., :self._count], velocities[..., :self._count],
            measured[..., JOINTS.index('wrist'), None],
            commands.reshape(*commands.shape[:-2], -1), tool], axis=-1)
        return ArmView(features, tool, poses['turntable'][..., :3, :3], jacobian)

    @staticmethod
    def towards(view: ArmView, target: Array) -> Array:
        """Return the features of ``target``, float64 [..., 3], m, in ``base_link``."""
        away = target - view.tool
        distance = np.linalg.norm(away, axis=-1, keepdims=True)
        nearer = (away[..., None, :] @ view.jacobian)[..., 0, :]
        # Least squares for each motor alone.
        turn = nearer / ((view.jacobian**2).sum(axis=-2) + MIN_DISTANCE**2)
        approach = nearer / np.maximum(distance, MIN_DISTANCE)
        nearness = NEAR / (NEAR + distance)
        return np.concatenate([away, view.turned(away), approach, turn, nearness], axis=-1)


#: Of N arms: an array [N, ...], or one for each part of a ``Dict``.
Observations = Any


class Outcome(NamedTuple):
    """What a step of B arms gave.

    ``switched`` counts the motors whose command is not the one of the step before. ``info`` has
    arrays [B]: ``distance``, m, from the target, ``observation_delay``, the age of the
    measurements, s, ``action_delay``, that of commands when they are applied, s, and what else
    happened.
    """

    observations: Observations
    rewards: Array
    success: NDArray[np.bool_]
    terminated: NDArray[np.bool_]
    switched: NDArray[np.intp]
    info: dict[str, NDArray[Any]]


class ArmEnv(gymnasium.Env[Any, NDArray[np.int64]]):
    """One arm; see docs/arm_learning.md for observations, actions and rewards.

    ``info`` of a step has ``is_success`` and what :class:`Outcome` names.
    """

    metadata = {'render_modes': ['rgb_array'], 'render_fps': RATE}
    #: An ``arm_task.ArmTask``, made for a number of arms, which takes the ``arguments``.
    task: ClassVar[Any]
    #: For the delays of observations and of actions; see ``envs/realtime.py``.
    delay_arguments = ('measurement_delay', 'command_delay')

    def __init__(self, render_mode: str | None = None, **arguments: Any) -> None:
        self.render_mode = render_mode
        self._task: Any = self.task(1, **arguments)
        self.observation_space = self._task.observation_space
        self.action_space = self._task.action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> ResetResult:
        super().reset(seed=seed, options=options)
        return _first(self._task.reset(np.zeros(1, np.intp), self.np_random)), {}

    def step(self, action: NDArray[np.int64]) -> SingleStepResult:
        outcome: Outcome = self._task.step(np.asarray(action)[None], self.np_random)
        info = {'is_success': outcome.success, **outcome.info}
        return (_first(outcome.observations), float(outcome.rewards[0]),
                bool(outcome.terminated[0]), False,
                {name: values[0].item() for name, values in info.items()})

    def render(self) -> NDArray[np.uint8] | None:
        return None if self.render_mode is None else self._task.render(0)

    def close(self) -> None:
        self._task.close()


class ArmVectorEnv(VectorEnv[Any, NDArray[np.int64], NDArray[Any]]):
    """B arms, simulated together; arguments as of :class:`ArmEnv`.

    ``info`` has the same names, each with an array [B].
    """

    metadata = ArmEnv.metadata | {'autoreset_mode': AutoresetMode.NEXT_STEP}
    task: ClassVar[Any]
    delay_arguments = ArmEnv.delay_arguments

    def __init__(
        self, num_envs: int, render_mode: str | None = None, max_episode_steps: int = 0,
        **arguments: Any,
    ) -> None:
        self.num_envs = num_envs
        self.render_mode = render_mode
        self._task: Any = self.task(num_envs, **arguments)
        self.single_observation_space = self._task.observation_space
        self.single_action_space = self._task.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._limit = max_episode_steps or self.task.steps
        self._steps = np.zeros(num_envs, np.int64)
        self._over = np.zeros(num_envs, np.bool_)

    def reset(self, *, seed: Any = None, options: Any = None) -> ResetResult:
        """Start an episode of every arm; ``seed`` is one number."""
        super().reset(seed=seed, options=options)
        self._steps[:] = 0
        self._over[:] = False
        return self._task.reset(np.arange(self.num_envs), self.np_random), {}

    def step(self, actions: NDArray[np.int64]) -> StepResult:
        """Command the motors for 0.1 s; start the next episode of arms whose last one is over."""
        outcome: Outcome = self._task.step(actions, self.np_random)
        observations = outcome.observations
        begin = self._over
        self._steps += 1
        if begin.any():
            rows = np.flatnonzero(begin)
            _assign(observations, rows, self._task.reset(rows, self.np_random))
            self._steps[rows] = 0
        terminated = outcome.terminated & ~begin
        truncated = (self._steps >= self._limit) & ~begin & ~terminated
        self._over = terminated | truncated
        info = {name: values & ~begin if values.dtype == np.bool_ else values
                for name, values in {'is_success': outcome.success, **outcome.info}.items()}
        return observations, np.where(begin, 0.0, outcome.rewards), terminated, truncated, info

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        if self.render_mode is None:
            return None
        return tuple(self._task.render(arm) for arm in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        self._task.close()


def environments(task: type, **members: Any) -> tuple[type[ArmEnv], type[ArmVectorEnv]]:
    """Return the environments of one arm and of many, such as ReachEnv and ReachVectorEnv.

    Args:
        task: an ``arm_task.ArmTask``, such as ReachTask; its module has to name them so, too.
        members: what else the classes have.
    """
    name = task.__name__.removesuffix('Task')
    members |= {'task': task, '__module__': task.__module__}
    return (type(f'{name}Env', (ArmEnv,), members),
            type(f'{name}VectorEnv', (ArmVectorEnv,), members))


def _first(observations: Observations) -> Any:
    if isinstance(observations, dict):
        return {name: values[0] for name, values in observations.items()}
    return observations[0]


def _assign(observations: Observations, rows: NDArray[np.intp], values: Observations) -> None:
    if isinstance(observations, dict):
        for name in observations:
            observations[name][rows] = values[name]
    else:
        observations[rows] = values
