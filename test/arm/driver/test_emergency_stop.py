"""Requests to the emergency stop: what engages, what releases, what a restart keeps."""

import errno
import itertools
import json
import os
import signal
from resource import RLIMIT_FSIZE, getrlimit, setrlimit

import pytest

from vdl_ros.arm.driver import driver
from vdl_ros.arm.driver.driver import EmergencyStop, StopState


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a driver's emergency stop, with the same file each time."""
    return lambda now: EmergencyStop(tmp_path / 'new' / 'state.json', now)


def test_release_counts_only_for_the_state_in_force(start):
    stop = start(0)
    assert not stop.release(0, '/viewer', '', 50), 'nothing is engaged'
    assert stop.stop(7, '/viewer', 'a button', 100)
    assert stop.state == StopState(True, 100, '/viewer', 'a button')
    # Another stop, whatever its sender's clock.
    assert stop.stop(3, '/teleop', 'a key', 200)
    assert stop.state == StopState(True, 200, '/teleop', 'a key')
    for stale in (0, 100, 199, 201, 10**18):
        assert not stop.release(stale, '/viewer', '', 300)
        assert stop.state.engaged
    assert stop.release(200, '/viewer', 'another button', 300)
    assert stop.state == StopState(False, 300, '/viewer', 'another button')
    # It is used up.
    assert stop.stop(8, '/viewer', '', 400)
    assert not stop.release(200, '/viewer', '', 500)


def test_stamps_of_the_state_increase_though_the_clock_is_set_back(start):
    stop = start(0)
    stop.stop(0, '', '', 1000)
    stop.stop(0, '', '', 500)
    before = stop.state.stamp
    assert before > 1000
    stop.save()
    stamps = set()
    for _ in range(3):
        again = start(10)
        again.interrupt('the driver has started', 20)
        assert again.state.engaged
        assert again.release(again.state.stamp, '', '', 20)
        assert again.state.stamp > before + 1
        # Those who saw one of them must notice the other.
        stamps.add(again.state.stamp)
    assert len(stamps) == 3


def test_requests_from_before_the_start_engage_in_any_order(tmp_path):
    for order in itertools.permutations(range(3)):
        stop = EmergencyStop(tmp_path / 'state.json', 100)
        for index in order:
            call, stamp, sender = (
                (stop.release, 50, '/a'), (stop.stop, 60, '/b'), (stop.release, 100, '/c'))[index]
            call(stamp, sender, '', 110)
        assert stop.state.engaged, order


@pytest.mark.parametrize('released', [False, True])
def test_state_survives_a_restart(start, released):
    stop = start(0)
    stop.stop(5, '/viewer', 'a button', 110)
    if released:
        assert stop.release(110, '/viewer', 'a button', 210)
    stop.save()
    again = start(300)
    assert again.state == stop.state == StopState(
        not released, 210 if released else 110, '/viewer', 'a button')
    # Publishers repeat what they requested last, in any order.
    assert not again.stop(5, '/viewer', 'a button', 310)
    assert not again.release(90, '/teleop', '', 310)
    assert again.state == stop.state
    assert again.stop(5, '/teleop', 'of another sender', 320)
    assert again.stop(6, '/viewer', 'a new one', 330)
    assert (again.state.engaged, again.state.stamp) == (True, 330)
    # Who stamps each request alike stops the arm: only the first one may be a repetition.
    for now in (340, 350):
        assert again.stop(5, '/viewer', 'a button', now)
        assert again.state.stamp == now
    assert start(300).stop(5, '/viewer', 'a button', 300 + 11 * 10**9), 'publishers are found'


def test_stop_without_a_stamp_engages_each_time_and_texts_are_bounded(start):
    stop = start(0)
    for now in (100, 200):
        assert stop.stop(0, '', 'typed', now)
        assert stop.release(now, '', '', now + 1)
    stop.stop(1, '\x1b[2J' + 'x' * 10_000, 'one\ntwo', 300)
    assert len(stop.state.sender) <= 200
    assert stop.state.sender.isprintable()
    assert stop.state.reason == "'one\\ntwo'"
    assert len(str(stop.state)) < 250


def test_state_file_that_cannot_be_read_counts_as_engaged(tmp_path):
    path = tmp_path / 'state.json'
    for values in (
            None, {}, {'state': {}, 'known': 5}, {'state': {'engaged': 0}, 'known': []},
            {'state': {'engaged': False, 'other': 1}, 'known': []},
            {'state': {'stamp': -1}, 'known': []}, {'state': {'stamp': 1 << 80}, 'known': []},
            {'state': {}, 'known': [['/viewer', 1.5]]}, {'state': {}, 'known': [5]}, '',
            '[' * 100_000):
        path.write_text(values if isinstance(values, str) else json.dumps(values))
        stop = EmergencyStop(path, 100)
        assert stop.state.engaged, str(values)[:60]
        assert 'state.json cannot be read' in stop.state.reason
        assert not stop.release(0, '/viewer', '', 110)
        assert stop.release(100, '/viewer', '', 120)
        stop.save()
        assert not EmergencyStop(path, 200).state.engaged
    for make in (os.mkfifo, os.mkdir, lambda path: path.symlink_to('missing')):
        make(other := tmp_path / f'{make.__name__}.json')
        assert EmergencyStop(other, 100).state.engaged, 'and it does not wait'
    assert EmergencyStop(other / 'vdl_ros' / 'state.json', 100).state.engaged, 'no disk is there'
    assert not EmergencyStop(tmp_path / 'new' / 'state.json', 100).state.engaged


def test_state_file_that_cannot_be_written_counts_as_engaged_at_each_start(start, monkeypatch):
    stop = start(0)
    stop.stop(1, '/viewer', '', 100)
    stop.release(100, '/viewer', '', 200)
    stop.save()

    def refuse(path):
        raise OSError(errno.EROFS, 'Read-only file system', str(path))

    monkeypatch.setattr(driver, 'atomic_file', refuse)
    for now in (300, 400):
        stop = start(now)
        assert (stop.state.engaged, stop.state.stamp) == (True, now)
        assert 'state.json cannot be written: OSError' in stop.state.reason
        assert stop.release(now, '/viewer', '', now + 1)


@pytest.mark.parametrize('released', [False, True])
def test_a_stop_that_a_full_disk_does_not_take_is_not_forgotten(start, released):
    stop = start(0)
    if released:
        stop.stop(5, '/viewer', '', 100)
        stop.release(100, '/viewer', '', 110)
        stop.save()
    limits = getrlimit(RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    stop.stop(6, '/viewer', '', 200)
    try:
        setrlimit(RLIMIT_FSIZE, (0, limits[1]))
        with pytest.raises(OSError, match='state.json'):
            stop.save()
    finally:
        setrlimit(RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert start(300).state.engaged
