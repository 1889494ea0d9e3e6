"""The trajectory controller for on/off motors, and its settings."""

import collections
import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vdl_ros.arm.control.trajectory import JointTrajectory, TrajectoryError
from vdl_ros.arm.geometry import ArmGeometry, Positions
from vdl_ros.arm.joints import JOINTS
from vdl_ros.common.settings import SettingError, setting


@dataclasses.dataclass(frozen=True)
class ControllerConfig:
    """Settings of the trajectory controller for on/off motors."""

    start_band: float = setting(
        0.030, 'A motor starts if its predicted distance exceeds this.', minimum=0.001,
        maximum=1.0, unit='rad')
    stop_band: float = setting(
        0.008, 'A motor stops if its predicted distance is below this.', minimum=0.0, maximum=1.0,
        unit='rad')
    goal_tolerance: float = setting(
        0.040, 'Largest measured distance of any joint at the end.', minimum=0.001, maximum=1.0,
        unit='rad')
    path_tolerance: float = setting(
        0.12, 'The trajectory waits for a joint that lags by more than this.', minimum=0.001,
        maximum=3.0, unit='rad')
    response_time: float = setting(
        0.06, 'Time from a command to its effect.', minimum=0.0, maximum=2.0, unit='s')
    stale_after: float = setting(
        0.3, 'Motors are off while the newest measurement is older.', minimum=0.01, maximum=10.0,
        unit='s')
    goal_timeout: float = setting(
        3.0, 'A trajectory is aborted after this without progress.', minimum=0.1, maximum=60.0,
        unit='s')
    progress: float = setting(
        0.01, 'Least movement of a joint, or towards the goal, that counts as progress.',
        minimum=0.001, maximum=1.0, unit='rad')
    viewer_timeout: float = setting(
        0.0, 'Motors are off after this without a message on arm/viewer_alive; 0: none needed '
        'before the first. arm.launch.py sets 1 s with a viewer.', minimum=0.0, maximum=60.0,
        unit='s')

    def __post_init__(self) -> None:
        for less, more in (('stop_band', 'start_band'), ('start_band', 'goal_tolerance'),
                           ('start_band', 'path_tolerance')):
            if getattr(self, less) >= getattr(self, more):
                raise SettingError(
                    f'{less}: {getattr(self, less):g} is not allowed: less than {more}, '
                    f'{getattr(self, more):g}')


#: int8 [5]: -1, 0 or 1 for each joint.
Directions = NDArray[np.int8]
# How far in the future a stamp may be, s: the clocks of two hosts differ.
_CLOCK_SKEW = 0.05


