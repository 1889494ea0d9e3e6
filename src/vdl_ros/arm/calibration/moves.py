"""The moves of a calibration, and what is recorded of them."""

import dataclasses
import itertools
import math
from collections.abc import Generator, Sequence

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.joints import JOINTS, Motors
from vdl_ros.arm.simulation.scene import CollisionChecker
from vdl_ros.common.settings import SettingError, setting, suggestion


@dataclasses.dataclass(frozen=True)
class MovesConfig:
    """Moves of a calibration.

    A joint moves ``reach`` (rad) to both sides of the arm upright, or ``share`` of its travel if
    that is less, ``rounds`` times. Readings are averaged for ``average`` s at rest, and may be
    ``stale_after`` s old. ``noticed`` is the least distance that shows that a joint moved, rad,
    within ``onset`` s; ``close`` is how far an angle may be off, rad.
    """

    reach: float
    rounds: int
    average: float
    stale_after: float
    noticed: float
    onset: float
    close: float
    share: float = 0.35


#: Exact positions, 60 times a second.
BY_TRUTH = MovesConfig(0.5, 1, 0.25, 0.5, 0.03, 2.0, 0.08)
#: Estimates from pictures: errors of some degrees that change within seconds.
BY_CAMERA = MovesConfig(0.8, 2, 0.6, 1.0, 0.12, 4.0, 0.2)


