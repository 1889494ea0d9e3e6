"""Who may move a robot, and when: a person comes first.

A program that moves a robot by itself has a :class:`Consent`: it asks before it begins, and loses
it by a person's command, an emergency stop or a standstill. Then it moves nothing before it is
asked again. Persons are all senders but the programs of this package.
"""

import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from vdl_ros.common.quoting import shown
from vdl_ros.common.settings import SettingError

#: Longest time between two updates that is no standstill, s.
MAX_GAP = 1.0
#: A robot is left to others for so long after their last command, s.
YIELD_S = 1.0
#: A viewer, whose stop button is needed, is gone after this time without a sign of life, s.
VIEWER_S = 1.0

#: Why a consent ends after a standstill.
STOOD_STILL = 'the process stood still'

# A command that a driver needs after a stop may come so long before the news of its end, s.
_STATE_S = 0.5
# One that comes so long after this news is none, s: a person switches the motors off.
_NEUTRAL_S = 0.25
# One that asks for motion so long before the driver starts asks for it with this driver, s.
_START_S = 1.0
# After a longer time between two updates what is read may have waited, and for so long, s.
_PAUSE_S, _DRAIN_S = 0.1, 0.1
# What a person did so long ago moves nothing any more, s.
_OLD_S = 0.2

# If a sender's commands are late for so long, by the same to within so much, its clock was set, s.
# Of so many senders.
_CLOCK_SET_S, _EQUAL_S, _SENDERS = 1.0, 0.1, 64
# How far clocks drift apart, s per s.
_DRIFT = 1e-3

# An environment that commanded last so long ago may be resetting the robot by a controller, s.
_RESET_S = 60.0

# A program that commands again within this time goes on, s.
_AGAIN_S = 0.25
# The node of this package that follows trajectories.
_CONTROLLER = 'arm_controller'
# One that comes before these, as the person does who has started it.
_STARTED = 'calibrate'
#: Begin of the names of nodes that command a robot as its environment, programs too.
ROBOT_ENVIRONMENT = 'robot_environment_'


def time_since_boot() -> float:
    """Return the time since the machine started, also while it was suspended, s."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _name(sender: str) -> str:
    return sender.partition('#')[0].rsplit('/', 1)[-1]


def is_program(sender: str) -> bool:
    """Return whether a node, by its full name, commands by itself: controller or environment."""
    name = _name(sender)
    return name == _CONTROLLER or name.startswith(ROBOT_ENVIRONMENT)


def unique_sender(name: str) -> str:
    """Return the sender of the commands of a node that a person starts, perhaps twice."""
    return f'{name}#{secrets.token_hex(4)}'


def named(sender: str) -> str:
    """Return the name of a sender, for people."""
    return shown(sender.partition('#')[0])


def check_program(name: str) -> None:
    if not is_program(name):
        raise SettingError(
            f'__node: {name!r} is not allowed: {_CONTROLLER}, because every other sender is '
            'taken for a person; use a namespace')


class Precedence:
    """Lets a person's commands come before those of the programs of this package."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._environment_until = self._moved_at = self._commanded_at = -math.inf
        # The person who commanded last, and whether they have not let go.
        self._person, self._moves = '', False

    def admits(self, sender: str, moving: bool, now: float) -> bool:
        """Return whether a command of ``sender`` counts at ``now``, s."""
        if is_program(sender):
            if ROBOT_ENVIRONMENT in sender:
                self._environment_until = now + _RESET_S
            return now - self._moved_at >= self._window
        if moving:
            self._moved_at = now
        return True

    def begins(self, sender: str, now: float, *, moving: bool, for_lamp: bool = False) -> bool:
        """Return whether a person begins to move the robot, or switches off what others move.

        That ends what programs do, which may not hear the person.
        """
        if is_program(sender) or _name(sender) == _STARTED or (for_lamp and not moving):
            return False
        # To go on, to let go, or to repeat that is no begin.
        within = YIELD_S if self._moves else 0.0 if moving else _AGAIN_S
        goes_on = sender == self._person and now - self._commanded_at < within
        self._person, self._moves, self._commanded_at = sender, moving, now
        return not goes_on

    def forget(self) -> None:
        """Take whoever commands next for one who begins."""
        self._person = ''

    def ends_environment(self, now: float, *, moving: bool) -> bool:
        """Return whether what :meth:`begins` ends an environment, too.

        Motion does not: an environment may let a person take over.
        """
        return not moving and now < self._environment_until


