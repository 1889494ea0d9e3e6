"""Who may move a robot: consent that persons, stops, standstills and silent viewers end."""

import math

import pytest

from vdl_ros.common.consent import (
    Consent,
    DelayDetector,
    Precedence,
    StandstillDetector,
)


class Program:
    """A program with a consent, by a clock of hand."""

    def __init__(self, **options):
        self.now, self.ended = 5.0, []
        self.consent = Consent('/bench/policy', lambda *reason: self.ended.append(reason),
                               clock=lambda: self.now, **options)
        self.consent.update()

    def wait(self, seconds, updates=True):
        """Let time pass in steps of 0.05 s, or at once."""
        for _ in range(round(seconds * 20) if updates else 1):
            self.now += 0.05 if updates else seconds
            self.consent.update()


EVENTS = {
    'moves': (lambda each: each.consent.on_command('/teleop', moving=True),
              '/teleop moves the robot', True),
    'all off': (lambda each: each.consent.on_command('/teleop', moving=False),
                '/teleop switched the motors off', False),
    'no name': (lambda each: each.consent.on_command('', moving=False),
                'a person switched the motors off', False),
    'stop': (lambda each: each.consent.on_stop(True), 'emergency stop', False),
    'standstill': (lambda each: each.wait(1.1, updates=False), 'the process stood still', False),
    'controller': (lambda each: each.consent.on_command('/arm_controller', moving=True),
                   '/arm_controller moves the robot', True),
}


@pytest.mark.parametrize('event', EVENTS)
def test_what_ends_a_consent_and_nothing_moves_before_it_is_asked_again(event):
    happens, reason, moved = EVENTS[event]
    program = Program()
    happens(program)
    assert program.ended == []  # nothing to end
    program = Program()
    assert program.consent.ask() == ''
    happens(program)
    assert program.ended == [(reason, moved)]
    program.consent.on_stop(False)
    program.wait(2.0)
    assert not program.consent.given
    assert program.consent.ask() == ''
    happens(program)
    assert len(program.ended) == 2


def test_a_request_is_refused_while_somebody_moves_and_just_after_a_standstill():
    program = Program()
    program.consent.on_command('/viewer', moving=True)
    assert program.consent.ask() == '/viewer moves the robot'
    program.consent.on_command('/viewer', moving=False)
    assert program.consent.ask() == ''
    program.consent.on_stop(True)
    assert program.consent.ask() == 'emergency stop'
    program.consent.on_stop(False)
    program.wait(10.0, updates=False)
    assert program.consent.ask() == 'the process stood still'
    program.wait(1.1)
    assert program.consent.ask() == ''


@pytest.mark.parametrize('is_training', [True, False])
def test_all_off_soon_after_a_stop_ends_a_consent(is_training):
    program = Program(resumes=is_training)
    program.consent.ask()
    program.consent.on_stop(True)
    program.wait(1.0)
    program.consent.on_stop(False)
    program.consent.on_command('/viewer', moving=False)  # the one that the driver needs
    program.wait(0.3)
    if not is_training:
        assert program.consent.ask() == ''
    program.ended.clear()
    program.consent.on_command('/teleop', moving=False)
    assert program.ended == [('/teleop switched the motors off', False)]


def test_another_mark_is_a_stop_that_came_and_went():
    program = Program(resumes=True)
    program.consent.on_stop(False, mark=1)
    program.consent.ask()
    for state, mark in ((True, 2), (False, 3), (False, 3)):
        program.consent.on_stop(state, mark=mark)
    assert program.ended == []
    program.consent.on_stop(False, mark=4)
    assert program.ended == [('the robot was stopped meanwhile', False)]
    # Also of a driver that starts again, or stands still, while it is stopped.
    program.consent.ask()
    for mark in (5, 6):
        program.consent.on_stop(True, mark=mark)
    assert len(program.ended) == 2


@pytest.mark.parametrize(('seconds', 'waits', 'ends'), [
    (0.5, False, False), (2.0, False, True), (2.0, True, False)])
def test_a_driver_that_starts_ends_what_was_asked_long_before(seconds, waits, ends):
    program = Program(waits_for_driver=waits)
    program.consent.ask()
    program.wait(seconds)
    program.consent.on_stop(False, mark=1)
    assert program.ended == [('the driver has started since', False)] * ends


