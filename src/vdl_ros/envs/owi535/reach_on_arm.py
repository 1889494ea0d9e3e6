"""Runs a policy of the task *reach* outside of the environment: from measurements to motors.

The observation is the environment's own, by ``ReachObserver.observe``. What the environment never
shows a policy switches the motors off instead: measurements that are too old or incomplete, a
target that no pose reaches, a gap between two updates. No ROS.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vdl_ros.arm.geometry import ArmGeometry, load
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.arm.simulation.scene import CollisionChecker, build_scene
from vdl_ros.envs.owi535.arm_env import (
    IN_FLIGHT,
    RATE,
    Feature,
    JointReading,
    bounded,
    feature_space,
)
from vdl_ros.envs.owi535.arm_task import CLOSE, CUBE, HOLD, Workspace, world
from vdl_ros.envs.owi535.reach import (
    FEATURES,
    MOTORS,
    POSES_AT_TARGET,
    SPACE,
    ReachObserver,
    dense_reward,
    describe,
    travel_time,
)
from vdl_ros.robots.contract import Contract, ContractError
from vdl_ros.robots.task import Measured, Task

Array = NDArray[np.float64]
#: int8 [5]: -1, 0 or 1 for each joint.
Directions = NDArray[np.int8]
#: Returns actions, int [1, 4], for observations, float32 [1, features], and whether the policy
#: has to forget what was before, bool [1].
Act = Callable[[NDArray[np.float32], NDArray[np.bool_]], NDArray[Any]]

#: How far in the future a stamp may be, s: the clocks of two hosts differ.
CLOCK_SKEW = 0.05
# Joints without which there is no observation; of the wrist there is one by camera.
_NEEDED = np.array([name in ('base', 'shoulder', 'elbow') for name in JOINTS])
_WRIST = MOTORS.index('wrist')
_COMMANDS = [feature for feature in FEATURES if '_command_' in feature.name]
_AWAY = [index for index, feature in enumerate(FEATURES)
         if feature.name in ('target_from_tool_x', 'target_from_tool_y', 'target_from_tool_z')]


class ReachableSpace:
    """Where ``tool0`` gets without a collision, by samples of poses; see ``Workspace``."""

    def __init__(self, geometry: ArmGeometry) -> None:
        checker = CollisionChecker(build_scene(geometry))
        self._places = {straight: Workspace(checker, straight=straight).places
                        for straight in (False, True)}

    def missing(self, place: Array, *, straight: bool) -> float:
        """Return how far a place in ``base_link``, float64 [3], is from the space, m; 0 within it.

        ``straight``: the wrist stays at 0.
        """
        nearest = float(np.linalg.norm(self._places[straight] - place, axis=1).min())
        return 0.0 if nearest <= CUBE else nearest


class _Past:
    """What an observation and success depend on: two measurements, and how long it was close."""

    def __init__(self) -> None:
        self._before: JointReading | None = None
        self._latest: JointReading | None = None
        self.close_since = math.nan

    def observe(
        self, observer: ReachObserver, reading: JointReading, now: float,
        commands: NDArray[np.int8], target: Array,
    ) -> NDArray[np.float32]:
        """Return the observation, by the function of the environment."""
        # The same measurement may come twice, by a slow camera.
        if self._latest is None or reading.stamp != self._latest.stamp:
            self._before, self._latest = self._latest, reading
        return observer.observe(reading, self._before or reading, np.array(now), commands, target)

    def is_success(self, now: float, distance: float, rate: float) -> bool:
        """Return whether ``distance`` has been within ``CLOSE`` for ``HOLD``."""
        if distance > CLOSE:
            self.close_since = math.nan
            return False
        if math.isnan(self.close_since):
            self.close_since = now
        # Updates vary a little in time.
        return now - self.close_since >= HOLD - 0.5 / rate


@dataclasses.dataclass
class _Progress:
    """What has become of a target; times are s, NaN before the event."""

    since: float
    distance: float = math.nan
    reaction: float = math.nan
    reached: float = math.nan


class ReachRunner:
    """Moves one arm to one target at a time; a new target replaces the old one, which else holds.

    ``state`` is ``'idle'`` (no target), ``'running'`` or ``'paused'`` (a target, motors off);
    ``reason`` is one line on why motors are off. All times are seconds of one clock. Call
    :meth:`update` at ``RATE``.

    Args:
        stale_after: motors are off while the latest measurement is older, s.
        give_up_after: a target is given up after a pause of this time, s.
    """

    def __init__(
        self, act: Act, geometry: ArmGeometry, space: ReachableSpace, *, stale_after: float = 0.3,
        give_up_after: float = 10.0,
    ) -> None:
        self._act, self._space = act, space
        self._observer = ReachObserver(geometry)
        self._stale_after, self._give_up_after = stale_after, give_up_after
        self.state, self.reason = 'idle', ''
        #: In ``base_link``, float64 [3], m; None without one.
        self.target: Array | None = None
        self._progress = _Progress(math.nan)
        self._updated: float | None = None
        self._paused_since: float | None = None
        self._is_checked = self._is_fresh = False
        self._commands = np.zeros((IN_FLIGHT, len(MOTORS)), np.int8)
        self._past = _Past()

    @property
    def distance(self) -> float:
        """Return the measured distance of ``tool0`` from the target, m; NaN if unknown."""
        return self._progress.distance

    @property
    def success(self) -> bool:
        """Return whether ``tool0`` has been within ``CLOSE`` of this target for ``HOLD``."""
        return not math.isnan(self._progress.reached)

    @property
    def reaction_time(self) -> float:
        """Return the time from the target to the first motor that was switched on, s, or NaN."""
        return self._progress.reaction - self._progress.since

    @property
    def time_to_target(self) -> float:
        """Return the time from the target to success, s, or NaN."""
        return self._progress.reached - self._progress.since

    def set_target(self, place: Array, now: float, since: float | None = None) -> None:
        """Move to a place in ``base_link``, float64 [3], m, from the next update on.

        ``since`` is when it was wanted, s; ``now`` by default.
        """
        if self.target is None:
            # Nothing moves by a command of long ago.
            self._commands[:], self._past = 0, _Past()
        self.target = np.array(place, np.float64)
        self.state, self.reason = 'running', ''
        self._progress = _Progress(now if since is None else since)
        self._updated, self._paused_since = now, None
        self._past.close_since = math.nan
        self._is_checked, self._is_fresh = False, True

    def give_up(self, reason: str) -> None:
        """Forget the target; motors are off until there is another one."""
        self.target = None
        self.state, self.reason = 'idle', reason
        self._progress.distance = math.nan
        self._command(np.zeros(len(MOTORS), np.int8))

    def update(self, now: float, reading: JointReading | None, paused: str = '') -> Directions:
        """Return the motor directions until the next update, int8 [5].

        Args:
            reading: the latest measurement, of one arm; None before the first.
            paused: why motors have to be off now; '' if they need not.
        """
        elapsed = 0.0 if self._updated is None else now - self._updated
        self._updated = now
        if self.target is not None and elapsed < 0.0:
            self.give_up('time went backward')
        if self.target is None:
            return self._command(np.zeros(len(MOTORS), np.int8))
        problem = paused or self._problem(now, reading)
        if problem:
            return self._pause(now, problem)
        assert reading is not None
        missing = self._missing(reading)
        if missing:
            self.give_up(f'no pose without a collision comes nearer to the target than '
                         f'{missing:.2f} m')
            return self._command(np.zeros(len(MOTORS), np.int8))
        self.state, self.reason, self._paused_since = 'running', '', None
        return self._run(now, reading)

    def _run(self, now: float, reading: JointReading) -> Directions:
        assert self.target is not None
        observation = self._past.observe(self._observer, reading, now, self._commands, self.target)
        motors = np.asarray(self._act(
            observation[None], np.array([self._is_fresh])), np.int8)[0] - np.int8(1)
        self._is_fresh = False
        # As in the environment: a joint that is not measured is not moved.
        if np.isnan(reading.positions[_WRIST]):
            motors[_WRIST] = 0
        self._progress.distance = float(np.linalg.norm(observation[_AWAY]))
        if self._past.is_success(now, self._progress.distance, RATE) and not self.success:
            self._progress.reached = now
        if motors.any() and math.isnan(self._progress.reaction):
            self._progress.reaction = now
        return self._command(motors)

    def _problem(self, now: float, reading: JointReading | None) -> str:
        """Return why there is no observation now, or ''."""
        if reading is None:
            return 'no joint states'
        missing = [name for name, value, needed in zip(
            JOINTS, reading.positions, _NEEDED, strict=True) if needed and np.isnan(value)]
        if missing:
            return f'the joint states lack {", ".join(missing)}'
        age = now - float(reading.stamp)
        if age < -CLOCK_SKEW:
            return 'the joint states are of the future: clocks differ'
        return 'the joint states are too old' if age > self._stale_after else ''

    def _missing(self, reading: JointReading) -> float:
        """Return how far a new target is out of reach, m."""
        if self._is_checked or self.target is None:
            return 0.0
        self._is_checked = True
        straight = bool(np.isnan(reading.positions[_WRIST]))
        return self._space.missing(self.target, straight=straight)

    def _pause(self, now: float, problem: str) -> Directions:
        """Switch the motors off, and give the target up if that lasts."""
        self.state, self.reason = 'paused', problem
        self._progress.distance = math.nan
        self._past, self._is_fresh = _Past(), True
        if self._paused_since is None:
            self._paused_since = now
        elif now - self._paused_since > self._give_up_after:
            self.give_up(f'{problem}, for {self._give_up_after:g} s')
        return self._command(np.zeros(len(MOTORS), np.int8))

    def _command(self, motors: NDArray[np.int8]) -> Directions:
        """Remember a command of the task's motors, int8 [4], and return that of all motors."""
        self._commands = np.concatenate([motors[None], self._commands[:-1]])
        directions = np.zeros(len(JOINTS), np.int8)
        directions[:len(MOTORS)] = motors
        return directions


