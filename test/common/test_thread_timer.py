"""The thread timer: phases, windows, reading from another thread."""

import contextlib
import threading
import time

import pytest

from vdl_ros.common.thread_timer import PHASES, ThreadTimer, TimerWindow


class SetClocks:
    """A timer on two clocks that the test sets."""

    def __init__(self):
        self.wall = self.processor = 0.0
        self.timer = ThreadTimer(lambda: self.wall, lambda: self.processor)

    def advance(self, wall, processor=0.0):
        self.wall += wall
        self.processor += processor

    def spent(self):
        return {name: value for name, value in self.timer.seconds().items() if value}


@pytest.fixture
def clocks():
    return SetClocks()


def test_time_outside_sections_is_other(clocks):
    timer = clocks.timer
    clocks.advance(1)
    with timer('step'):
        clocks.advance(2)
    with timer('infer'):
        clocks.advance(4)
    with timer('step'):
        clocks.advance(8)
    clocks.advance(16)
    assert clocks.spent() == {'other': 17, 'step': 10, 'infer': 4}
    assert tuple(timer.seconds()) == PHASES


def test_an_inner_section_interrupts_the_outer_one(clocks):
    timer = clocks.timer
    with timer('encode'):
        clocks.advance(1)
        with timer('step'):
            clocks.advance(2)
            with timer('encode'):
                clocks.advance(4)
        clocks.advance(8)
    assert clocks.spent() == {'encode': 13, 'step': 2}


def test_the_current_section_is_included(clocks):
    with clocks.timer('wait'):
        clocks.advance(3)
        assert clocks.spent() == {'wait': 3}
        clocks.advance(1)
    assert clocks.spent() == {'wait': 4}


def test_an_exception_ends_its_section(clocks):
    with contextlib.suppress(KeyError), clocks.timer('learn'):
        clocks.advance(1)
        raise KeyError
    clocks.advance(2)
    assert clocks.spent() == {'learn': 1, 'other': 2}


def test_an_unknown_phase_raises_key_error(clocks):
    with pytest.raises(KeyError):
        clocks.timer('sleep')


def test_executor_wait_splits_wait_and_receive_by_processor_time(clocks):
    timer = clocks.timer
    for _ in range(2):
        with timer.executor_wait():
            clocks.advance(5, processor=1)
    assert clocks.spent() == {'wait': 8, 'receive': 2}
    with timer.executor_wait():
        clocks.advance(1, processor=3)
        with timer('publish'):
            clocks.advance(3)
    # At most its own wall time: the inner section counts the rest.
    assert clocks.spent() == {'wait': 8, 'receive': 3, 'publish': 3}


def test_consecutive_windows_have_no_gap(clocks):
    timer = clocks.timer
    window, whole = TimerWindow(timer), TimerWindow(timer)
    assert window.shares() == {}
    with timer('step'):
        clocks.advance(3)
    clocks.advance(1)
    assert window.take() == {'step': 0.75, 'other': 0.25}
    with timer('learn'):
        clocks.advance(4)
    # A phase of an earlier window is listed with share 0.
    assert window.take() == {'step': 0.0, 'learn': 1.0, 'other': 0.0}
    assert whole.shares() == {'step': 0.375, 'learn': 0.5, 'other': 0.125}
    whole.restart()
    clocks.advance(1)
    assert whole.shares() == {'step': 0.0, 'learn': 0.0, 'other': 1.0}


def test_time_moved_from_wait_to_receive_gives_no_negative_share(clocks):
    window = TimerWindow(clocks.timer)
    with clocks.timer('wait'):
        clocks.advance(1)
    with clocks.timer.executor_wait():
        clocks.advance(3, processor=3)
        assert window.take() == {'wait': 1.0}
    clocks.advance(1)
    assert window.take() == {'wait': 0.0, 'receive': 0.75, 'other': 0.25}


def test_another_thread_reads_a_running_timer():
    began = time.perf_counter()
    timer, stop = ThreadTimer(), threading.Event()

    def work():
        while not stop.is_set():
            with timer('infer'), timer('step'):
                pass

    thread = threading.Thread(target=work)
    thread.start()
    try:
        before = timer.seconds()
        while not before['step']:  # the thread has not started yet
            before = timer.seconds()
        for _ in range(2000):
            after = timer.seconds()
            assert all(after[name] >= before[name] for name in PHASES)
            before = after
    finally:
        stop.set()
        thread.join()
    # Up to rounding of the sums.
    assert sum(before.values()) <= time.perf_counter() - began + 1e-9


@pytest.mark.parametrize('when', range(1, 9))
def test_values_read_by_another_thread_stay_correct(when):
    """Read after the timer's thread has read the clock and before it changes the phase."""
    times, readings = iter(range(1000)), []

    def clock():
        now = next(times)
        if now == when:
            readings.append(timer.seconds())
        return now

    timer = ThreadTimer(clock, lambda: 0)
    for _ in range(2):
        with timer('infer'), timer('step'):
            pass
    [before] = readings
    after = timer.seconds()
    assert all(after[name] >= before[name] for name in PHASES)
    assert sum(after.values()) == next(times) - 1
