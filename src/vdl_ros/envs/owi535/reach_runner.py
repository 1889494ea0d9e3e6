"""Runs a policy of the task *reach* outside of the environment: from measurements to motors.

The observation is the environment's own, by ``ReachObserver.observe``. What the environment never
shows a policy switches the motors off instead: measurements that are too old or incomplete, a
target that no pose reaches, a gap between two updates. No ROS.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.geometry import ArmGeometry
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.simulation.scene import CollisionChecker, build_scene
from vdl_ros.envs.owi535.arm_env import IN_FLIGHT, RATE, JointReading
from vdl_ros.envs.owi535.arm_task import CUBE, Workspace
from vdl_ros.envs.owi535.reach import FEATURES, MOTORS, ReachObserver
from vdl_ros.envs.owi535.robot_tasks import Past

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
        self._past = Past()

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
            self._commands[:], self._past = 0, Past()
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
        observation = self._observer.observe(
            reading, self._past.before(reading), np.array(now), self._commands, self.target)
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
        self._past, self._is_fresh = Past(), True
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