@pytest.mark.parametrize('event', ['all off', 'stop and release'])
def test_a_request_that_waited_in_a_pause_with_what_ends_it_is_refused(event):
    program = Program()
    program.now += 0.7
    # The executor takes the request last.
    if event == 'all off':
        program.consent.on_command('/teleop', moving=False)
    else:
        program.consent.on_stop(True)
        program.consent.on_stop(False)
    program.consent.update()
    program.now += 0.01
    assert program.consent.ask() in ('the motors were switched off meanwhile', 'emergency stop')
    assert program.consent.input_age == pytest.approx(0.71)
    program.wait(0.2)
    assert (program.consent.ask(), program.consent.input_age) == ('', 0.0)


def test_what_does_not_end_a_consent():
    program = Program(yields_to_programs=False)
    program.consent.ask()
    program.consent.on_command('/bench/policy', moving=True)  # its own
    program.consent.on_command('/arm_controller', moving=True)
    program.consent.on_command('/b/arm_controller', moving=False)
    program.consent.on_command('/teleop', moving=False, for_lamp=True)
    program.wait(60.0)
    assert program.consent.given


def test_a_training_is_interrupted_by_others_and_stops_but_ended_by_all_off():
    program = Program(resumes=True)
    program.consent.ask()
    program.consent.on_command('/teleop', moving=True)
    assert program.consent.pause == '/teleop commands the robot'
    program.consent.on_command('/teleop', moving=False)  # a key is let go
    assert program.consent.pause
    program.wait(1.1)
    assert (program.consent.pause, program.consent.given) == ('', True)
    # That of long ago is no key that is let go now.
    program.consent.on_command('/viewer', moving=True)
    program.wait(5.0)
    program.consent.on_command('/viewer', moving=False)
    assert program.ended.pop() == ('/viewer switched the motors off', False)
    program.consent.ask()
    program.consent.on_stop(True)
    program.wait(5.0)
    program.consent.on_stop(False)
    # Teleop and view send the command that the driver needs after a stop.
    for sender in ('/teleop', '/viewer'):
        program.consent.on_command(sender, moving=False)
    assert program.consent.pause == 'the emergency stop was released'
    program.wait(1.1)
    assert (program.consent.pause, program.ended) == ('', [])
    # Only the first of a sender, also if that comes before the news of the end; and a key that is
    # let go may leave the lamp on.
    program.consent.on_stop(True)
    program.wait(3.0)
    program.consent.on_command('/teleop', moving=False)
    program.consent.on_stop(False)
    program.consent.on_command('/teleop', moving=False)
    assert program.ended.pop() == ('/teleop switched the motors off', False)
    program.wait(1.1)
    program.consent.ask()
    program.consent.on_command('/teleop', moving=True)
    program.consent.on_command('/teleop', moving=False, for_lamp=True)
    assert program.consent.given
    program.consent.on_command('/teleop', moving=False)
    assert program.ended.pop() == ('/teleop switched the motors off', False)
    program.wait(1.1)
    program.consent.ask()
    # Nobody else lets it go.
    program.consent.on_command('/teleop#1', moving=True)
    assert program.consent.pause == '/teleop commands the robot'
    program.consent.on_command('/teleop#2', moving=False)
    assert program.ended.pop() == ('/teleop switched the motors off', False)
    program.wait(1.1)
    program.consent.ask()
    # During the stop it is meant as it is.
    program.consent.on_stop(True)
    program.consent.on_command('/teleop', moving=False)
    program.wait(5.0)
    program.consent.on_stop(False)
    assert program.ended.pop() == ('/teleop switched the motors off', False)
    program.wait(1.1)
    program.consent.ask()
    program.consent.on_command('/teleop', moving=False)
    assert program.ended == [('/teleop switched the motors off', False)]


@pytest.mark.parametrize('is_needed', [False, True])
def test_a_viewer_that_was_there_has_to_live(is_needed):
    program = Program(viewer_timeout=0.5 * is_needed)
    assert bool(program.consent.pause) is is_needed
    program.consent.on_viewer_alive()
    assert program.consent.pause == ''
    program.wait(1.1)
    assert program.consent.pause == 'no sign of life of the viewer'
    # One that has waited in a pause is old.
    program.wait(0.9, updates=False)
    program.consent.on_viewer_alive()
    program.wait(0.15)
    assert program.consent.pause