class StandstillDetector:
    """Tells whether input may have waited while the process or its machine stood still.

    What was sent meanwhile arrives afterwards, when nobody expects motion any more.

    Args:
        max_gap: between two updates, s; infinity: nothing is a standstill or a pause.
        settling: for how long after a standstill input may still be old, s.
        clock: s.
    """

    def __init__(
        self, max_gap: float = MAX_GAP, settling: float = 1.0,
        clock: Callable[[], float] = time_since_boot,
    ) -> None:
        self._max_gap, self._settling, self._clock = max_gap, settling, clock
        self._max_pause = _PAUSE_S if max_gap < math.inf else math.inf
        # Input that arrives before the first update is not old: the process has just started.
        self._updated_at, self._went_on_at = math.inf, -math.inf
        self._paused_at, self._resumed_at = math.inf, -math.inf

    def update(self) -> bool:
        """Note that the process runs; call it at a steady rate. Return :attr:`recent`."""
        now = self._clock()
        if now - self._updated_at > self._max_pause:
            self._paused_at, self._resumed_at = now - self.input_age, now
        if now - self._updated_at > self._max_gap:
            self._went_on_at = now
        self._updated_at = now
        return now - self._went_on_at < self._settling

    @property
    def recent(self) -> bool:
        """Return whether the process stands still, or went on less than ``settling`` ago."""
        now = self._clock()
        return now - self._updated_at > self._max_gap or now - self._went_on_at < self._settling

    @property
    def input_age(self) -> float:
        """Return for how long input that is read now may have waited, s.

        What arrived within a pause, also one that is no standstill, is read in any order.
        """
        now = self._clock()
        is_paused = now - self._updated_at > self._max_pause
        if (self._updated_at if is_paused else now) - self._resumed_at < _DRAIN_S:
            return now - self._paused_at
        return now - self._updated_at if is_paused else 0.0

    @property
    def is_input_old(self) -> bool:
        """Return whether what a person asks for in input that is read now must not move."""
        return self.recent or self.input_age > _OLD_S


class DelayDetector:
    """Tells which commands were held up on their way, whatever the senders' clocks show.

    What a process had handed to the middleware before it stood still arrives when it goes on.

    Args:
        max_delay: how much longer a command may take than the sender's quickest one, s.
    """

    def __init__(self, max_delay: float) -> None:
        self._max_delay = max_delay
        self._senders: dict[str, _Sender] = {}

    def delay(self, sender: str, stamp: float, *clocks: float) -> float:
        """Return how much longer than others of its sender a command took that arrives now, s.

        Now is what that of ``clocks``, simulated or not, shows that is nearest to the ``stamp``.
        0 if it is in time, or unknown: it has no sender, no stamp or the same one again.
        """
        if not sender or not stamp:
            return 0.0
        now = min(clocks, key=lambda each: abs(each - stamp))
        found = self._senders.pop(sender, None) or _Sender(stamp, now, now - stamp, now - stamp)
        self._senders[sender] = found
        if len(self._senders) > _SENDERS:
            del self._senders[next(iter(self._senders))]
        return found.delay(stamp, now, self._max_delay)


@dataclass
class _Sender:
    """What is known of a sender's commands; times, s.

    Attributes:
        stamp, arrived: of the last one in time, and of the last one.
        taken: arrival less stamp of the last one.
        usual: that of the quickest ones; clocks drift apart.
        set_at, set_by: when the clock seems to have been set, and what ``taken`` became.
    """

    stamp: float
    arrived: float
    taken: float
    usual: float
    set_at: float = math.inf
    set_by: float = 0.0

    def delay(self, stamp: float, now: float, max_delay: float) -> float:
        since, jump = now - self.arrived, now - stamp - self.taken
        self.arrived, self.taken = now, now - stamp
        delay = self.taken - self.usual
        if delay > max_delay and stamp != self.stamp:
            # Within a link that becomes slower and slower nothing jumps. Who has paused begins
            # again, whatever the link was before.
            if jump > max_delay or since - jump > _CLOCK_SET_S:
                self.set_at, self.set_by = now, self.taken
            elif abs(self.taken - self.set_by) > min(_EQUAL_S, 0.5 * max_delay):
                self.set_at = math.inf
            if now - self.set_at < _CLOCK_SET_S:
                return delay
            self.usual = self.taken
        self.stamp, self.set_at = stamp, math.inf
        self.usual = min(self.taken, self.usual + _DRIFT * max(0.0, since))
        return 0.0


