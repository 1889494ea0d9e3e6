"""
What the tasks have in common: random twins, late and noisy measurements, commands of B arms.

A task says where its arms start, simulates them, and computes observations and rewards.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.calibration import calibration_file
from vdl_ros.arm.model.geometry import ArmGeometry
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.simulation.collisions import CollisionChecker
from vdl_ros.arm.simulation.scene import build_scene
from vdl_ros.arm.simulation.simulation_config import SimulationConfig
from vdl_ros.arm.twins.twin_parameters import TwinParameters
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import SettingError, build
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.lag.delays import Delay
from vdl_ros.envs.owi535.arm_observation import IN_FLIGHT, MOVING, JointReading
from vdl_ros.envs.owi535.joint_sensor import JointSensor
from vdl_ros.envs.owi535.twin_ranges import RANDOMISATIONS, TwinRanges, Twins
from vdl_ros.envs.owi535.workspace import Workspace

__all__ = [
    'FEEDBACKS', 'HOLD', 'REWARDS', 'AddedDelay', 'ArmTask', 'World', 'check_range',
    'ranges_and_speed', 'world',
]

Array = NDArray[np.float64]
#: A delay, or the lowest and highest one, s.
AddedDelay = float | Sequence[float]
Bools = NDArray[np.bool_]

#: For how long a task has to be done, s.
HOLD = 1.0
REWARDS = ('dense', 'sparse')
#: How joints are measured; `mixed`: an episode in four by camera.
FEEDBACKS = ('mixed', 'truth', 'camera')
CAMERA_SHARE = 0.25
#: Inside the ranges, the largest share of steps whose command is a step late, by chance: a policy
#: that learned with it waits to see what its commands do, also on twins that are slower to react.
LATE = 0.5
#: Largest delay that may be added, s.
MOST_DELAY = 2.0
# Somebody straightens a wrist that is not measured by hand, rad.
STRAIGHT = 0.05


class World:
    """What all tasks of a process share: scene, collisions, poses to start from and to reach."""

    def __init__(self) -> None:
        """Sample the poses; takes a second."""
        self.scene = build_scene()
        self.checker = CollisionChecker(self.scene)
        self.free = Workspace(self.checker)
        self.straight = Workspace(self.checker, straight=True)


world = functools.cache(World)


def ranges_and_speed(
    randomisation: str, calibration: str, geometry: ArmGeometry,
) -> tuple[TwinRanges, Array]:
    """
    Return from which ranges twins are drawn, and about which speed, float64 [5], rad/s.

    Args:
        randomisation: a name in ``RANDOMISATIONS``.
        calibration: file of a measured arm, defaults for what it lacks; empty: none.
        geometry: of the arm.

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
    measured = TwinParameters.of(geometry, 1, config)
    return ranges.about(measured), measured.speed[0]


def check_choice(name: str, value: object, allowed: Iterable[str]) -> None:
    """Raise EnvError if ``value`` is not among those allowed."""
    if value not in tuple(allowed):
        raise EnvError(f'{name}: {value!r} is not allowed: one of {", ".join(allowed)}')


def check_range(name: str, value: object, low: float, high: float) -> None:
    """Raise EnvError if ``value`` is not a number from ``low`` to ``high``."""
    if (isinstance(value, bool) or not isinstance(value, int | float)
            or not low <= value <= high):
        raise EnvError(f'{name}: {quoted(value)} is not allowed: {low:g} to {high:g}')