@pytest.mark.parametrize('max_gap', [1.0, math.inf])
def test_a_gap_counts_before_and_after_the_next_update_until_input_has_settled(max_gap):
    now = [5.0]
    detector = StandstillDetector(max_gap, settling=0.5, clock=lambda: now[0])
    for passed in (5.0, 0.9):  # a slow start
        now[0] += passed
        assert not detector.recent
        assert not detector.update()
    now[0] += 60.0
    is_standstill = max_gap < 60.0
    assert detector.recent is is_standstill  # before the first update
    assert detector.update() is is_standstill
    now[0] += 0.4
    assert detector.update() is detector.recent is is_standstill
    now[0] += 0.2
    assert not detector.update()
    assert not detector.recent


def test_what_a_person_did_before_a_short_pause_is_old():
    now = [5.0]
    detector = StandstillDetector(2.0, clock=lambda: now[0])
    detector.update()
    for gap, is_old in ((0.05, False), (0.15, False), (0.3, True), (1.8, True), (2.5, True)):
        now[0] += gap
        assert detector.is_input_old is is_old, gap
        detector.update()
        assert detector.is_input_old is is_old, gap
        for _ in range(22):
            now[0] += 0.05
            detector.update()
        assert not detector.is_input_old, gap


def test_a_person_comes_before_programs():
    precedence, program, person = Precedence(0.5), '/bench/arm_controller', '/my_script'
    assert precedence.admits(program, True, 0.0)
    # A person who commands all motors off, to release the emergency stop, moves nothing.
    assert precedence.admits(person, False, 0.1)
    assert precedence.admits(program, True, 0.2)
    assert precedence.admits(person, True, 1.0)
    # Persons have no precedence among each other.
    assert precedence.admits('/another', True, 1.0)
    assert not precedence.admits(program, True, 1.01)
    # Not even a program's stop stops what a person moves.
    assert not precedence.admits(program, False, 1.02)
    # Released: the program is kept off a little longer.
    assert precedence.admits(person, False, 1.3)
    assert not precedence.admits(program, True, 1.4)
    assert precedence.admits(program, True, 1.5)


def test_a_person_ends_programs_by_beginning_and_an_environment_by_all_off():
    precedence = Precedence(0.5)

    def begins(sender, moving, now, for_lamp=False):
        precedence.admits(sender, moving, now)
        found = precedence.begins(sender, now, moving=moving, for_lamp=for_lamp)
        ends = precedence.ends_environment(now, moving=moving)
        return found and ('both' if ends else 'programs')

    assert begins('/teleop', True, 1.0) == 'programs'
    # To go on, and to let go, is no begin; but after a while, or by somebody else.
    assert not begins('/teleop', True, 1.5)
    assert not begins('/teleop', False, 2.0)
    assert begins('/teleop', True, 2.1) == 'programs'
    assert begins('/teleop', True, 3.2) == 'programs'
    assert begins('/viewer', True, 3.3) == 'programs'
    assert begins('/viewer', False, 4.4) == 'programs'
    assert not begins('/viewer', False, 4.5)
    assert begins('/viewer', False, 4.8) == 'programs'
    # Who has held a button in a stop.
    assert begins('/teleop', True, 4.9) == 'programs'
    precedence.forget()
    assert begins('/teleop', True, 4.95) == 'programs'
    for sender in ('/arm_controller', '/calibrate'):
        assert not begins(sender, True, 5.0), sender
    # Who takes over an environment does not end it, nor to let go, with the lamp on perhaps.
    assert not begins('/robot_environment_1', False, 6.0)
    assert begins('/teleop', True, 6.2) == 'programs'
    assert not begins('/viewer', False, 6.3, for_lamp=True)
    assert not begins('/teleop', False, 6.4, for_lamp=True)
    assert not begins('/teleop', False, 6.5)
    assert begins('/teleop', False, 7.0) == 'both'
    assert begins('/teleop', False, 67.0) == 'programs'


def test_a_program_gives_up_for_a_person_whom_only_the_driver_hears():
    program = Program()
    for commanded in ((0, 0), (0, 0), (5, 1)):
        program.consent.ask()
        program.consent.on_stop(False, mark=1, commanded=commanded)
    assert program.ended == [('a person commands the robot', False)]


