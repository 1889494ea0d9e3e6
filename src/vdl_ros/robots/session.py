"""Episodes of one robot in real time: when it is reset, acts, waits and stops; no ROS."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.consent import (
    ROBOT_ENVIRONMENT,
    YIELD_S,
    Consent,
    is_program,
    time_since_boot,
)
from vdl_ros.robots.classifier import Classifier, SuccessInPictures
from vdl_ros.robots.confirmation import Confirmation
from vdl_ros.robots.contract import Contract
from vdl_ros.robots.episode import Aim, Episode, ResetError, Resetter, Result, State, StopState
from vdl_ros.robots.observer import Observer
from vdl_ros.robots.positions import Positions
from vdl_ros.robots.readings import Reading
from vdl_ros.robots.takeover import Takeover, allowed
from vdl_ros.robots.task import HISTORY, Measured, Task, reward_of

# Time between neutral actions while a robot is stopped, and between attempts to reset it, s.
_AGAIN_S = 1.0
# After so long without a command of somebody else an own action that may be in force is ended, s.
_SILENT_S = 0.5
# Who has taken an episode over may take so long to let go after its end, without a line, s.
_LET_GO_S = 5.0
# Longest time without an action of the agent that is no standstill, s.
_AGENT_S = 30.0
# A target is given up after the robot has waited for so long, s.
_GIVE_UP_S = 10.0
# Incidents that wait to be told.
_INCIDENTS = 8
#: Values by feature, in their units, and the ages of inputs, s.
Seen = tuple[dict[str, float], dict[str, float]]
_NO_AGENT = f'the agent gave no action for {_AGENT_S:g} s'


class Session:
    """Episodes of one robot.

    Args:
        resetter: resets it; None: it starts where it is.
        send: sends an action, float64 [parts].
        log: takes a line when the robot is lost, and when it is back.
        name: of the node that sends, as its messages name it.
        confirmation: keeps what a person has to confirm.
        takeovers: a person who moves the robot takes the episode over, and does not end it.
        follows: it acts for a person's target only, see :meth:`aim`, and until something ends
            that, success does not.
        classifier: says by an image that an episode has succeeded, beside the task.
        clock: s, by which others, stops and standstills are judged.

    Attributes:
        ticks: number of ticks at which an action was due.
        late: number of those at which the agent had not acted.
        begun: number of episodes that have begun.
        incidents: what to look at afterwards: lost episodes, broken limits, the first late action
            of an episode; whoever tells them takes them out.
        lost: number of episodes that ended because the robot or the agent was silent or stopped.
        stops: states of the contract's stops, in its order.
        consent: to move the robot. Others who command it interrupt the session; after a
            standstill, another environment, or when a person has switched the motors off, it waits
            for :meth:`confirm`.
    """

    def __init__(
        self, contract: Contract, task: Task, resetter: Resetter | None,
        send: Callable[[NDArray[np.float64]], None], log: Callable[[str], None], *,
        name: str = '', confirmation: Confirmation | None = None, takeovers: bool = False,
        follows: bool = False, classifier: Classifier | None = None,
        clock: Callable[[], float] = time_since_boot,
    ) -> None:
        self._contract, self._task, self._resetter = contract, task, resetter
        self._observer = Observer(contract, task)
        self._send, self._log = send, log
        self._positions = Positions(contract)
        self._pictures = None if classifier is None else SuccessInPictures(
            classifier, contract, log, clock)
        self.state = State.WAITING
        self.ticks = self.late = self.begun = self.lost = 0
        self.incidents: deque[str] = deque(maxlen=_INCIDENTS)
        self._outcome = ''
        self._random = np.random.default_rng()
        self._neutral = np.array(contract.actions.neutral, np.float64)
        # Positions that were sent do not count in it: servos hold them by themselves.
        self._in_force = self._neutral
        self._has_commanded = self._was_late = False
        self._takeovers, self._takeover = takeovers, Takeover(contract)
        self._readings: dict[str, Reading] = {}
        self._episode = self._new_episode(-np.inf)
        # The latest action as it was sent, for observations.
        self._sent = self._episode.history[0]
        self.stops = [StopState(each, clock) for each in contract.stops]
        self._follows = follows
        #: The latest target, None before the first; and why it was given up, or ''.
        self.aimed: Aim | None = None
        self.given_up = ''
        self._acted_at = clock()
        self.consent = Consent(
            name, self._on_withdrawn, resumes=not follows, clock=clock,
            heeds_standstills=not contract.simulated_clock)
        if not follows:
            self.consent.ask()
        self._confirmation = confirmation or Confirmation()
        # How often one of the stops had another mark, which its readers count apart.
        self._marks: dict[int, object] = {}
        self._stopped_unseen = 0
        self._save_confirmation()
        # Why nobody could move it at the latest tick, or ''.
        self._unable = ''
        if self._confirmation.reason:
            # Who asked before this environment was there did not mean it.
            self.consent.doubt(self._confirmation.reason)
        # Whether an action of its own may be in force, beside somebody else's.
        self._owes_neutral = False
        # Whether somebody else's command, which reaches the robot, is being looked at.
        self._is_beside = False
        self._moved_until = -np.inf
        self._logged = ''
        self._clock, self._given_until = clock, -np.inf
        self._retry_at = self._neutral_at = self._settled = -np.inf
        self._reset_at = self._began_at = -np.inf
        self._agent_at = clock()
        self._result: Result | None = None

    def seed(self, random: np.random.Generator) -> None:
        self._random = random

    def on_reading(self, key: str, reading: Reading) -> None:
        self._readings[key] = reading

    def on_clock_set_back(self) -> None:
        """Forget what was measured, and what is due: at later times of the clock before."""
        self.lose('/clock went backward')
        self._readings.clear()
        self._retry_at = self._neutral_at = self._moved_until = -np.inf

    def on_stop(self, index: int, pressed: bool = False, mark: object = None) -> None:
        """Take a message of a stop, by its place in the contract."""
        stop = self.stops[index]
        was_pressed = stop.is_pressed
        stop.on_message(pressed, self.consent.input_age)
        if mark is not None:
            # A release has another one, too, and another stop may still hold the robot.
            is_new = self._marks.get(index) not in (None, mark)
            self._stopped_unseen += is_new and pressed == was_pressed
            self._marks[index] = mark
        self.consent.on_stop(
            any(each.is_pressed for each in self.stops), mark=self._stopped_unseen)
        if pressed:
            self.lose(stop.problem)

    def on_other(
        self, sender: str, now: float, *, moving: bool = True, for_lamp: bool = False,
        commands: bool = True, values: Sequence[float] = (), is_seen: bool = False,
    ) -> None:
        """Give way to somebody else who moves the robot, or to a person who switches it off.

        Unless it ``commands``, another environment is only there, or has just been killed; of one
        that ``is_seen`` the commands cannot be told from those of this one.
        ``values`` are those of the action that a person may take over by.
        """
        # A controller that follows the trajectory of the reset, or the person who resets.
        resetter = self._resetter
        by_hand = resetter is not None and resetter.by_hand and (
            moving or self.state is State.RESETTING)
        is_helper = resetter is not None and is_program(sender) and not resetter.acts
        moving = self.consent.goes_on(sender) or moving
        if self.state in (State.RESETTING, State.SETTLING) and (is_helper or by_hand) and (
                ROBOT_ENVIRONMENT not in sender):
            self._moved_until = now + YIELD_S
            return
        # Of one that commands no neutral action: it would stop the other one.
        self._is_beside = moving and not is_seen
        try:
            self._give_way(sender, now, moving, for_lamp, values)
        finally:
            self._is_beside = False
        if commands and ROBOT_ENVIRONMENT in sender:
            # The end of the other one, by a person perhaps, must not let this one begin.
            self.consent.withdraw('another environment commands the robot')

    def _give_way(
        self, sender: str, now: float, moving: bool, for_lamp: bool, values: Sequence[float],
    ) -> None:
        is_released = self.consent.on_command(sender, moving=moving, for_lamp=for_lamp)
        if values and not is_program(sender) and (is_released or not for_lamp) and (
                self._may_take_over(moving, now)):
            self._in_force, self._has_commanded = np.array(values, np.float64), False
            self._takeover.on_person(self._in_force, now)
        elif moving:
            self.lose(self.consent.pause)

    def _may_take_over(self, moving: bool, now: float) -> bool:
        return (self._takeovers and self.state is State.RUNNING and not self._episode.broken
                and (moving or self._takeover.is_active(now)))

    def on_person(self, values: NDArray[np.float64], now: float, *, holds: bool = False) -> None:
        """Pass on what a person commands on the contract's topic for that, float64 [parts].

        Who ``holds`` a button for it commands also with a stick at rest.
        """
        action = allowed(self._positions.moved(values, self._values()), self._contract)
        moving = holds or not self._rests(action)
        if moving:
            # Neutral ones come as long as a stick is at rest, and switch nothing off.
            assert self._contract.takeover is not None
            self.consent.on_command(self._contract.takeover.topic, moving=True)
        if self.consent.is_input_old:
            # It must not move the robot any more, nor must what was in force.
            action = self._neutral
        if self._may_take_over(moving, now):
            action = self._positions.allowed(action, self._values())
            self._takeover.on_person(action, now)
            self._command(action)
        elif moving:
            self.lose(self.consent.pause)

    def _on_withdrawn(self, reason: str, _: bool) -> None:
        if self._follows:
            self.given_up = reason
            self.lose(reason)
            return
        if self._contract.simulated_clock:
            # A simulation waits for nobody, whatever would let a person be refused now.
            self.lose(reason)
            self.consent.given = True
            return
        self._confirmation.reason = reason
        # The motors first: disk and terminal can block.
        self.lose(self.unconfirmed)
        self._save_confirmation()

    @property
    def unconfirmed(self) -> str:
        """Why a person has to confirm that it may go on, or ''."""
        reason = self._confirmation.reason
        return reason and f'{reason}; ros2 run vdl_ros confirm lets it go on'

    def _save_confirmation(self) -> None:
        try:
            self._confirmation.save()
        except OSError as error:
            # Who starts this process again would not know that a person has to confirm it.
            self._confirmation.reason = self._confirmation.reason or (
                f'what a person has to confirm would not survive this process: {error}')

    def confirm(self, age: float = 0.0) -> str:
        """Take a person's word, of so long ago, s, that the robot may move, or was reset.

        Return why it is not taken, or ''.
        """
        if self.unconfirmed:
            # Who confirms sees it move, or is told that it cannot.
            if reason := self._unable or self.consent.ask(age):
                return f'{reason}; ros2 run vdl_ros confirm, once more, lets it go on'
            self._confirmation.reason = ''
            self._save_confirmation()
            return self.unconfirmed
        is_new = self._clock() - age >= self._reset_at
        if is_new and self._resetter is not None and self._resetter.confirm():
            return ''
        return 'nobody waits for this'

    def aim(self, place: NDArray[np.float64], refused: str = '') -> str:
        """Act for a person's target, float64 [3], m in the task's frame, from now on.

        Return why it is not taken, such as ``refused``, or ''; the one before does not count any
        more either.
        """
        reason = self.consent.ask() or refused
        try:
            if not reason:
                self._task.aim(place, self._values())
        except ValueError as error:
            reason = str(error)
        if reason:
            self.consent.end()
            self.given_up = f'target refused: {reason}'
            self.lose(self.given_up)
            return reason
        self.given_up, self._logged, self._acted_at = '', '', self._clock()
        self.aimed = Aim(place, self._acted_at)
        return ''

    def judge(self, outcome: str, age: float = 0.0) -> str:
        """End the episode by a person's word: 'success', 'failure', or 'discard', as lost.

        Return why the word, of so long ago, s, is not taken, or ''.
        """
        if self.state is not State.RUNNING:
            return 'no episode runs'
        if self._clock() - age < self._began_at:
            return 'the episode that was meant has ended'
        if self._follows:
            self.consent.withdraw(f'a person has ended it: {outcome}')
        elif outcome == 'discard':
            self.lose('a person has discarded the episode')
        else:
            self._episode.judged = outcome
            if not self._takeover.is_in_force:
                self._command(self._neutral)
        return ''

    def lose(self, reason: str) -> None:
        """End the episode without a result, and wait; the neutral action is sent first of all."""
        if self.state is State.WAITING:
            return
        if not self._is_beside:
            self._command(self._neutral)
        else:
            self._has_commanded = False
            self._owes_neutral = not self._rests(self._in_force)
        self._cancel_reset()
        if self.state is State.RUNNING:
            self.lost += 1
            self.incidents.append(f'episode {self.begun} lost: {reason or "a late action"}')
        # The end of an episode is kept for the agent.
        if self.state is not State.OVER:
            self._result = None
        self.state = State.WAITING
        self._retry_at = -np.inf
        self.report(reason)

    def heed_agent(self) -> None:
        """Take note that the agent acts, or waits for the robot."""
        self._agent_at = self._clock()

    def act(self, action: NDArray[np.float64], now: float) -> None:
        """Send the agent's action for its latest observation; begin the next episode after one."""
        self.consent.update()
        self.heed_agent()
        if self.state is State.OVER:
            self.state = State.WAITING
        # An action for an observation that the agent has not seen is for another one.
        episode = self._episode
        if (self.state is not State.RUNNING or episode.action_age is not None
                or self._result is not None):
            return
        age = now - episode.observed
        if age > self._contract.late.limit:
            # Logged once: a simulation that is fast may lose many.
            self.lose('' if self._was_late else f'the agent took {age:.2g} s for an action, '
                      f'more than {self._contract.late.limit:g} s (late: limit of the contract); '
                      'further ones are only counted')
            self._was_late = True
            return
        assert episode.before is not None
        episode.action_age = age
        if not episode.is_over:
            values = self._positions.allowed(
                self._task.command(action, episode.before), self._values())
            if self._takeover.on_action(values, now):
                self._command(values)

    def take(self) -> Result | None:
        """Return what the agent gets since the last call; None: nothing, or the robot is lost."""
        result, self._result = self._result, None
        return result

    def stop(self) -> None:
        """Send the neutral action, unless others command and nothing was sent since, and wait."""
        self._cancel_reset()
        self.state, self._result = State.WAITING, None
        # What a person commanded in an episode is this one's to end.
        if self._has_commanded or self._owes_neutral or self._takeover.is_in_force:
            self._command(self._neutral)

    def look(self, now: float) -> None:
        """Look for what stops the robot, and who is silent; between ticks, too: they may be rare.

        ``now`` is of the robot's clock, s.
        """
        self.consent.update()
        if self._owes_neutral and self.consent.silence > _SILENT_S:
            self._command(self._neutral)
        if self.state is State.RUNNING:
            self._acted_at = self._clock()
        elif (self._follows and self.consent.given
              and self._clock() - self._acted_at > _GIVE_UP_S):
            self.consent.withdraw(f'{self._logged}, for {_GIVE_UP_S:g} s')
        if self.state is State.WAITING:
            return
        if self._clock() - self._agent_at > _AGENT_S:
            self.consent.withdraw(_NO_AGENT)
        if problem := self._problem(now):
            self.lose(problem)
            return
        if self.state in (State.RUNNING, State.RESETTING) and (
                doubt := self._positions.doubt(self._values())):
            self.lose(doubt)
            # What says the same for as long is true: somebody has moved the robot.
            self._retry_at = now + _AGAIN_S
            return
        episode, late = self._episode, self._contract.late
        if (self.state is State.RUNNING and episode.action_age is None
                and now - episode.observed >= late.limit and not self._takeover.is_active(now)
                and not self._rests(self._in_force)):
            self._command(self._neutral)
        own = self._contract.takeover
        if (self.state is State.RUNNING and not self._rests(self._in_force)
                and self._takeover.is_left(now, own.timeout if own else YIELD_S)):
            self._takeover.on_stop(
                self._positions.allowed(self._neutral, self._values()), now)
            self._command(self._neutral)

    def tick(self, now: float, *, is_received: bool = True, problem: str = '') -> None:
        """Go on at a tick; ``now`` is of the robot's clock, s.

        Unless ``is_received``, nobody takes the actions: even the neutral one would be lost.
        ``problem``: why it cannot act, beside what it knows itself.
        """
        self.look(now)
        self._unable = problem
        problem = self.unconfirmed or problem or self._problem(now) or (
            '' if is_received else f'nobody receives {self._contract.actions.topic}')
        if problem:
            self.lose(problem)
            self.report(problem)
            # A driver may need a neutral action before it moves again.
            if self.consent.stopped and now >= self._neutral_at:
                self._neutral_at = now + _AGAIN_S
                self._command(self._neutral)
        elif self.state is State.WAITING and now >= self._retry_at:
            if self._clock() - self._agent_at > _AGENT_S:
                self.consent.withdraw(_NO_AGENT)
            else:
                self._reset(now)
        elif self.state is State.RESETTING:
            self._go_on_resetting(now)
        elif self.state is State.SETTLING:
            if now >= self._moved_until and all(
                    each.arrived > self._settled for each in self._readings.values()):
                if limit := self._contract.broken_limit(self._values()):
                    # In an episode it would move, until its first step breaks the limit.
                    self.lose(f'limit: {limit.feature} is not {limit.low:g} to {limit.high:g}')
                    self._retry_at = now + _AGAIN_S
                    return
                self._begin(now)
        elif self.state is State.RUNNING:
            self._run(now)

    def _problem(self, now: float) -> str:
        """Return why the robot cannot act now, or ''."""
        for stop in self.stops:
            if stop.problem:
                return stop.problem
        if self.unconfirmed:
            return self.unconfirmed
        if self._follows and not self.consent.given:
            return self.given_up or 'no target'
        # Others who command a robot that runs have ended its episode, or taken it over.
        if pause := self.consent.halt if self.state is State.RUNNING else self.consent.pause:
            return pause
        for key, topic in self._contract.inputs.items():
            reading = self._readings.get(key)
            if reading is None:
                return f'no message on {topic.topic} yet'
            if reading.age(now) > topic.timeout:
                return f'{topic.topic}: nothing newer than {topic.timeout:g} s'
        return ''

    def _cancel_reset(self) -> None:
        if self._resetter is not None and self.state in (State.RESETTING, State.SETTLING):
            self._resetter.cancel()

    @property
    def waits(self) -> str:
        """Why it does not act now, or ''."""
        return self._logged if self.state is State.WAITING else ''

    def status(self, now: float) -> str:
        """Return a line that says what happens, for people who watch the robot."""
        if self.state is State.RUNNING:
            who = 'a person' if self._takeover.is_active(now) else 'the policy'
            return f'episode {self.begun}: {who} acts'
        if self._logged:
            return f'waits: {self._logged}'
        return f'episode {self.begun}: {self._outcome}' if self.begun else 'waits'

    def report(self, reason: str) -> None:
        """Log why the robot waits, once."""
        if reason == self.consent.pause and self._clock() < self._given_until:
            return
        if reason and reason != self._logged:
            self._logged = reason
            self._log(f'waits: {reason}')

    def _reset(self, now: float) -> None:
        if self._resetter is None:
            self._settled, self.state = now, State.SETTLING
            return
        self._reset_at = self._clock()
        self._command(self._neutral)
        self._positions.forget()
        self.state, self._episode = State.RESETTING, self._new_episode(now)
        self._resetter.begin(self._random)

    def _go_on_resetting(self, now: float) -> None:
        assert self._resetter is not None
        try:
            if self._resetter.acts:
                self._positions.tick()
                self._command(self._resetter.act(self._measure(now)))
                self._episode.history.appendleft(self._sent)
            if self._resetter.is_done(self._values()):
                if self._resetter.acts:
                    self._command(self._neutral)
                self._settled, self.state = now, State.SETTLING
        except ResetError as error:
            self.lose(f'reset: {error}')
            self._retry_at = now + _AGAIN_S

    def _new_episode(self, now: float) -> Episode:
        rest = self._positions.allowed(self._neutral, self._values())
        return Episode(now, deque([rest] * HISTORY, HISTORY))

    def _begin(self, now: float) -> None:
        self._positions.forget(self._values())
        self._in_force, self._episode = self._neutral, self._new_episode(now)
        self._sent = self._episode.history[0]
        self._observer.begin()
        measured = self._measure(now)
        self._task.begin(measured, self._random)
        if self._pictures is not None:
            self._pictures.begin(measured)
        self._takeover.begin(now)
        self.begun, self._outcome, self._began_at = self.begun + 1, 'lost', self._clock()
        self.state = State.RUNNING
        if self._logged:
            self._logged = ''
            self._log('goes on')
        self._deliver(measured, now, is_first=True)

    def _run(self, now: float) -> None:
        """Give the agent what its action led to; without an action, keep or stop the robot."""
        episode, late = self._episode, self._contract.late
        self.ticks += 1
        self._positions.tick()
        executed = self._takeover.end_tick(now)
        episode.history.appendleft(self._sent if executed is None else executed[1])
        measured = self._measure(now)
        self._check_limits(measured)
        if episode.action_age is None:
            self.late += 1
            episode.late += 1
            if not episode.was_late:
                episode.was_late = True
                self.incidents.append(f'episode {self.begun}: a late action')
            if self._takeover.is_active(now) and not episode.broken:
                return
            hold = (late.action == 'hold' and now - episode.observed < late.limit
                    and not episode.is_over)
            # Sent again: a driver may stop without commands.
            self._command(self._in_force if hold else self._neutral)
            return
        assert episode.before is not None
        reward = reward_of(self._task, episode.before, measured, is_broken=bool(episode.broken))
        if not math.isfinite(reward):
            self.lose(f'the reward is {reward}, which is not allowed: a finite number')
            return
        episode.steps += 1
        success, failure = self._task.success(measured), self._task.failure(measured)
        seen = self._pictures is not None and self._pictures.is_reached(measured)
        if episode.judged:
            success, failure = episode.judged == 'success', episode.judged == 'failure'
        elif seen:
            success, failure = True, False
        success &= not episode.broken
        if success and self.aimed and math.isnan(self.aimed.reached):
            self.aimed.reached = self._clock() - self.aimed.at
        reward += self._contract.success_reward * (success and (seen or bool(episode.judged)))
        terminated = (success and not self._follows) or bool(episode.broken) or failure
        truncated = (not (terminated or self._follows)
                     and episode.steps >= self._contract.episode_steps)
        self._deliver(
            measured, now, is_first=False, reward=reward, terminated=terminated,
            truncated=truncated, success=success, observation_age=max(measured.ages.values()),
            action_age=episode.action_age, late=episode.late,
            executed=None if executed is None else executed[0])
        self._takeover.end_step()
        if terminated or truncated:
            self.state = State.OVER
            self._outcome = 'success' if success else 'failure' if terminated else (
                'its time is up')
            if self._takeover.is_active(now):
                self._given_until = self._clock() + _LET_GO_S
            self._command(self._neutral)
            if self._follows:
                self.consent.withdraw(f'the episode has ended: {self._outcome}')

    def _deliver(self, measured: Measured, now: float, **values: Any) -> None:
        newest = max(self._readings.values(), key=lambda each: each.arrived_wall)
        self._result = Result(self._observer.observe(measured), arrived_wall=newest.arrived_wall,
                              observation_lag=newest.lag, **values)
        episode = self._episode
        episode.before, episode.observed, episode.action_age = measured, now, None
        episode.late = 0

    def _check_limits(self, measured: Measured) -> None:
        """Send the neutral action, from now to the end of the episode, at a broken limit."""
        limit = self._contract.broken_limit(measured.values)
        if limit is not None and not self._episode.broken:
            self._episode.broken = limit.feature
            # First: writing a line to a terminal can block.
            self._command(self._neutral)
            text = (f'limit: {limit.feature} is {measured.values[limit.feature]:.3g}, not '
                    f'{limit.low:g} to {limit.high:g}')
            self.incidents.append(f'episode {self.begun}: {text}')
            self._log(text)

    def _measure(self, now: float) -> Measured:
        readings = self._readings
        measured = Measured(
            self._values(), {key: each.stamp for key, each in readings.items()},
            {key: each.age(now) for key, each in readings.items()},
            now - self._episode.began, np.array(self._episode.history),
            {key: each.frame for key, each in readings.items() if each.frame is not None})
        self._observer.tick(measured)
        return measured

    def at_rest(self, now: float) -> Seen | None:
        """Return what is measured while no episode runs: the robot waits, or is being reset."""
        if self.state in (State.RUNNING, State.OVER):
            return None
        return self._values(), {key: each.age(now) for key, each in self._readings.items()}

    def _values(self) -> dict[str, float]:
        return {name: value for each in self._readings.values()
                for name, value in each.values.items()}

    def _command(self, action: NDArray[np.float64]) -> None:
        # Servos hold by themselves: once they do, no old position is sent to them again.
        rests = self._contract.actions.sends_positions and all(
            map(self._rests, (action, self._in_force)))
        self._has_commanded, self._owes_neutral = True, False
        if self.aimed and math.isnan(self.aimed.reaction) and not self._rests(action):
            self.aimed.reaction = self._clock() - self.aimed.at
        # Who takes positions, and has not said where it is, is not moved.
        sent = None if rests else self._positions.of(action, self._values())
        are_positions = self._positions.are_positions
        self._in_force = np.where(are_positions, np.nan, action)
        self._sent = np.where(are_positions, self._sent if sent is None else sent, action)
        if sent is not None:
            self._send(sent)

    def _rests(self, action: NDArray[np.float64]) -> bool:
        return np.array_equal(action, self._neutral, equal_nan=True)