class ArmTask:
    """B arms with their sensors and commands."""

    def __init__(
        self, count: int, motors: Sequence[str], reward: str, randomisation: str, feedback: str,
        calibration: str, *, measurement_delay: AddedDelay = 0.0, command_delay: AddedDelay = 0.0,
    ) -> None:
        """
        Prepare ``count`` arms.

        Args:
            count: number of arms, B.
            motors: those of the actions, the first ones of ``JOINTS``.
            reward: one of ``REWARDS``.
            randomisation: a name in ``RANDOMISATIONS``.
            feedback: one of ``FEEDBACKS``.
            calibration: file of a measured arm, about which twins are drawn; empty: none.
            measurement_delay: added to the age of every measurement, s; or [low, high], between
                which each episode draws.
            command_delay: added to that of every command.

        Raises:
            EnvError: an argument that is not allowed.
        """
        check_choice('reward', reward, REWARDS)
        check_choice('feedback', feedback, FEEDBACKS)
        self._delays = (Delay.of('measurement_delay', measurement_delay, MOST_DELAY),
                        Delay.of('command_delay', command_delay, MOST_DELAY))
        self._dense = reward == 'dense'
        self._camera_share = {'truth': 0.0, 'camera': 1.0}.get(feedback, CAMERA_SHARE)
        self._world = world()
        self._geometry = self._world.scene.geometry
        self._ranges, self._speed = ranges_and_speed(randomisation, calibration, self._geometry)
        self._most_late = LATE if randomisation == 'inside' else 0.0
        self._sensor = JointSensor(count)
        self._time, self._held = np.zeros(count), np.zeros(count, np.int64)
        self._commands = np.zeros((count, IN_FLIGHT, len(motors)), np.int8)
        # What the motors do: the latest command or, if that is late, the one before.
        self._motors, self._late = np.zeros((count, len(motors)), np.int8), np.zeros(count)
        self._command_delay = np.zeros(count)
        self._before = JointReading(np.zeros((count, len(JOINTS))), np.zeros(count))

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

    @property
    def late_positions(self) -> Array:
        """Return the true joint positions at the latest measurement, float64 [B, 5], rad."""
        return self._sensor.late_positions

    def _draw(self, count: int, random: np.random.Generator) -> tuple[Twins, Bools]:
        """Return ``count`` twins, and which of them are measured by camera."""
        twins = self._ranges.draw(random, self._geometry, count, self._speed).delayed(
            *(delay.draw(random, count) for delay in self._delays))
        return twins, random.random(count) < self._camera_share

    @staticmethod
    def _bend(starts: Array, by_camera: Bools, random: np.random.Generator) -> None:
        """Bend wrists that are not measured by what somebody leaves who straightens them."""
        bent = random.uniform(-STRAIGHT, STRAIGHT, len(starts))
        starts[by_camera, JOINTS.index('wrist')] = bent[by_camera]

    def _begin(
        self, rows: NDArray[np.intp], twins: Twins, by_camera: Bools, starts: Array,
        random: np.random.Generator,
    ) -> JointReading:
        """Start episodes of arms ``rows`` [N] at ``starts`` [N, 5]; return what is measured."""
        reading = self._sensor.reset(rows, twins, by_camera, starts, random)
        self._before.positions[rows], self._before.stamp[rows] = reading
        for state in (self._time, self._held, self._commands, self._motors):
            state[rows] = 0
        self._late[rows] = random.uniform(0.0, self._most_late, len(rows))
        self._command_delay[rows] = twins.parameters.command_delay
        return reading

    def _command(
        self, actions: NDArray[np.integer], random: np.random.Generator,
    ) -> tuple[NDArray[np.int8], NDArray[np.intp]]:
        """
        Command the motors, int [B, motors]: 0 backward, 1 off, 2 forward.

        Returns:
            What the motors of the twins do now, int8 [B, 5], and how many were switched, int [B].
        """
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

    def _lags(self) -> tuple[Array, Array]:
        """Return the age of the measurements and that of applied commands, float64 [B], s."""
        return self._time - self._before.stamp, self._command_delay.copy()

    def _hold(self, done: Bools, period: float) -> Bools:
        """Return which arms have succeeded, bool [B], if ``done`` says which are at it now."""
        self._held = np.where(done, self._held + 1, 0)
        # The first of these steps begins the time, so one more than HOLD has periods.
        return np.asarray(self._held > round(HOLD / period))