def test_a_program_that_commands_again_and_again_goes_on():
    program = Program()
    for sender, seconds, goes_on in (
            ('/arm_controller', 0.0, False), ('/arm_controller', 0.1, True),
            ('/b/arm_controller', 0.05, False), ('/b/arm_controller', 0.3, False),
            ('/teleop', 0.0, False), ('/teleop', 0.05, False),
            ('/robot_environment_1', 0.0, False),
            ('/robot_environment_1', 0.05, False)):
        program.now += seconds
        assert program.consent.goes_on(sender) is goes_on, (sender, seconds)


def test_a_request_is_refused_that_is_older_than_what_ended_it():
    program = Program()
    for event in (lambda: program.consent.on_command('/teleop', moving=False),
                  lambda: program.wait(1.1, updates=False),
                  lambda: program.consent.withdraw('another environment commands the robot')):
        program.wait(3.0)
        assert program.consent.ask(2.5) == ''
        # Also while it waits for a request already.
        program.consent.end()
        event()
        program.wait(2.0)
        assert program.consent.ask(2.5) != ''
        assert program.consent.ask(1.0 - 0.1) == ''


def test_a_command_that_was_held_up_is_told_by_its_stamp_whatever_the_clocks_show():
    detector, ahead = DelayDetector(0.5), 3600.0  # of the sender's clock, s

    def delay(made, arrives, sender='/play'):
        return detector.delay(sender, made + ahead, arrives)

    assert [delay(at, at + 0.3) for at in (10.0, 10.1, 14.0)] == [0.0] * 3
    # Handed over before a standstill, it arrives after it; then the sender goes on.
    assert delay(14.1, 18.4) == pytest.approx(4.0)
    assert [delay(at, at + 0.1) for at in (18.5, 18.6)] == [0.0] * 2
    # Who has no stamp, always the same one or no name cannot be late.
    for sender, made in (('/none', -ahead), ('/same', 1.0), ('', 1.0)):
        assert [delay(made, at, sender) for at in (20.0, 30.0)] == [0.0] * 2
    # A clock that was set back by a minute: late for a second.
    times = [20.0 + 0.25 * step for step in range(8)]
    assert [bool(delay(at - 60.0, at)) for at in times] == [True] * 4 + [False] * 4
    # One at a time, each held up, is no clock that was set.
    assert [bool(delay(at - 70.0, at)) for at in (30.0, 40.0, 50.0)] == [True] * 3
    # Nor is a link that becomes slower with each command.
    assert delay(60.0, 60.1, '/slow') == 0.0
    assert all(delay(60.0 + 0.1 * step, 60.1 + 0.45 * step, '/slow') for step in range(2, 30))
    # Clocks that drift apart.
    assert not any(delay(at, at + 1e-4 * at, '/drift') for at in range(100, 20_000, 10))
    # Beside a simulated clock that is fast, or slow, each is told by its own.
    for speed in (0.3, 10.0):
        for sender, rate, zero in (('/wall', 1.0, 1e9), ('/simulated', speed, 0.0)):
            for at, late in ((1.0, 0.0), (1.1, 0.0), (1.3, 0.0), (1.4, 3.0), (4.5, 0.0)):
                now = at + late / rate
                found = detector.delay(sender, zero + rate * at, speed * now, 1e9 + now)
                assert found == pytest.approx(late, abs=1e-6), (sender, speed, at)
    for number in range(1000):  # senders can invent names
        delay(1.0, 1.0, f'/{number}')
    assert delay(22.0, 30.0) == 0.0


def test_a_link_that_becomes_slower_little_by_little_is_no_clock_that_was_set():
    detector = DelayDetector(0.5)

    def is_late(made, taken):
        return bool(detector.delay(sender, made, made + taken))

    for slope in (1 / 64, 1 / 8, 1 / 4, 2.0):
        sender = f'/slope_{slope}'
        times = [step / 16 for step in range(1, round(32 / slope) + 1)]
        obeyed = [slope * made for made in times if not is_late(made, slope * made)]
        assert 0.4 < max(obeyed) < 0.7, slope
        # Who pauses begins again, whatever the link was before.
        times = [times[-1] + 1.25 + step / 4 for step in range(8)]
        assert [is_late(made, 2.0) for made in times] == [True] * 4 + [False] * 4, slope
    # A clock that was set back by tenths of a second; some commands take a little longer.
    sender = '/set'
    assert not any(is_late(step / 4, 0.05 * (step % 2)) for step in range(1, 9))
    late = [is_late(step / 4 - 0.625, 0.625 + 0.05 * (step % 2)) for step in range(9, 17)]
    assert late == [True] * 4 + [False] * 4
