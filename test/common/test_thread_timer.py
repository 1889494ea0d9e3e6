"""A thread's time is in one phase at a time, and all of it is somewhere."""

import contextlib
import itertools

import pytest

from vdl_ros.common.metrics import PHASES, ThreadTimer, TimerWindow


class Hands:
    """Two clocks that are set by hand."""

    def __init__(self):
        self.wall = self.processor = 0.0
        self.timer = ThreadTimer(lambda: self.wall, lambda: self.processor)

    def go(self, wall, processor=0.0):
        self.wall += wall
        self.processor += processor

    def spent(self):
        return {name: value for name, value in self.timer.seconds().items() if value}


@pytest.fixture
def hands():
    return Hands()


def test_sections_take_their_time_and_interrupt_each_other_and_the_rest_is_other(hands):
    timer = hands.timer
    hands.go(1)
    with timer('encode'):
        hands.go(2)
        with timer('step'):
            hands.go(4)
            with timer('encode'):
                hands.go(8)
        assert hands.spent() == {'other': 1, 'encode': 10, 'step': 4}, 'so far'
        hands.go(16)
    with contextlib.suppress(KeyError), timer('step'):
        hands.go(32)
        raise KeyError
    hands.go(64)
    assert hands.spent() == {'other': 65, 'encode': 26, 'step': 36}
    assert tuple(timer.seconds()) == PHASES


def test_listening_is_waiting_but_for_the_processor_time(hands):
    timer = hands.timer
    for _ in range(2):
        with timer.executor_wait():
            hands.go(5, processor=1)
    assert hands.spent() == {'wait': 8, 'receive': 2}
    with timer.executor_wait():
        hands.go(1, processor=3)
        with timer('publish'):
            hands.go(3)
    # Its own wall time is all it can have: the rest was the section's within.
    assert hands.spent() == {'wait': 8, 'receive': 3, 'publish': 3}
    lap = TimerWindow(timer)
    with timer.executor_wait():
        hands.go(3, processor=3)
        assert lap.take()['wait'] == 1.0
    hands.go(1)
    # What moved from one to the other is not negative.
    assert lap.take() == {'wait': 0.0, 'receive': 0.75, 'publish': 0.0, 'other': 0.25}


def test_laps_follow_each_other_without_a_gap(hands):
    timer = hands.timer
    lap, whole = TimerWindow(timer), TimerWindow(timer)
    assert lap.shares() == {}
    with timer('step'):
        hands.go(3)
    hands.go(1)
    assert lap.take() == {'step': 0.75, 'other': 0.25}
    with timer('learn'):
        hands.go(4)
    # A phase that the thread has been in is listed even without a share.
    assert lap.take() == {'step': 0.0, 'learn': 1.0, 'other': 0.0}
    assert whole.shares() == {'step': 0.375, 'learn': 0.5, 'other': 0.125}
    whole.take()
    hands.go(1)
    assert whole.shares() == {'step': 0.0, 'learn': 0.0, 'other': 1.0}


def test_what_another_thread_was_told_stays_true():
    """It reads after the clock's own thread has asked for the time, before that changes phase."""
    for when in range(1, 9):
        asked, readings, timers = itertools.count(), [], []

        def clock(when=when, asked=asked, readings=readings, timers=timers):
            now = next(asked)
            if now == when:
                readings.append(timers[0].seconds())
            return now

        timer = ThreadTimer(clock, lambda: 0)
        timers.append(timer)
        for _ in range(2):
            with timer('infer'), timer('step'):
                pass
        [before] = readings
        after = timer.seconds()
        assert all(after[name] >= before[name] for name in PHASES), when
        assert sum(after.values()) == next(asked) - 1, when