@dataclasses.dataclass(frozen=True)
class CalibrateConfig:
    """The program ``calibrate``."""

    output: str = setting('arm_calibration.yaml', 'File to write, or to replace.')
    feedback: str = setting(
        'truth', 'Joints are measured on arm/joint_states (truth) or arm/pose (camera).',
        choices=('truth', 'camera'))
    joints: str = setting('', 'Joints, such as "base,elbow"; empty: all that are measured.')
    reach: float = setting(
        0.0, f'How far a joint moves to each side; 0: {BY_TRUTH.reach:g} by truth, '
        f'{BY_CAMERA.reach:g} by camera.', minimum=0.0, maximum=1.0, unit='rad')
    rounds: int = setting(
        0, f'Repetitions; 0: {BY_TRUTH.rounds} by truth, {BY_CAMERA.rounds} by camera.',
        minimum=0, maximum=20)
    yes: bool = setting(False, 'Move the arm without asking, as --yes.')

    @property
    def moves(self) -> MovesConfig:
        """Return how far and how long joints move; SettingError: too little to measure play."""
        found = BY_CAMERA if self.feedback == 'camera' else BY_TRUTH
        if 0.0 < self.reach < 0.2:
            raise SettingError(f'reach: {self.reach:g} is not allowed: at least 0.2, or 0')
        return dataclasses.replace(
            found, reach=self.reach or found.reach, rounds=self.rounds or found.rounds)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the joints to calibrate; SettingError: an unknown joint."""
        names = tuple(self.joints.replace(',', ' ').split())
        for name in names:
            if name not in JOINTS:
                raise SettingError(f'joints: {name!r} is not allowed: some of '
                                   f'{", ".join(JOINTS)}{suggestion(name, JOINTS)}')
        return names or tuple(JOINTS)


Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Stroke:
    """One motor ran alone from ``start`` to ``end``, s, as ``command`` says, -1 or 1.

    The arm was at rest from ``rested`` on, as far as commands go, and after it until ``next``.
    """

    joint: int
    command: int
    start: float
    end: float
    rested: float
    next: float


@dataclasses.dataclass
class Recording:
    """Readings and commands of one clock, in the order of time.

    ``times`` has N times, s, and ``positions`` float64 [5] for each, rad, NaN where a joint is not
    measured; ``command_times`` has M times and ``commands`` five directions for each.
    """

    times: list[float] = dataclasses.field(default_factory=list)
    positions: list[Array] = dataclasses.field(default_factory=list)
    command_times: list[float] = dataclasses.field(default_factory=list)
    commands: list[tuple[int, ...]] = dataclasses.field(default_factory=list)

    def reading(self, stamp: float, positions: Array) -> None:
        self.times.append(stamp)
        self.positions.append(np.array(positions, np.float64))

    def command(self, stamp: float, directions: tuple[int, ...]) -> None:
        if not self.commands or self.commands[-1] != directions:
            self.command_times.append(stamp)
            self.commands.append(directions)

    def strokes(self) -> list[Stroke]:
        found = []
        off, times = (0,) * len(JOINTS), [*self.command_times, math.inf]
        for number in range(1, len(self.commands) - 1):
            before, command, after = self.commands[number - 1:number + 2]
            if before == after == off and sum(map(abs, command)) == 1:
                joint = next(index for index, value in enumerate(command) if value)
                rested, start, end, following = times[number - 1:number + 3]
                found.append(Stroke(joint, command[joint], start, end, rested, following))
        return found


_Script = Generator[Motors, None, None]

#: Time that a joint needs to come to rest after its motor is off, s.
SETTLE = 0.6
# About how long a joint moves on after it was measured, s: it is switched off this much earlier.
_LEAD = 0.15
# How far ahead of a moving joint nothing may be in its way, rad.
_CLEAR = 0.12
# Longest time of a first move, s.
_PROBE = 1.5
# A joint that has gone this far the wrong way, rad, has another sign than it had before.
_WRONG = 0.15
# Time until the arm does what it is told, s.
_OBEY = 1.0
# Order in which joints are moved; the first ones disturb the others least.
_ORDER = ('wrist', 'elbow', 'shoulder', 'base', 'gripper')
# A round: targets as shares of the reach, from -1 on. Both directions run with and without a
# reversal before them, in both halves: gravity differs there.
_ROUND = (-1.0, 0.0, 1.0, 0.0, 1.0, 0.0, -1.0, 0.0, -1.0)


class CalibrationError(RuntimeError):
    """A calibration that cannot go on; the message is one line."""


class CalibrationMoves:
    """Moves the arm and records what it does; see the module.

    ``step`` of ``steps`` is done now, ``text`` says what that is; ``done`` ends it. Joints that
    are not measured (NaN) stay off and are taken to be straight.
    """

    def __init__(
        self, checker: CollisionChecker, config: MovesConfig = BY_TRUTH,
        joints: Sequence[str] = JOINTS,
    ) -> None:
        self._checker, self._config = checker, config
        geometry = checker.scene.geometry
        self._lower, self._upper = geometry.lower, geometry.upper
        self._speed = geometry.velocity
        self._wanted_joints = tuple(name for name in _ORDER if name in joints)
        #: The arm upright, its gripper half open.
        self._home = geometry.upright
        self._home[-1] = (self._lower[-1] + self._upper[-1]) / 2.0
        self._reach = np.minimum(config.reach, config.share * (self._upper - self._lower))
        self.recording = Recording()
        self.joints: tuple[str, ...] = ()
        self.signs = np.zeros(len(JOINTS), np.int8)
        self.step, self.steps, self.text = 0, 0, ''
        self.done = False
        self._now = self._stamp = -math.inf
        self._positions: Array = np.zeros(len(JOINTS))
        self._command, self._commanded_at = Motors(), -math.inf
        self._accepted: Motors | None = None
        self._obeyed_at = -math.inf
        self._script = self._run()

    def accepted(self, stamp: float, motors: Motors) -> None:
        """Record a command; CalibrationError: it is not that of this calibration."""
        self._accepted = motors
        self.recording.command(stamp, motors.values)
        self._check_obeyed()

    def update(self, now: float, stamp: float, positions: Array) -> Motors:
        """Return the command until the next call; call it 50 times a second, ``now`` in s.

        ``positions`` is the latest reading, of the time ``stamp``, float64 [5], rad, NaN where
        there is none. CalibrationError: the arm cannot move safely, or does not move.
        """
        self._now = now
        if not -self._config.stale_after <= now - stamp <= self._config.stale_after:
            raise CalibrationError(
                f'the latest positions of the joints are {now - stamp:.2f} s old; at most '
                f'{self._config.stale_after:g} s is allowed')
        if stamp < self._stamp:
            raise CalibrationError('the stamps of the joints went backward')
        if stamp > self._stamp:
            self._read(stamp, positions)
        self._check_obeyed()
        try:
            command = next(self._script)
        except StopIteration:
            self.done, command = True, Motors()
        self._check_path(command)
        if command != self._command:
            self._command, self._commanded_at = command, now
        return command

    def _read(self, stamp: float, positions: Array) -> None:
        lost = [name for name in self.joints if not math.isfinite(positions[JOINTS.index(name)])]
        if lost:
            raise CalibrationError(f'{", ".join(lost)}: not measured any more')
        for name, value, low, high in zip(
                JOINTS, positions, self._lower, self._upper, strict=True):
            if value < low - self._config.close or value > high + self._config.close:
                raise CalibrationError(
                    f'{name}: measured at {value:.2f} rad, beyond its limits, {low:.2f} to '
                    f'{high:.2f}')
        self._stamp = stamp
        self._positions = np.where(np.isfinite(positions), positions, self._home)
        self.recording.reading(stamp, positions)

    def _check_obeyed(self) -> None:
        """Check that the arm follows this calibration and nobody else."""
        if self._accepted is None or self._accepted.values == self._command.values:
            self._obeyed_at = self._now
        # A watchdog may stop a motor for a moment; that nobody else runs one is certain sooner.
        late = self._now - max(self._commanded_at, self._obeyed_at)
        if late > (_OBEY / 2.0 if self._accepted is not None and self._accepted.moving else _OBEY):
            raise CalibrationError(
                f'the arm does not follow: commanded was {self._command}, sent to it '
                f'{self._accepted} (another sender, or a motor at its run time limit)')

    def _check_path(self, command: Motors) -> None:
        """Check that nothing is in the way of the joint that moves."""
        ahead = self._positions.copy()
        for index, value in enumerate(command.values):
            # Before its sign is known a joint may turn either way; that was checked before.
            ahead[index] += value * int(self.signs[index]) * _CLEAR
        if command.moving and self._collides(ahead[None]):
            raise CalibrationError(
                f'{command}: the arm is about to hit itself or the table; bring it upright first')

    def _collides(self, poses: Array) -> bool:
        return bool(self._checker.collides(np.clip(poses, self._lower, self._upper)).any())

    def _is_free(self, pose: Array, index: int, begin: float, end: float) -> bool:
        """Return whether a joint can move from ``begin`` to ``end``, others as in ``pose``."""
        poses = np.tile(pose, (20, 1))
        poses[:, index] = np.linspace(begin, end, len(poses))
        return not self._collides(poses)

    def _run(self) -> _Script:
        yield from self._rest()
        self.joints = tuple(name for name in self._wanted_joints
                            if math.isfinite(self.recording.positions[-1][JOINTS.index(name)]))
        if not self.joints:
            raise CalibrationError(
                f'none of the joints is measured: {", ".join(self._wanted_joints)}')
        self.steps = 2 * len(self.joints) + 1
        indices = [JOINTS.index(name) for name in self.joints]
        for index in indices:
            self._next(f'{JOINTS[index]}: which way it turns')
            yield from self._find_sign(index)
        self._next('bring the arm upright')
        for index in self._way_home(indices):
            yield from self._move(index, float(self._home[index]))
        for index in indices:
            home, reach = float(self._home[index]), float(self._reach[index])
            self._next(f'{JOINTS[index]}: {math.degrees(reach):.0f} degrees to both sides')
            targets = [home + share * reach for share in _ROUND]
            self._check_free(index, targets)
            for target in targets[:1] + targets[1:] * self._config.rounds + [home]:
                yield from self._move(index, target)

    def _next(self, text: str) -> None:
        self.step, self.text = self.step + 1, text

    def _rest(self) -> _Script:
        """Keep motors off until the joints have been measured at rest."""
        until = max(self._now, self._stamp) + SETTLE + self._config.average
        while self._stamp < until or not math.isfinite(self._stamp):
            if not math.isfinite(until):
                until = self._stamp + SETTLE + self._config.average
            yield Motors()

    def _find_sign(self, index: int) -> _Script:
        """Move a joint a little, and back; its sign is that of the distance it went."""
        start = float(self._positions[index])
        span = 0.6 * float(self._reach[index])
        self._check_free(index, [start - span, start + span])
        # Away from the nearer limit, if the arm is wired as its driver says.
        first = 1 if start < (self._lower[index] + self._upper[index]) / 2.0 else -1
        for value in (first, -first):
            begun, start = self._now, float(self._positions[index])
            enough = max(self._config.noticed, 0.1 * span)
            while (self._now - begun < min(_PROBE, 2.0 * span / self._speed[index] + 0.5)
                   and abs(float(self._positions[index]) - start) < enough):
                yield _only(index, value)
            yield from self._rest()
            moved = float(self._positions[index]) - start
            if abs(moved) >= self._config.noticed:
                self.signs[index] = value if moved > 0.0 else -value
                return
        raise CalibrationError(
            f'{JOINTS[index]}: no motion in either direction: is the arm switched on, and does '
            'the measurement show it?')

    def _move(self, index: int, target: float) -> _Script:
        start, begun = float(self._positions[index]), self._now
        way = 1 if target > start else -1
        lead = float(self._speed[index]) * _LEAD
        distance = abs(target - start)
        if distance < max(lead, self._config.close / 2.0):
            return
        allowed = 3.0 * distance / self._speed[index] + self._config.onset
        while way * (target - float(self._positions[index])) > lead:
            moved, elapsed = way * (float(self._positions[index]) - start), self._now - begun
            if moved < -_WRONG:
                raise CalibrationError(f'{JOINTS[index]}: it turned the wrong way')
            if elapsed > self._config.onset and moved < self._config.noticed:
                raise CalibrationError(f'{JOINTS[index]}: no motion for {self._config.onset:g} s')
            if elapsed > allowed:
                raise CalibrationError(
                    f'{JOINTS[index]}: {moved:.2f} of {distance:.2f} rad in {elapsed:.1f} s')
            yield _only(index, way * int(self.signs[index]))
        yield from self._rest()

    def _way_home(self, indices: Sequence[int]) -> tuple[int, ...]:
        """Return an order in which the joints can go upright without a collision."""
        for order in itertools.permutations(indices):
            pose, free = self._positions.copy(), True
            for index in order:
                free = free and self._is_free(pose, index, pose[index], self._home[index])
                pose[index] = self._home[index]
            if free:
                return order
        raise CalibrationError(
            'the arm would hit itself or the table on its way upright; bring it upright first')

    def _check_free(self, index: int, targets: Sequence[float]) -> None:
        """Check that a joint can move between targets, and a little beyond."""
        low, high = min(targets), max(targets)
        if not self._is_free(self._positions, index, low - _CLEAR, high + _CLEAR):
            raise CalibrationError(f'{JOINTS[index]}: not free to move '
                                   f'{math.degrees(high - low):.0f} degrees; bring the arm '
                                   'upright first')


def _only(index: int, value: int) -> Motors:
    return Motors.of([value if other == index else 0 for other in range(len(JOINTS))])