class ReachOnRobot(Task):
    """A random reachable target in each episode; it ends ``HOLD`` after ``tool0`` is there.

    Args:
        joints: whether measured joints are observed, and not only rewarded. Without them the
            observation is the place of the target, the latest commands, and the ages of images.

    Raises:
        ContractError: the contract lacks a joint, or has other actions.
    """

    def __init__(self, contract: Contract, joints: bool = True) -> None:
        super().__init__(contract)
        self._seen = SPACE if joints else feature_space([
            *_COMMANDS, *(Feature(f'target_{axis}', 'm', 1.0) for axis in 'xyz'),
            *(Feature(f'{image.name}_age', 's', 1.0) for image in contract.observed_images)])
        missing = {*JOINTS} - {feature.name for feature in contract.features}
        if missing:
            raise ContractError(f'features: {", ".join(sorted(missing))}: missing: the joints '
                                f'{", ".join(JOINTS)}')
        parts = contract.actions.parts
        if [(part.name, part.levels) for part in parts] != [
                (name, (-1.0, 0.0, 1.0)) for name in MOTORS]:
            raise ContractError(f'actions: parts: {[part.name for part in parts]} is not allowed: '
                                f'{", ".join(MOTORS)}, each with levels [-1, 0, 1]')
        self._source = next(each.source for each in contract.features if each.name == JOINTS[0])
        self._geometry = load()
        self._world = world()
        self._observer, self._kinematics = ReachObserver(self._geometry), Kinematics(
            self._geometry)
        self._assumed = self._geometry.upright
        self.target: Array = np.zeros(3)
        self._at_target = np.zeros((POSES_AT_TARGET, len(JOINTS)))
        self._past, self._success = _Past(), False

    @staticmethod
    def description(contract: Contract) -> dict[str, Any]:
        """As of the environment of the same task; of one arm, which nobody measured.

        Without joints it is another task, for no other program.
        """
        if contract.task is not None and not contract.task.arguments.get('joints', True):
            return {}
        found = describe(rate=contract.rate)
        del found['twins']
        return found | {'robot': contract.name}

    @property
    def observation_space(self) -> spaces.Box:
        return self._seen

    def begin(self, measured: Measured, random: np.random.Generator) -> None:
        """Draw a target that this arm can reach."""
        straight = math.isnan(measured['wrist'])
        space = self._world.straight if straight else self._world.free
        drawn = space.draw(random, 1)
        self.target = space.places[drawn[0]]
        self._at_target = space.neighbours(random, drawn, POSES_AT_TARGET)[0]
        self._past, self._success = _Past(), False

    def begin_demonstrated(self, measured: Sequence[Measured]) -> None:
        """Take the place of ``tool0`` at the end as the target."""
        self.target = self._kinematics.pose(self._positions(measured[-1]))[:3, 3]
        self._past, self._success = _Past(), False

    def command(self, action: NDArray[np.float64], measured: Measured) -> NDArray[np.float64]:
        """Keep a wrist that is not measured where it is, as in the environment."""
        if math.isnan(measured['wrist']):
            action = np.where(np.arange(len(MOTORS)) == _WRIST, 0.0, action)
        return action

    def observe(self, measured: Measured) -> NDArray[np.float32]:
        if self._seen is not SPACE:
            ages = [measured.ages[image.name] for image in self.contract.observed_images]
            return bounded(
                [measured.actions[:IN_FLIGHT].ravel(), self.target, np.array(ages)], self._seen)
        stamp = measured.stamps[self._source]
        reading = JointReading(np.array([measured[name] for name in JOINTS]), np.array(stamp))
        return self._past.observe(
            self._observer, reading, stamp + measured.ages[self._source],
            measured.actions[:IN_FLIGHT].astype(np.int8), self.target)

    def reward(self, before: Measured, after: Measured) -> float:
        """Return the dense reward of the environment."""
        positions = np.stack([self._positions(before), self._positions(after)])
        tools = self._kinematics.pose(positions)[:, :3, 3]
        distances = np.linalg.norm(tools - self.target, axis=1)
        travel = travel_time(
            self._geometry, positions, np.broadcast_to(
                self._at_target, (2, *self._at_target.shape)))
        self._success = self._past.is_success(after.time, float(distances[1]), self.contract.rate)
        switched = np.count_nonzero(before.actions[0] != after.actions[0])
        return float(dense_reward(
            distances[:1] - distances[1:], travel[:1] - travel[1:], distances[1:],
            np.array([self._success]), np.array([switched]),
            self._world.checker.collides(positions[1:]))[0])

    def success(self, after: Measured) -> bool:
        return self._success

    def _positions(self, measured: Measured) -> NDArray[np.float64]:
        positions = np.array([measured[name] for name in JOINTS])
        return np.where(np.isfinite(positions), positions, self._assumed)
