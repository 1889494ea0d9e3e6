"""One robot in real time: late actions, silence, stops, limits and resets, by a clock of hand."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from msgspec.structs import replace
from robot_contract import GOOD

from vdl_ros.common.consent import YIELD_S
from vdl_ros.robots.confirmation import Confirmation
from vdl_ros.robots.contract import (
    ActionPart,
    Actions,
    ContractError,
    ImageTopic,
    LateAction,
    Limit,
    StopTopic,
    Success,
    Takeover,
    TakeoverPart,
)
from vdl_ros.robots.contract_files import find_contract, read_contract
from vdl_ros.robots.episode import ResetError, Resetter, State, StopState
from vdl_ros.robots.observer import Observer
from vdl_ros.robots.readings import Reading
from vdl_ros.robots.session import Session
from vdl_ros.robots.task import Measured, Task, make_task, with_arguments

PERIOD = 0.05
STOP = StopTopic(topic='stop', type='std_msgs/msg/Bool', field='data')


def joystick(part='forward'):
    return Takeover(topic='joy', type='sensor_msgs/msg/Joy', timeout=2.5 * PERIOD,
                    parts=(TakeoverPart(name=part, field='axes', index=1),))


class Forward(Task):
    """Reward: the speed; success at a speed of 1."""

    def reward(self, before, after):
        self.seen = after
        return after['speed']

    def success(self, after):
        return after['speed'] >= 1.0

    def aim(self, place, values):
        if place[0] > 1.0:
            raise ValueError('out of reach')
        self.target = place


class FakeResetter(Resetter):
    def __init__(self):
        self.begun, self.cancelled, self.done, self.error = 0, 0, True, ''

    def begin(self, random):
        self.begun += 1

    def is_done(self, values):
        if self.error:
            raise ResetError(self.error)
        return self.done

    def cancel(self):
        self.cancelled += 1


class Robot:
    """A session, and what it sent and logged; time goes on by ticks only."""

    def __init__(
            self, path, launch='', takeovers=False, follows=False, classifier=None, **changes):
        (path / 'mine.yaml').write_text(yaml.safe_dump(GOOD))
        self.contract = contract = replace(read_contract(path / 'mine.yaml'), **changes)
        self.task = Forward(contract)
        self.sent, self.log, self.now, self.resetter = [], [], 0.0, FakeResetter()
        # What was sent when the latest line was logged: a terminal may block.
        self.sent_before_log = []
        self.session = Session(contract, self.task, None if follows else self.resetter,
                               lambda action: self.sent.append(float(action[0])),
                               self._on_log, name='/robot', clock=lambda: self.now,
                               takeovers=takeovers, follows=follows, classifier=classifier,
                               confirmation=Confirmation(
                                   path / 'unconfirmed' if launch else None, launch))
        for index, stop in enumerate(self.session.stops):
            stop.on_publishers(1)
            self.session.on_stop(index)

    def _on_log(self, line):
        self.log.append(line)
        self.sent_before_log = [*self.sent]

    def tick(self, speed=0.1, act=None, is_received=True):
        """Act, then go on by a period; ``speed`` is measured before its tick, unless None."""
        if act is not None:
            self.session.act(np.array([act]), self.now)
        self.now += PERIOD
        if speed is not None:
            self.session.on_reading('odom', Reading(
                {'speed': speed}, self.now, 0.01, self.now, self.now))
        self.session.tick(self.now, is_received=is_received)
        return self.session.take()

    def go_on(self, count, *given, **options):
        return [self.tick(*given, **options) for _ in range(count)]

    def until(self, state):
        while self.session.state is not state:
            self.tick()

    def start(self):
        """Tick until the first observation."""
        for _ in range(40):
            result = self.tick()
            if result is not None:
                assert result.is_first
                self.sent.clear()
                return result
        raise AssertionError(self.session.state)


@pytest.fixture
def robot(tmp_path):
    return lambda **changes: Robot(tmp_path, **changes)


def test_an_action_is_sent_at_once_and_its_outcome_comes_with_the_next_tick(robot):
    robot = robot()
    first = robot.start()
    assert robot.resetter.begun == 1
    # Speed, age of odom, and twice no action; all scaled.
    np.testing.assert_allclose(first.observation, [0.1, 0.01 / 0.5, 0.0, 0.0], atol=1e-6)
    robot.session.act(np.array([0.7]), robot.now)
    assert robot.sent == [0.7]
    result = robot.tick(0.2)
    assert (result.reward, result.terminated, result.truncated) == (0.2, False, False)
    np.testing.assert_allclose(result.observation[2:], [0.7, 0.0], atol=1e-6)
    assert result.observation_age == pytest.approx(0.01)
    assert result.action_age == 0.0


CHANGES = Actions(topic='cmd_vel', type='geometry_msgs/msg/Twist', parts=(ActionPart(
    name='forward', field='linear.x', unit='m/s', low=-0.2, high=0.2, change_of='speed'),))


def test_a_reset_by_changes_begins_where_the_robot_is_and_goes_on(robot):
    robot = robot(actions=CHANGES)
    robot.start()
    robot.go_on(3, act=0.2)
    robot.session.lose('somebody else moves it')
    robot.sent.clear()
    robot.resetter.acts, robot.resetter.done = True, False
    robot.resetter.act = lambda measured: np.array([0.02])
    robot.go_on(4, -0.9)
    assert robot.sent == pytest.approx([-0.88, -0.86, -0.84])


def test_changes_begin_anew_in_each_episode_where_the_robot_is(robot):
    robot = robot(episode_steps=2, actions=CHANGES)
    for _ in range(2):
        robot.start()
        for _ in range(2):
            result = robot.tick(act=0.1)
        assert result.truncated
        # It was at 0.1; the neutral action at the end is to stay.
        assert robot.sent == pytest.approx([0.2, 0.3, 0.3])
        robot.tick(act=0.1)  # for the next one
        # Moved by others meanwhile, it is not brought back.
        count = len(robot.sent)
        robot.session.lose('x')
        robot.session.stop()
        assert len(robot.sent) == count


def test_a_measurement_that_cannot_be_moves_no_robot(robot):
    robot = robot(actions=CHANGES, episode_steps=100, stops=(STOP,))
    robot.start()
    robot.tick(act=0.2)
    assert robot.sent == pytest.approx([0.3])
    robot.session.on_reading('odom', Reading({'speed': 3.0}, 0.0, 0.0, robot.now, robot.now))
    robot.session.on_stop(0, pressed=True)
    robot.session.stop()
    assert robot.sent == pytest.approx([0.3]), 'it stays'
    robot.session.on_stop(0)

    robot.start()
    robot.tick(act=0.2)
    sent = [*robot.sent]
    robot.tick(speed=-3.0, act=0.2)
    robot.tick(speed=-3.0, act=0.2)
    assert robot.sent[len(sent):] == pytest.approx([0.5]), 'before it was measured'
    assert robot.log[-1] == 'waits: speed: -3 cannot be: it was sent to 0.5'
    robot.start()
    assert (robot.session.lost, robot.log[-1]) == (2, 'goes on')


@pytest.mark.parametrize('wrong', [3.0, np.nan])
def test_a_measurement_that_cannot_be_does_not_keep_a_wheel_turning(robot, wrong):
    turn = ActionPart(name='turn', field='angular.z', unit='rad/s', low=-1.0, high=1.0)
    robot = robot(actions=replace(CHANGES, parts=(*CHANGES.parts, turn)), stops=(STOP,))
    robot.start()
    sent = []
    robot.session._send = lambda action: sent.append([*action])
    robot.session.act(np.array([0.2, 0.7]), robot.now)
    robot.session.on_reading('odom', Reading({'speed': wrong}, 0.0, 0.0, robot.now, robot.now))
    robot.session.on_stop(0, pressed=True)
    assert sent == [pytest.approx([0.3, 0.7]), pytest.approx([0.3, 0.0])]


POSITIONS = Actions(topic='arm', type='trajectory_msgs/msg/JointTrajectory', parts=(ActionPart(
    name='forward', field='positions', key='a', unit='m/s', low=-1.0, high=1.0, step=0.2,
    position_of='speed'),))


def test_positions_are_held_while_nothing_else_is_commanded(robot):
    robot = robot(actions=POSITIONS, takeover=joystick(), takeovers=True, episode_steps=100,
                  late=LateAction(action='hold', limit=0.5))
    # What stands for the actions before the first one is where the robot is.
    np.testing.assert_allclose(robot.start().observation[2:], 0.1, atol=1e-6)
    np.testing.assert_allclose(robot.tick(act=0.7).observation[2:], [0.3, 0.1], atol=1e-6)
    # The agent is late, or gives nothing; the robot is not further than where it was sent.
    for act in (None, np.nan):
        robot.tick(0.3, act=act)
    assert robot.sent == pytest.approx([0.3, 0.3])
    # A person's stick changes it from there; in pauses the robot stays.
    robot.session.on_person(np.array([-0.1]), robot.now)
    result = robot.tick(0.2, act=0.7)
    assert [*result.executed, robot.sent[-1]] == pytest.approx([0.2, 0.2])
    for _ in range(4):
        result = robot.tick(0.2, act=0.7)
    assert [*result.executed, robot.sent[-1]] == pytest.approx([0.2, 0.2])
    robot.session.lose('x')
    count = len(robot.sent)
    robot.session.stop()
    assert len(robot.sent) == count


def test_the_silence_of_a_person_leaves_a_position_where_it_is(robot):
    turn = ActionPart(name='turn', field='velocities', key='b', unit='', low=-1.0, high=1.0)
    robot = robot(
        actions=replace(POSITIONS, parts=(*POSITIONS.parts, turn)), takeovers=True,
        takeover=joystick('turn'))
    robot.start()
    robot.session.on_person(np.array([0.0, 0.5]), robot.now)
    found = []
    for _ in range(5):
        robot.session.act(np.array([0.5, 0.0]), robot.now)
        found.append(robot.tick())
    np.testing.assert_allclose([each.executed for each in found], [
        *[[0.1, 0.5]] * 3, *[[0.1, 0.0]] * 2], atol=1e-6)
    assert all(np.isfinite(each.observation).all() for each in found)


def test_a_robot_is_not_reset_before_it_receives_its_neutral_action(robot):
    robot = robot()
    assert not any(robot.go_on(10, is_received=False))
    assert (robot.resetter.begun, robot.sent) == (0, [])
    assert robot.log == ['waits: nobody receives cmd_vel']
    robot.tick()
    assert (robot.resetter.begun, robot.sent) == (1, [0.0])
    # And its episode ends when nobody receives its actions.
    robot.start()
    robot.tick(act=0.7)
    assert robot.tick(act=0.7, is_received=False) is None
    assert (robot.session.lost, robot.sent[-1]) == (1, 0.0)


def test_the_clock_goes_on_without_the_agent_and_stops_the_robot(robot):
    robot = robot()
    robot.start()
    robot.tick(act=0.7)
    assert robot.tick() is None
    assert (robot.sent[-1], robot.session.late) == (0.0, 1)
    # The action comes, late but within the limit, and is applied.
    result = robot.tick(act=0.4)
    assert result.action_age == pytest.approx(PERIOD)
    assert result.late == 1
    assert robot.sent[-1] == 0.4


def test_a_late_agent_may_hold_its_action_but_not_beyond_the_limit(robot):
    robot = robot(late=LateAction(action='hold', limit=2.5 * PERIOD))
    robot.start()
    robot.tick(act=0.7)
    robot.tick()
    robot.tick()
    assert robot.sent[-2:] == [0.7, 0.7]
    robot.tick()
    assert robot.sent[-1] == 0.0
    # Its action is for what was long ago: it is not sent, and the episode is lost.
    assert robot.tick(act=0.9) is None
    assert 0.9 not in robot.sent
    assert (robot.session.lost, robot.session.state) == (1, State.RESETTING)
    assert 'the agent took 0.15 s' in robot.log[-1]


def test_silence_stops_the_robot_and_its_return_begins_another_episode(robot):
    robot = robot(episode_steps=100)
    robot.start()
    robot.tick(act=0.7)
    results = robot.go_on(12, speed=None, act=0.7)
    # Up to the time-out the agent acts on what is there; the step into the silence has no result.
    assert [each is not None for each in results] == [True] * 9 + [False] * 3
    assert robot.sent[-1] == 0.0
    assert robot.session.lost == 1
    assert robot.log.count('waits: odom: nothing newer than 0.5 s') == 1
    count = len(robot.sent)
    robot.start()
    assert robot.log[-1] == 'goes on'
    assert robot.resetter.begun == 2
    assert 0.7 not in robot.sent[count:]


@pytest.mark.parametrize('reset', [False, True])
def test_a_stop_counts_in_every_state_and_lasts_until_it_is_released(robot, reset):
    robot = robot(stops=(STOP,))
    if reset:
        robot.resetter.done = False
        robot.until(State.RESETTING)
    else:
        robot.start()
        robot.session.act(np.array([0.7]), robot.now)
    robot.session.on_stop(0, True)
    assert robot.sent[-1] == 0.0
    assert robot.session.state is State.WAITING
    # A controller must not go on with the way of the reset.
    assert robot.resetter.cancelled == reset
    count = len(robot.sent)
    assert not any(robot.go_on(30, act=0.7))
    # Neutral actions only, one a second: a driver may need one after the release.
    assert {*robot.sent[count:]} == {0.0}
    assert 1 <= len(robot.sent[count:]) <= 2
    robot.session.on_stop(0)
    robot.resetter.done = True
    robot.start()


@pytest.mark.parametrize('state', [State.RUNNING, State.RESETTING])
def test_another_environment_that_commands_is_not_disturbed(robot, state):
    robot = robot()
    robot.resetter.done = state is State.RUNNING
    robot.until(state)
    count = len(robot.sent)
    robot.session.on_other('/robot_environment_1', robot.now, commands=False)
    assert robot.session.unconfirmed == ''
    robot.session.on_other('/robot_environment_1', robot.now)
    assert robot.log[-1] == 'waits: another environment commands the robot'
    robot.resetter.done = True
    # Nor does it begin by itself when the other one ends.
    assert not any(robot.go_on(40))
    assert robot.sent[count:] == []
    assert robot.session.confirm() == ''
    robot.start()


def test_an_own_action_that_may_be_in_force_beside_others_is_ended_once_they_are_silent(robot):
    robot = robot()
    robot.start()
    robot.session.act(np.array([0.7]), robot.now)
    for _ in range(10):
        robot.session.on_other('/teleop', robot.now)
        robot.tick()
    assert robot.sent == [0.7]
    robot.go_on(round(0.6 / PERIOD))
    assert robot.sent == [0.7, 0.0]


def test_another_environment_that_is_only_there_does_not_leave_the_robot_running(robot):
    own = robot()
    own.start()
    own.session.act(np.array([0.7]), own.now)
    own.session.on_other('/robot_environment_1', own.now, is_seen=True)
    assert own.sent == [0.7, 0.0]
    # Nor does a joystick, whose commands reach the robot by this environment alone.
    for event in ('seen', 'joystick'):
        given = robot(follows=True, takeover=joystick())
        given.go_on(3)
        assert given.session.aim(PLACE) == ''
        given.start()
        given.session.act(np.array([0.7]), given.now)
        for _ in range(10):
            if event == 'seen':
                given.session.on_other('/robot_environment_1', given.now, is_seen=True,
                                       commands=False)
            else:
                given.session.on_person(np.array([0.0]), given.now, holds=True)
            assert given.sent == [0.7, 0.0], event
            given.tick()


@pytest.mark.parametrize('outcome', ['success', 'discard'])
def test_a_persons_word_ends_a_target(robot, outcome):
    robot = robot(follows=True)
    robot.go_on(3)
    robot.session.aim(PLACE)
    robot.start()
    robot.session.act(np.array([0.7]), robot.now)
    assert robot.session.judge(outcome) == ''
    robot.go_on(10, act=0.7)
    assert robot.sent == [0.7, 0.0]
    assert np.isnan(robot.session.aimed.reached)
    assert not robot.session.aim(PLACE)
    robot.start()
    robot.tick(act=0.7)
    assert robot.sent == [0.7]


@pytest.mark.parametrize('takeovers', [True, False])
def test_the_end_of_an_environment_ends_what_a_silent_person_commanded(robot, takeovers):
    robot = robot(takeovers=takeovers)
    robot.start()
    robot.session.act(np.array([0.7]), robot.now)
    robot.session.on_other('/teleop', robot.now, values=[-0.5])
    robot.session.stop()
    assert robot.sent == [0.7, 0.0]


def test_a_program_whose_trajectory_rests_has_the_robot(robot):
    robot = robot()
    robot.start()
    robot.session.on_other('/arm_controller', robot.now, moving=False)
    assert robot.session.state is State.RUNNING
    robot.now += 0.02
    robot.session.on_other('/arm_controller', robot.now, moving=False)
    assert robot.log[-1] == 'waits: /arm_controller commands the robot'


@pytest.mark.parametrize('event', ['all off', 'standstill', 'all off during the reset'])
def test_a_robot_that_a_person_or_a_standstill_stopped_waits_for_a_confirmation(robot, event):
    robot = robot()
    if event == 'all off during the reset':
        robot.resetter.done = False
        robot.until(State.RESETTING)
    else:
        robot.start()
        robot.tick(act=0.7)
    count = len(robot.sent)
    if event == 'standstill':
        robot.now += 8.0
        reason = 'the process stood still'
    else:
        robot.session.on_other('/teleop', robot.now, moving=False)
        reason = '/teleop switched the motors off'
    robot.resetter.done = True
    assert not any(robot.go_on(60, act=0.7))
    assert robot.sent[count:] == [0.0]
    assert robot.log[-1] == f'waits: {reason}; ros2 run vdl_ros confirm lets it go on'
    # Not by who asked before that.
    assert robot.session.confirm(age=8.1) != ''
    assert robot.session.confirm() == ''
    robot.start()
    assert robot.session.confirm() == 'nobody waits for this'


def test_what_a_person_has_to_confirm_survives_the_process_but_not_the_launch(robot, tmp_path):
    first = robot(launch='one')
    first.start()
    first.session.on_other('/teleop', first.now, moving=False)
    second = robot(launch='one')
    assert not any(second.go_on(60))
    assert second.log[-1].startswith('waits: /teleop switched the motors off')
    robot(launch='two').start()
    second.session.on_other('/teleop', second.now, moving=False)
    assert second.session.confirm() == ''
    second.start()
    # The end of a process is a reason of its own.
    file = tmp_path / 'unconfirmed.one.json'
    record = json.loads(file.read_text())
    # Also if another process has its number, or the machine has started again; and that of an
    # environment whose process makes another one.
    for changes in ({'process': record['process'] | {'started': 7}}, {'here': 'before'}, {}):
        file.write_text(json.dumps(record | changes))
        third = robot(launch='one')
        # Who asked before did not mean this end.
        third.now += 1.0
        assert third.session.confirm(age=1.5) != ''
        assert third.session.unconfirmed.startswith('the environment before has ended')
        assert third.session.confirm() == ''
        third.start()
    # That of another launch is left alone.
    other = file.read_text()
    robot(launch='three').start()
    assert file.read_text() == other


def test_the_file_of_a_robot_is_removed_when_process_and_launch_have_ended(tmp_path):
    ended = {'number': 1, 'started': 0}
    for name, changes in (
            ('both live', {}), ('launch lives', {'process': ended}),
            ('process lives', {'launch': ended}),
            ('finished', {'process': ended, 'launch': ended}),
            ('elsewhere', {'process': ended, 'launch': ended, 'here': 'another container'})):
        path = tmp_path / f'{name}.one.json'
        Confirmation(tmp_path / f'{name}.json', 'one').save()
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    (tmp_path / 'damaged.json').write_text('{')
    Confirmation(tmp_path / 'another.json', 'two').save()
    assert sorted(each.stem for each in tmp_path.iterdir()) == [
        'another.two', 'both live.one', 'damaged', 'elsewhere.one', 'launch lives.one',
        'process lives.one']


def test_what_cannot_be_kept_has_to_be_confirmed_at_once(robot, tmp_path, monkeypatch):
    (tmp_path / 'unconfirmed.one.json').mkdir()
    assert 'unconfirmed.one.json cannot be read' in robot(launch='one').session.unconfirmed

    def save(_):
        raise OSError(30, 'Read-only file system')

    monkeypatch.setattr(Confirmation, 'save', save)
    assert 'Read-only file system' in robot(launch='two').session.unconfirmed


def test_each_stop_has_a_mark_of_its_own(robot):
    alone = robot(stops=(STOP, replace(STOP, topic='another')))
    for index, mark in ((0, 1), (1, 1), (0, 1)):
        alone.session.on_stop(index, mark=mark)
    assert alone.session.unconfirmed == ''
    # Of the message of a release another field may be read first.
    alone.session.on_stop(0, True, 2)
    alone.session.on_stop(1, True, 1)
    alone.session.on_stop(0, False, 3)
    alone.session.on_stop(1, False, 1)
    assert alone.session.unconfirmed == ''
    alone.session.on_stop(1, mark=2)
    assert alone.session.unconfirmed.startswith('the robot was stopped meanwhile')


def test_a_silent_agent_ends_the_resets_of_a_robot_that_is_lost_again_and_again(robot):
    robot = robot()
    robot.start()
    for _ in range(40):
        robot.session.judge('discard')
        robot.go_on(round(1.5 / PERIOD))
    assert robot.session.unconfirmed.startswith('the agent gave no action for 30 s')
    assert robot.resetter.begun <= 21
    robot.session.confirm()
    robot.tick()
    assert robot.session.unconfirmed, 'it is silent yet'
    robot.session.heed_agent()
    robot.session.confirm()
    robot.start()


def test_between_rare_ticks_lateness_and_silence_stop_the_robot(robot):
    for late, said in ((LateAction(action='hold', limit=0.11), ''),
                       (LateAction(action='hold', limit=9.0), 'waits: odom: nothing newer')):
        each = robot(late=late)
        each.start()
        each.tick(act=0.7)
        each.session.look(each.now + 0.12)
        assert each.sent[-1] == (0.7 if said else 0.0)
        each.session.look(each.now + 0.6)
        assert each.sent[-1] == 0.0
        assert said in each.log[-1] or not said


@pytest.mark.parametrize('state', [State.RUNNING, State.OVER, State.RESETTING])
def test_a_silent_agent_needs_a_confirmation_but_nothing_does_in_simulated_time(robot, state):
    for clock in ('wall', 'simulated'):
        each, is_real = robot(clock=clock), clock == 'wall'
        each.start()
        if state is State.OVER:
            each.tick(1.0, act=0.7)
        if state is State.RESETTING:
            each.session.lose('for a test')
            each.resetter.done = False
            each.tick()
        assert each.session.state is state
        each.go_on(round(31.0 / PERIOD))
        assert each.session.unconfirmed.startswith('the agent gave no action for 30 s') is is_real
        each.session.on_other('/teleop', each.now, moving=False)
        assert bool(each.session.unconfirmed) is is_real


def test_silence_of_a_stop_is_a_stop_unless_the_contract_says_otherwise():
    now, beat = [0.0], StopTopic(topic='alive', type='std_msgs/msg/Empty', timeout=1.0)
    stop = StopState(STOP, lambda: now[0])
    stop.on_publishers(1)
    assert stop.problem == 'no message on stop yet'
    stop.on_message(False)
    assert stop.problem == ''
    now[0] = 100.0
    assert stop.problem == ''
    stop.on_publishers(0)
    assert stop.problem == 'nobody publishes stop'
    # A button that is not pressed would release the other one.
    stop.on_publishers(2)
    assert stop.problem.startswith('stop: 2 publishers, whose stops cannot be told apart')
    stop.on_message(True)
    assert stop.problem == 'stop: data'
    # Once heard, it has to stay, though its publisher may be counted later.
    alive = StopState(replace(beat, required=False), lambda: now[0])
    assert alive.problem == ''
    alive.on_message(False)
    assert alive.problem == ''
    now[0] += 1.1
    assert alive.problem == 'alive: silent for 1 s'
    alive.on_message(False)
    alive.on_publishers(0)
    assert alive.problem == 'nobody publishes alive'


def test_an_episode_begins_when_the_controller_of_the_reset_has_ended(robot):
    robot = robot()
    robot.resetter.done = False
    robot.until(State.RESETTING)
    robot.resetter.done = True
    for _ in range(30):
        robot.session.on_other('/arm_controller', robot.now)
        assert robot.tick() is None
    assert robot.session.state is State.SETTLING
    robot.go_on(21)
    assert robot.session.state is State.RUNNING


def test_a_limit_ends_the_episode_with_a_neutral_action_and_a_penalty(robot):
    robot = robot(limits=(Limit(feature='speed', low=-0.5, high=0.5),), limit_penalty=3.0)
    robot.start()
    result = robot.tick(0.6, act=0.7)
    assert (result.terminated, result.success) == (True, False)
    assert result.reward == pytest.approx(0.6 - 3.0)
    assert robot.sent == [0.7, 0.0, 0.0]
    assert robot.sent_before_log == [0.7, 0.0]
    # A measurement that no reward can be computed of ends the episode all the same.
    robot.tick(act=0.7)
    robot.start()
    assert robot.tick(float('inf'), act=0.7).reward == -3.0
    # Also while the agent thinks.
    robot.tick(act=0.7)
    robot.start()
    robot.tick(0.6)
    assert robot.sent[-1] == 0.0
    assert robot.tick(0.1, act=0.7).terminated
    assert 0.7 not in robot.sent


def test_a_reward_that_is_not_finite_loses_the_episode(robot):
    robot = robot()
    robot.start()
    assert robot.tick(float('nan'), act=0.7) is None
    assert (robot.sent[-1], robot.session.lost) == (0.0, 1)
    assert robot.log[-1] == 'waits: the reward is nan, which is not allowed: a finite number'


def test_success_and_the_time_limit_end_episodes_with_neutral_actions(robot):
    robot = robot()
    robot.start()
    result = robot.tick(1.0, act=0.7)
    assert (result.terminated, result.success) == (True, True)
    assert robot.sent == [0.7, 0.0]
    # The next episode begins when the agent wants it.
    assert not any(robot.go_on(5))
    assert robot.session.state is State.OVER
    robot.session.act(np.array([0.7]), robot.now)
    robot.start()
    results = robot.go_on(10, act=0.7)
    assert [each.truncated for each in results] == [False] * 9 + [True]
    assert robot.sent[-1] == 0.0


def test_a_reset_that_fails_is_tried_again_after_a_second(robot):
    robot = robot()
    robot.resetter.error = 'no answer'
    assert not any(robot.go_on(30))
    assert robot.resetter.begun == 2
    assert robot.log[-1] == 'waits: reset: no answer'
    robot.resetter.error = ''
    robot.go_on(30)
    assert robot.session.state is State.RUNNING


def test_an_action_for_an_episode_that_is_lost_does_not_act_in_the_next(robot):
    robot = robot(stops=(STOP,))
    robot.start()
    robot.session.on_stop(0, True)
    robot.session.on_stop(0)
    while robot.session.state is not State.RUNNING:
        robot.now += PERIOD
        robot.session.on_reading('odom', Reading({'speed': 0.1}, robot.now, 0.01, robot.now, 0))
        robot.session.tick(robot.now)
    robot.sent.clear()
    # The agent has not seen the first observation yet.
    assert robot.tick(act=0.7).is_first
    assert 0.7 not in robot.sent


def test_a_robot_that_was_never_commanded_gets_no_command_at_the_end(robot):
    robot = robot()
    robot.session.stop()
    assert robot.sent == []
    robot.start()
    robot.session.act(np.array([0.7]), robot.now)
    robot.session.stop()
    assert robot.sent == [0.7, 0.0]


def test_a_person_takes_the_episode_over_and_gives_it_back_by_a_pause(robot):
    robot = robot(takeovers=True, episode_steps=100)
    robot.start()
    assert robot.tick(act=0.7).executed is None
    robot.sent.clear()
    # In force for half of the step before; then the agent's action is not sent.
    robot.session.act(np.array([0.5]), robot.now)
    robot.now += 0.5 * PERIOD
    robot.session.on_other('/teleop', robot.now, values=[-0.5])
    robot.now -= 0.5 * PERIOD
    result = robot.tick()
    assert result.executed == pytest.approx([0.0])
    result = robot.tick(act=0.7)
    assert result.executed == pytest.approx([-0.5])
    # What was done, in the observation too.
    np.testing.assert_allclose(result.observation[2:], [-0.5, 0.0], atol=1e-6)
    robot.session.on_other('/teleop', robot.now, moving=False, values=[0.0])
    given_back = robot.now + YIELD_S
    while robot.now < given_back - 0.5 * PERIOD:
        result = robot.tick(act=0.7)
        assert result.executed == pytest.approx([0.0])
    assert robot.sent == [0.5]
    assert robot.tick(act=0.7).executed is None
    assert robot.sent == [0.5, 0.7]
    assert (robot.session.lost, robot.session.unconfirmed) == (0, '')


@pytest.mark.parametrize('event', ['stop', 'silence', 'off', 'program', 'environment', 'number'])
def test_a_takeover_ends_with_the_episode(robot, event):
    robot = robot(takeovers=True, episode_steps=100, stops=(STOP,))
    robot.start()
    robot.session.on_other('/teleop', robot.now, values=[-0.5])
    assert robot.tick(act=0.7).executed is not None
    if event == 'stop':
        robot.session.on_stop(0, pressed=True)
    elif event == 'silence':
        robot.go_on(11, speed=None, act=0.7)
    elif event == 'off':
        # Let go, then switched off.
        for _ in range(2):
            robot.session.on_other('/teleop', robot.now, moving=False, values=[0.0])
        assert 'switched the motors off' in robot.session.unconfirmed
    elif event == 'number':
        robot.session.on_other('/teleop', robot.now)
    else:
        sender = {'program': '/arm_controller', 'environment': '/robot_environment_1'}[event]
        robot.session.on_other(sender, robot.now, values=[0.3])
    assert robot.session.lost == 1
    assert robot.session.state is State.WAITING


def test_a_person_who_takes_over_is_late_for_nothing_and_held_to_limits(robot):
    robot = robot(takeovers=True, episode_steps=100, late=LateAction(action='hold', limit=0.5),
                  limits=(Limit(feature='speed', low=-1.0, high=0.5),))
    robot.start()
    robot.session.on_other('/teleop', robot.now, values=[-0.5])
    assert robot.tick() is None
    assert robot.sent == []
    result = robot.tick(act=0.7)
    assert result.executed == pytest.approx([-0.5])
    result = robot.tick(speed=0.6, act=0.7)
    assert result.terminated
    assert robot.sent[0] == 0.0


def test_what_a_person_sends_on_the_topic_for_that_is_passed_on_until_it_is_silent(robot):
    given = robot(takeovers=True, takeover=joystick(), episode_steps=100)
    given.start()
    # A stick at rest takes nothing over.
    given.session.on_person(np.array([0.0]), given.now)
    assert given.tick(act=0.7).executed is None
    given.session.on_person(np.array([-3.0]), given.now)
    assert given.sent == [0.7, -1.0]
    given.go_on(2, act=0.7)
    # Between ticks, which may be rare.
    for left, sent in ((0.6, [0.7, -1.0]), (0.4, [0.7, -1.0, 0.0])):
        given.session.look(given.now + (1.0 - left) * PERIOD)
        assert given.sent == sent
    given.tick(act=0.7)
    assert given.tick(act=0.7).executed == pytest.approx([0.0])

    # A button that is held commands, with the stick at rest, too.
    given.session.on_person(np.array([0.0]), given.now, holds=True)
    assert given.tick(act=0.7).executed == pytest.approx([0.0])

    # Of an algorithm that cannot learn from it the robot gives way.
    other = robot(takeover=joystick())
    other.start()
    other.session.on_person(np.array([0.5]), other.now)
    assert (other.sent, other.session.lost) == ([0.0], 1)
    assert other.log[-1] == 'waits: joy commands the robot'


def test_the_last_command_of_a_person_who_is_gone_is_not_held_for_a_late_agent(robot):
    robot = robot(takeovers=True, episode_steps=100, late=LateAction(action='hold', limit=5.0))
    robot.start()
    robot.session.on_other('/teleop', robot.now, values=[-0.5])
    robot.go_on(40)
    assert robot.sent
    assert {*robot.sent} == {0.0}


def test_a_key_that_is_let_go_with_the_lamp_on_stops_at_once(robot):
    robot = robot(takeovers=True)
    robot.start()
    robot.session.on_other('/teleop', robot.now, values=[-0.5])
    assert robot.tick(act=0.7).executed == [-0.5]
    for sender, executed in (('/viewer', -0.5), ('/teleop', 0.0)):
        robot.session.on_other(sender, robot.now, moving=False, for_lamp=True, values=[0.0])
        assert robot.tick(act=0.7).executed == [executed], sender


@pytest.mark.parametrize(('value', 'clock'), [(0.0, 'wall'), (-0.5, 'wall'), (-0.5, 'simulated')])
def test_what_a_person_sent_during_a_pause_of_the_process_lets_the_robot_rest(
        robot, value, clock):
    robot = robot(takeovers=True, episode_steps=100, clock=clock, takeover=joystick())
    robot.start()
    if not value:
        robot.session.on_person(np.array([0.8]), robot.now)
    robot.now += 0.5
    robot.session.on_person(np.array([value]), robot.now)
    assert robot.sent[-1] == 0.0
    robot.tick(act=0.7)
    assert robot.tick(act=0.7).executed == [0.0]


PLACE, FAR = np.array([0.1, 0.2, 0.3]), np.array([2.0, 0.0, 0.0])


def test_the_arm_takes_a_target_before_it_is_measured_but_none_out_of_reach():
    task = make_task(find_contract('owi535'))
    place = np.array([0.15, 0.1, 0.2])
    task.aim(place, {})
    assert task.target is place
    for values in ({}, {'wrist': float('nan')}):
        with pytest.raises(ValueError, match='no pose without a collision comes nearer than'):
            task.aim(10.0 * place, values)


def test_the_contract_may_give_the_arm_one_place_for_all_episodes():
    place = [0.22, 0.08, 0.12]
    task = make_task(with_arguments(find_contract('owi535'), json.dumps({'place': place})))
    values = dict.fromkeys(('base', 'shoulder', 'elbow', 'wrist', 'gripper'), 0.1)
    task.begin(Measured(values, {}, {}, 0.0, np.zeros((1, 4))), np.random.default_rng(0))
    assert task.target.tolist() == place
    with pytest.raises(ContractError, match='no pose without a collision comes nearer than'):
        make_task(with_arguments(find_contract('owi535'), '{"place": [0, 0, 2]}'))


def test_a_robot_that_follows_acts_for_a_target_and_goes_on_when_it_is_there(robot):
    robot = robot(follows=True, episode_steps=3)
    assert not any(robot.go_on(10))
    assert (robot.sent, robot.log) == ([], ['waits: no target'])
    assert not robot.session.aim(PLACE)
    robot.start()
    for speed in (0.2, 1.0, 0.3, 0.4, 0.5):
        result = robot.tick(speed, act=0.7)
        assert (result.terminated, result.truncated) == (False, False)
    assert robot.task.target is PLACE
    aimed = robot.session.aimed
    assert aimed.reached == pytest.approx(aimed.reaction + 2 * PERIOD)
    # Another one is not there yet.
    assert not robot.session.aim(2.0 * PLACE)
    robot.tick(act=0.7)
    assert np.isnan(robot.session.aimed.reached)
    assert robot.session.begun == 1


LIMIT = 'limit: speed is not -2.5 to 2.5, for 10 s'


@pytest.mark.parametrize(('state', 'event', 'reason'), [
    (State.RUNNING, 'moves', '/person moves the robot'),
    (State.RUNNING, 'off', '/person switched the motors off'),
    (State.RUNNING, 'program', 'arm_controller moves the robot'),
    (State.RUNNING, 'stop', 'emergency stop'),
    (State.RUNNING, 'standstill', 'the process stood still'),
    (State.RUNNING, 'refused', 'target refused: out of reach'),
    (State.RUNNING, 'agent', 'the agent gave no action for 30 s'),
    (State.RUNNING, 'limit', 'the episode has ended: failure'),
    (State.SETTLING, 'moves', '/person moves the robot'), (State.SETTLING, 'limit', LIMIT),
    (State.WAITING, 'stop', 'emergency stop'),
    (State.WAITING, 'agent', 'the agent gave no action for 30 s')])
def test_what_ends_a_target_lets_the_robot_rest_until_there_is_another(
        robot, state, event, reason):
    limits = (Limit(feature='speed', low=-2.5, high=2.5),) if event == 'limit' else ()
    robot = robot(follows=True, stops=(STOP,), limits=limits)
    robot.go_on(3)
    robot.session.aim(PLACE)
    if state is State.RUNNING:
        robot.start()
        robot.tick(act=0.7)
    elif state is State.SETTLING:
        robot.tick()
    assert robot.session.state is state
    if event in ('moves', 'off'):
        robot.session.on_other('/person', robot.now, moving=event == 'moves')
    elif event == 'program':
        robot.session.on_other('/arm_controller', robot.now)
    elif event == 'stop':
        robot.session.on_stop(0, True)
        robot.session.on_stop(0)
    elif event == 'standstill':
        robot.now += 1.5
        robot.session.look(robot.now)
    elif event == 'refused':
        assert robot.session.aim(FAR) == 'out of reach'
    elif event == 'agent':
        robot.go_on(round(31.0 / PERIOD))
    else:
        while robot.session.consent.given:
            robot.tick(3.0, act=0.7)
    count = len(robot.sent)
    assert robot.session.given_up.endswith(reason)
    robot.go_on(round(5.0 / PERIOD), act=0.7)
    assert not any(robot.sent[count:])
    # To stop somebody else who moves the robot is not its business.
    assert robot.session.state is State.WAITING
    assert robot.session.aim(PLACE) == ''
    robot.start()


def test_a_target_waits_for_measurements_and_is_given_up_after_a_while(robot):
    robot = robot(follows=True)
    assert not robot.session.aim(PLACE)
    robot.start()
    robot.tick(act=0.7)
    robot.go_on(round(5.0 / PERIOD), None, act=0.7)
    assert robot.sent[-1] == 0.0
    assert robot.session.waits == 'odom: nothing newer than 0.5 s'
    robot.start()
    robot.go_on(round(12.0 / PERIOD), None)
    assert robot.session.given_up == 'odom: nothing newer than 0.5 s, for 10 s'
    assert not any(robot.go_on(10))


def test_a_target_after_a_short_pause_is_taken_however_long_there_was_none(robot):
    robot = robot(follows=True)
    robot.go_on(round(12.0 / PERIOD))
    robot.now += 0.15
    robot.session.look(robot.now)
    assert robot.session.aim(PLACE) == ''


def test_a_confirmation_is_not_taken_while_nobody_acts(robot):
    robot = robot()
    robot.start()
    robot.session.consent.withdraw('the program is gone')
    robot.session.tick(robot.now, problem='no program')
    assert robot.session.confirm().startswith('no program; ros2 run vdl_ros confirm, once more')
    robot.tick()
    assert robot.session.confirm() == ''


@pytest.mark.parametrize('outcome', ['success', 'failure', 'discard'])
def test_a_person_ends_an_episode_by_a_word(robot, outcome):
    robot = robot(success_reward=5.0)
    assert robot.session.judge(outcome) == 'no episode runs'
    robot.start()
    begun = robot.now
    robot.tick(act=0.7)
    robot.session.act(np.array([0.7]), robot.now)
    assert 'has ended' in robot.session.judge(outcome, robot.now - begun + PERIOD), 'another one'
    assert robot.session.judge(outcome, robot.now - begun) == ''
    result = robot.tick(0.2)
    if outcome == 'discard':
        assert result is None
        assert robot.session.lost == 1
    else:
        assert result.terminated
        assert result.success is (outcome == 'success')
        assert result.reward == pytest.approx(5.2 if outcome == 'success' else 0.2)
    assert robot.sent[-1] == 0.0


class Light:
    """A classifier that takes a picture for a success that is not black."""

    metadata = SimpleNamespace(threshold=0.5)

    def __call__(self, picture):
        assert picture.shape == (48, 64, 3)
        return float(picture.max() > 0)


@pytest.fixture
def seen(robot):
    """Return a robot with a camera, and what its pictures show at each further tick."""
    robot = robot(classifier=Light(), success_reward=5.0, success=Success(
        classifier='a.onnx', image='camera', times=2), images=(
            ImageTopic(name='camera', topic='camera', size=(64, 48), grayscale=True),))

    tick = robot.tick

    def look_and_tick(*arguments, **options):
        robot.session.on_reading('camera', Reading(
            {}, robot.now, 0.0, robot.now, robot.now, np.full((48, 64, 1), robot.light, np.uint8)))
        return tick(*arguments, **options)

    def ticks(*lights):
        found = []
        for robot.light in lights:
            found.append(robot.tick(0.25, act=0.1))
        return [each.success for each in found], [each.reward for each in found], found[-1]

    def start(light=False):
        robot.light = light
        # The end of the episode before.
        robot.session.act(np.array([0.0]), robot.now)
        robot.start()

    robot.tick = look_and_tick
    robot.ticks, robot.begin = ticks, start
    return robot


def test_pictures_that_agree_are_a_success_with_its_reward(seen):
    seen.begin()
    success, rewards, last = seen.ticks(False, True, False, True, True)
    assert success == [False] * 4 + [True]
    assert rewards == [0.25] * 4 + [5.25]
    assert last.terminated
    # A person who looks at it knows better.
    seen.begin()
    seen.ticks(False, True)
    seen.session.judge('failure')
    success, rewards, last = seen.ticks(True)
    assert (success, rewards, last.terminated) == ([False], [0.25], True)


def test_a_success_from_the_beginning_on_does_not_count_before_it_was_denied(seen):
    seen.begin(True)
    success, _, last = seen.ticks(*[True] * 5, False, True, True, False, False)
    assert not any(success)
    assert last.truncated
    # In the next episode, too, which logs nothing: it would be a line for each episode.
    seen.begin(True)
    success, _, last = seen.ticks(True, False, False, True, True)
    assert success == [False] * 4 + [True]
    assert last.terminated
    assert [each for each in seen.log if each.startswith('a.onnx')] == [
        'a.onnx says success from the beginning of an episode on: that is not counted, before it '
        'says otherwise']


def grey(value):
    return np.full((48, 64, 1), value, np.uint8)


def test_an_observation_has_the_frames_of_the_latest_ticks_and_silence_loses_the_episode(robot):
    robot = robot(images=(
        ImageTopic(name='eye', topic='eye', size=(64, 48), stack=3, grayscale=True, timeout=0.15),
        ImageTopic(name='other', topic='other')))
    assert not any(robot.go_on(10))
    assert robot.log == ['waits: no message on eye yet']
    space = Observer(robot.contract, robot.task).space

    def look(value, act=None):
        """Return image and numbers after a tick, before which the eye saw something."""
        robot.session.on_reading('eye', Reading(
            {}, robot.now, 0.02, robot.now, robot.now, grey(value)))
        result = robot.tick(act=act)
        return result and space.split(result.observation)

    while not (first := look(7)):
        pass
    assert space.image.shape == first[0].shape == (48, 64, 3)
    np.testing.assert_array_equal(first[0][0, 0], [7, 7, 7])
    # Speed, ages of odom and eye, and twice no action.
    np.testing.assert_allclose(first[1][:3], [0.1, 0.01 / 0.5, (PERIOD + 0.02) / 0.15], atol=1e-6)
    np.testing.assert_array_equal(look(8, act=0.0)[0][0, 0], [7, 7, 8])
    # A tick at which the agent is late has a frame of its own.
    look(9, act=0.0)
    assert look(10) is None
    np.testing.assert_array_equal(look(11, act=0.0)[0][0, 0], [9, 10, 11])
    # The same image twice, if none has come.
    image = space.split(robot.tick(act=0.0).observation)[0]
    np.testing.assert_array_equal(image[0, 0], [10, 11, 11])
    np.testing.assert_array_equal(robot.task.seen.images['eye'], grey(11))
    assert robot.tick(act=0.0) is None
    assert robot.log[-1] == 'waits: eye: nothing newer than 0.15 s'
    while not (first := look(3)):
        pass
    np.testing.assert_array_equal(first[0][0, 0], [3, 3, 3])


def test_an_image_that_is_not_observed_is_for_the_task_and_its_silence_counts(robot):
    robot = robot(images=(
        ImageTopic(name='eye', topic='eye', size=(64, 48), observed=False, timeout=0.15),))
    assert Observer(robot.contract, robot.task).space.shape == (4,)
    while not (first := robot.tick()):
        robot.session.on_reading('eye', Reading(
            {}, robot.now, 0.0, robot.now, robot.now, grey(3)))
    # Speed, the age of odom, and twice no action.
    np.testing.assert_allclose(first.observation, [0.1, 0.01 / 0.5, 0.0, 0.0], atol=1e-6)
    while robot.tick(act=0.0):
        np.testing.assert_array_equal(robot.task.seen.images['eye'], grey(3))
    assert robot.log[-1] == 'waits: eye: nothing newer than 0.15 s'


def test_no_episode_begins_beyond_a_limit(robot):
    robot = robot(limits=(Limit(feature='speed', low=-0.5, high=0.5),))
    assert not any(robot.go_on(100, 0.6, act=0.7))
    assert not any(robot.sent)
    assert robot.log == ['waits: limit: speed is not -0.5 to 0.5']
    # Somebody brings it back.
    robot.start()


def test_a_clock_that_begins_anew_leaves_no_measurement_of_the_one_before(robot):
    robot = robot(clock='simulated')
    robot.now = 20.0
    robot.start()
    robot.now = 0.0
    robot.session.on_clock_set_back()
    assert not any(robot.go_on(100, speed=None, act=0.7))
    assert robot.session.waits == 'no message on odom yet'
    robot.start()


@pytest.mark.parametrize('event', ['stops', 'persons'])
def test_in_simulated_time_a_person_ends_each_episode_by_all_off(robot, event):
    robot = robot(clock='simulated', stops=(STOP,))
    robot.start()
    if event == 'stops':
        for pressed in (True, False, True, False):
            robot.session.on_stop(0, pressed, mark=robot.now)
            robot.now += PERIOD
    else:
        robot.session.on_other('/a', robot.now)
        robot.session.on_other('/b', robot.now, moving=False)
    for _ in range(3):
        robot.start()
        lost = robot.session.lost
        robot.session.on_other('/person', robot.now, moving=False)
        assert robot.session.lost == lost + 1


def test_after_a_verdict_a_late_agent_holds_nothing(robot):
    robot = robot(late=LateAction(action='hold', limit=10.0))
    robot.start()
    robot.tick(act=0.7)
    robot.session.judge('failure')
    assert robot.sent[-1] == 0.0
    count = len(robot.sent)
    robot.tick()
    robot.tick(act=0.8)
    assert not any(robot.sent[count:])