def _who(sender: str) -> str:
    if ROBOT_ENVIRONMENT in sender:
        return 'another environment'
    return named(sender) or 'a person'


class Consent:
    """Whether one program may move a robot; call :meth:`update` at a steady rate.

    Args:
        name: of the node that commands, as its messages name it.
        withdrawn: called when a given consent ends, with one line, and whether somebody else
            moves the robot: then a neutral command would stop the other one.
        yields_to_programs: whether other programs that move the robot end it too.
        resumes: others who move the robot, and stops, only interrupt: :attr:`pause`.
        waits_for_driver: who asks, asks for motion with a driver that has not started yet.
        viewer_timeout: a viewer is needed, with a sign of life in this time, s; 0: only from its
            first one on, with ``VIEWER_S``.
        heeds_standstills: whether one ends the consent.
        clock: s.
    """

    def __init__(
        self, name: str, withdrawn: Callable[[str, bool], None], *,
        yields_to_programs: bool = True, resumes: bool = False, waits_for_driver: bool = False,
        viewer_timeout: float = 0.0, heeds_standstills: bool = True,
        clock: Callable[[], float] = time_since_boot,
    ) -> None:
        self._heeds_standstills = heeds_standstills
        self._waits_for_driver = waits_for_driver or resumes
        self._name, self._withdrawn = name, withdrawn
        self._yields_to_programs, self._resumes = yields_to_programs, resumes
        self._viewer_timeout, self._clock = viewer_timeout or VIEWER_S, clock
        self._alive_at = -math.inf if viewer_timeout else math.inf
        self._standstill = StandstillDetector(clock=clock)
        self.given = False
        self.stopped = False
        self._stop_ended_at = self._off_at = self._asked_at = -math.inf
        self.mark: object = None
        # Senders of the neutral command that a driver needs after a stop, and the first command
        # of this kind that came before its end was known.
        self._neutral: set[str] = set()
        self._off_in_stop: tuple[str, float] | None = None
        self._neutral_required = False
        self._other, self._moves, self._moved_at = '', False, -math.inf
        self._commanded: object = None
        self._program, self._program_at = '', -math.inf
        # Why it would have ended last, and when.
        self._doubt, self._doubted_at = '', -math.inf

    def ask(self, age: float = 0.0) -> str:
        """Take a person's request to move, of so long ago, s; return why it is refused, or ''."""
        reason = self._refusal(age)
        self.given = not reason
        if self.given:
            self._asked_at = self._clock()
        return reason

    def end(self) -> None:
        """Take note that the program has done what it was asked to."""
        self.given = False

    def _refusal(self, age: float) -> str:
        if self.stopped:
            return 'emergency stop'
        if self._moves and self._clock() - self._moved_at < YIELD_S:
            return f'{_who(self._other)} moves the robot'
        if self._heeds_standstills and self._standstill.recent:
            return STOOD_STILL
        # The request may be older than what came with it.
        since = self._clock() - max(self.input_age, age)
        if self._stop_ended_at > since:
            return 'emergency stop'
        if self._off_at > since:
            return 'the motors were switched off meanwhile'
        return self._doubt if self._doubted_at > since else ''

    @property
    def input_age(self) -> float:
        """As :attr:`StandstillDetector.input_age`."""
        return self._standstill.input_age

    @property
    def is_input_old(self) -> bool:
        """As :attr:`StandstillDetector.is_input_old`."""
        return self._standstill.is_input_old

    @property
    def pause(self) -> str:
        """Why nothing may move now although the consent holds, or ''."""
        if self._resumes and self._clock() - self._moved_at < YIELD_S:
            return f'{_who(self._other)} commands the robot'
        return self.halt

    @property
    def halt(self) -> str:
        """Why nothing may move now, whoever else commands, or ''."""
        now = self._clock()
        if self._neutral_required or (self._resumes and now - self._stop_ended_at < YIELD_S):
            return 'the emergency stop was released'
        return self.missing_viewer

    @property
    def missing_viewer(self) -> str:
        """That a viewer with a stop button is needed and missing, or ''."""
        is_missing = self._clock() - self._alive_at > self._viewer_timeout
        return 'no sign of life of the viewer' if is_missing else ''

    def update(self) -> None:
        if self._standstill.update() and self._heeds_standstills:
            self.withdraw(STOOD_STILL)

    def on_command(self, sender: str, *, moving: bool, for_lamp: bool = False) -> bool:
        """Take a command of any node, also of the program itself.

        Return whether who moved the robot lets it go, also by a command ``for_lamp``.
        """
        if sender == self._name or (is_program(sender) and not self._yields_to_programs):
            return False
        is_released = self._moves and sender == self._other and (
            self._clock() - self._moved_at < YIELD_S)
        if not (moving or for_lamp or is_program(sender)):
            self._off_at = self._clock()
        if moving:
            self._other, self._moves, self._moved_at = sender, True, self._clock()
            if not self._resumes:
                self.withdraw(f'{_who(sender)} moves the robot', moved=True)
        elif is_released:
            # Who lets go of a button stops what the button moved.
            self._moves, self._moved_at = False, self._clock()
        elif not (for_lamp or is_program(sender) or self._is_neutral(sender)):
            self.withdraw(f'{_who(sender)} switched the motors off')
        return is_released and not moving

    def goes_on(self, sender: str) -> bool:
        """Return whether a program, other than an environment, commands again and again.

        It moves the robot also where its trajectory rests for a while. Call it at each command.
        """
        if not is_program(sender) or ROBOT_ENVIRONMENT in sender:
            return False
        before = self._program, self._program_at
        self._program, self._program_at = sender, self._clock()
        return before[0] == sender and self._program_at - before[1] < _AGAIN_S

    def _is_neutral(self, sender: str) -> bool:
        """Return whether a command only lets the driver go on after a stop."""
        if self.stopped:
            self._off_in_stop = self._off_in_stop or (sender, self._clock())
            return True
        is_late = self._clock() - self._stop_ended_at >= _NEUTRAL_S
        if self._asked_at >= self._stop_ended_at or (is_late and not self._neutral_required):
            return False
        is_first = sender not in self._neutral
        self._neutral.add(sender)
        return is_first

    def on_stop(
        self, engaged: bool, neutral_required: bool = False, mark: object = None, reason: str = '',
        commanded: object = None,
    ) -> None:
        """Take the state of the emergency stop.

        ``commanded`` changes when a person begins to command, whom this program may not hear. Of
        two equal states, a ``mark`` that has changed says that the robot was stopped meanwhile,
        or once more, or that what drives it has stood still or has started again: ``reason``.
        """
        before, self.mark = self.mark, mark
        if (before is None and mark is not None and not self._waits_for_driver
                and self._clock() - self._asked_at > _START_S):
            self.withdraw('the driver has started since')
        if before not in (None, mark) and engaged == self.stopped:
            self._off_at = self._clock()
            self.withdraw(reason or 'the robot was stopped meanwhile')
        others, self._commanded = self._commanded, commanded
        if others not in (None, commanded):
            self._off_at = self._clock()
            self.withdraw('a person commands the robot')
        if self.stopped and not engaged:
            self._stop_ended_at = self._clock()
            self._neutral.clear()
            off, self._off_in_stop = self._off_in_stop, None
            if off is not None and self._stop_ended_at - off[1] > _STATE_S:
                self.withdraw(f'{_who(off[0])} switched the motors off')
            elif off is not None:
                self._neutral.add(off[0])
        self.stopped, self._neutral_required = engaged, neutral_required
        if engaged and not self._resumes:
            self.withdraw('emergency stop')

    def on_viewer_alive(self) -> None:
        self._alive_at = self._clock() - self.input_age

    @property
    def silence(self) -> float:
        """Time since somebody else has moved the robot, s."""
        return self._clock() - self._moved_at

    def doubt(self, reason: str) -> None:
        """Refuse what was asked for before."""
        self._doubt, self._doubted_at = reason, self._clock()

    def withdraw(self, reason: str, *, moved: bool = False) -> None:
        self.doubt(reason)
        if self.given:
            self.given = False
            self._withdrawn(reason, moved)