class TrajectoryController:
    """Runs one trajectory at a time; a new one replaces it.

    ``state`` is ``'idle'``, ``'running'``, ``'done'`` or ``'aborted'``; ``reason`` is one line on
    why a trajectory was aborted or refused. All times are seconds of one clock.

    Args:
        geometry: limits and speeds of the joints.
    """

    def __init__(self, geometry: ArmGeometry, config: ControllerConfig | None = None):
        self.config = config or ControllerConfig()
        self.geometry = geometry
        self.state = 'idle'
        self.reason = ''
        #: Number of trajectories started.
        self.starts = 0
        #: Where the joints should be now, float64 [5], rad; NaN for joints without a target.
        self.target: Positions = np.full(len(JOINTS), math.nan)
        #: Measured position minus target, float64 [5], rad; NaN where unknown.
        self.error: Positions = np.full(len(JOINTS), math.nan)
        self._speed = geometry.velocity
        self._trajectory: JointTrajectory | None = None
        self._start: Positions | None = None
        self._path_time = 0.0
        self._now: float | None = None
        self._motors: Directions = np.zeros(len(JOINTS), np.int8)
        # Times and commands, oldest first; the last one is in force.
        self._sent: collections.deque[tuple[float, Directions]] = collections.deque()
        self._best = math.inf
        self._progress_at: float | None = None

    @property
    def motors(self) -> Directions:
        return np.array(self._motors)

    @property
    def progress(self) -> float:
        """Return how much of the trajectory's time has passed, from 0 to 1."""
        if self._trajectory is None or self._trajectory.duration == 0.0:
            return 1.0 if self.state == 'done' else 0.0
        return min(1.0, self._path_time / self._trajectory.duration)

    def start(
        self, names: Sequence[str], positions: Sequence[Sequence[float]], times: Sequence[float],
    ) -> None:
        """Start a trajectory at the next update; it replaces a running one.

        Arguments are those of :class:`JointTrajectory`; after a TrajectoryError the arm stops.
        """
        try:
            trajectory = JointTrajectory(names, positions, times, self.geometry)
        except TrajectoryError as error:
            self.refuse(str(error))
            raise
        self._trajectory = trajectory
        self._start = None
        self._path_time = 0.0
        self._best = math.inf
        self._progress_at = None
        self._pushed, self._seen = np.zeros(len(JOINTS)), np.full(len(JOINTS), math.nan)
        self.starts += 1
        self.state, self.reason = 'running', ''

    def refuse(self, reason: str) -> None:
        self._end('aborted', reason)

    def cancel(self, reason: str = 'cancelled') -> None:
        """Abort a running trajectory; motors are off from the next update on."""
        if self.state == 'running':
            self._end('aborted', reason)

    def update(
        self, now: float, positions: ArrayLike | None, stamp: float | None, paused: str = '',
    ) -> Directions:
        """Return the motor directions until the next update, int8 [5].

        Call it at a steady rate with the latest measurement, even an old one.

        Args:
            now: s.
            positions: float64 [5], rad; NaN for unmeasured joints; None before the first.
            stamp: time of the measurement, s.
            paused: why motors have to be off now; '' if they need not.
        """
        elapsed = 0.0 if self._now is None else now - self._now
        self._now = now
        if elapsed < 0.0:
            self._sent.clear()
            self.cancel('time went backward')
        # After a long pause between updates the arm has not moved along its path.
        elapsed = min(elapsed, self.config.stale_after)
        if self.state != 'running':
            return self._send(now, np.zeros(len(JOINTS), np.int8))
        if self._progress_at is None:
            self._progress_at = now
        measured = self._usable(now, positions, stamp)
        command = np.zeros(len(JOINTS), np.int8)
        if measured is not None and stamp is not None and not paused:
            command = self._follow(now, elapsed, measured, stamp)
        else:
            self.error[:] = math.nan
        if self.state == 'running' and now - self._progress_at > self.config.goal_timeout:
            self._end('aborted', self._why(measured, paused))
        if self.state != 'running':
            command = np.zeros(len(JOINTS), np.int8)
        return self._send(now, command)

    def _follow(self, now: float, elapsed: float, measured: Positions, stamp: float) -> Directions:
        trajectory = self._trajectory
        assert trajectory is not None
        joints = list(trajectory.joints)
        if self._start is None:
            self._start = measured.copy()
            elapsed = 0.0
        self._watch_joints(measured, elapsed)
        self.target = trajectory.target(self._path_time, self._start)
        self.error = measured - self.target
        commanded = self._commanded(now, stamp)
        # Where the joints come to rest if all motors are switched off now.
        rest = measured + self._speed * commanded
        if float(np.max(np.abs((rest - self.target)[joints]))) <= self.config.path_tolerance:
            if self._path_time < trajectory.duration:
                self._progress_at = now
                self._best = math.inf
            self._path_time += elapsed
            self.target = trajectory.target(self._path_time, self._start)
            self.error = measured - self.target
        command = np.zeros(len(JOINTS), np.int8)
        ahead = trajectory.ahead(self._path_time) - self.target
        for index in joints:
            command[index] = self._switch(
                int(self._motors[index]), float(self.target[index] - rest[index]),
                float(ahead[index]))
        worst = float(np.max(np.abs(self.error[joints])))
        if worst < self._best - self.config.progress:
            self._best = worst
            self._progress_at = now
        if self._pushed.max() > self.config.goal_timeout:
            self._progress_at = -math.inf
        # At rest: nothing commanded now or in the time that the measurement does not cover.
        still = not command.any() and not commanded.any()
        if (self._path_time >= trajectory.duration and still
                and worst <= self.config.goal_tolerance):
            self._end('done', '')
        return command

    def _watch_joints(self, measured: Positions, elapsed: float) -> None:
        """Count for how long each motor has run while its joint stood, on a slow path too."""
        has_moved = ~(np.abs(measured - self._seen) < self.config.progress)
        self._seen = np.where(has_moved, measured, self._seen)
        self._pushed = np.where(
            has_moved, 0.0, self._pushed + elapsed * (np.array(self._motors) != 0))

    def _switch(self, now: int, missing: float, ahead: float) -> int:
        """Return -1, 0 or 1 for a motor that runs ``now`` with ``missing`` rad to go.

        A running motor may lead a target that still has ``ahead`` rad to its next point: this
        halves the switching on a slow path.
        """
        if now != 0:
            lead = min(max(now * ahead, 0.0), self.config.start_band / 2.0)
            return now if now * missing + lead > self.config.stop_band else 0
        if abs(missing) > self.config.start_band:
            return 1 if missing > 0.0 else -1
        return 0

    def _commanded(self, now: float, stamp: float) -> Positions:
        """Return the signed time each motor was on that ``stamp`` does not cover, s."""
        since = stamp - self.config.response_time
        total = np.zeros(len(JOINTS))
        until = now
        for begun, motors in reversed(self._sent):
            total += motors * max(0.0, until - max(begun, since))
            until = begun
            if begun <= since:
                break
        return total

    def _usable(
        self, now: float, positions: ArrayLike | None, stamp: float | None,
    ) -> Positions | None:
        if positions is None or stamp is None or self._trajectory is None:
            return None
        age = now - stamp
        if not -_CLOCK_SKEW <= age <= self.config.stale_after:
            return None
        measured = np.array(positions, np.float64)
        if measured.shape != (len(JOINTS),):
            return None
        needed = measured[list(self._trajectory.joints)]
        return measured if bool(np.isfinite(needed).all()) else None

    def _why(self, measured: Positions | None, paused: str) -> str:
        seconds = self.config.goal_timeout
        if paused:
            return f'{paused} for {seconds:g} s'
        if measured is None:
            return f'no measurement of the joints for {seconds:g} s'
        index = int(np.nanargmax(np.abs(self.error)))
        return (f'{JOINTS[index]}: {abs(float(self.error[index])):.3f} rad from its target, '
                f'no progress for {seconds:g} s')

    def _end(self, state: str, reason: str) -> None:
        self.state, self.reason = state, reason
        self._trajectory = None if state != 'done' else self._trajectory
        if self._now is not None:
            self._send(self._now, np.zeros(len(JOINTS), np.int8))

    def _send(self, now: float, command: Directions) -> Directions:
        """Record a command; drop those that every measurement covers."""
        if not self._sent or not np.array_equal(command, self._motors):
            self._sent.append((now, command.copy()))
        self._motors = command
        oldest = now - self.config.stale_after - self.config.response_time
        while len(self._sent) > 1 and self._sent[1][0] <= oldest:
            self._sent.popleft()
        return np.array(command)
