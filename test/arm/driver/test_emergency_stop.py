"""Requests to the emergency stop: what engages, what releases, what a restart keeps."""

import itertools
import json

import pytest

from vdl_ros.arm.driver.emergency_stop import EmergencyStop, StopState


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
    assert stop.state.stamp == 1001
    stop.save()
    again = start(10)
    assert again.release(1001, '', '', 20)
    assert again.state.stamp == 1002


@pytest.mark.parametrize('order', list(itertools.permutations(range(3))))
def test_requests_from_before_the_start_engage_in_any_order(start, order):
    stop = start(100)
    requests = [lambda: stop.release(50, '/a', '', 110), lambda: stop.stop(60, '/b', '', 110),
                lambda: stop.release(100, '/c', '', 110)]
    for index in order:
        requests[index]()
    assert stop.state.engaged


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


def test_stop_without_a_stamp_engages_each_time(start):
    stop = start(0)
    for now in (100, 200):
        assert stop.stop(0, '', 'typed', now)
        assert stop.release(now, '', '', now + 1)


def test_sender_and_reason_are_single_lines_of_bounded_length(start):
    stop = start(0)
    stop.stop(1, '\x1b[2J' + 'x' * 10_000, 'one\ntwo', 100)
    assert len(stop.state.sender) <= 200
    assert stop.state.sender.isprintable()
    assert stop.state.reason == "'one\\ntwo'"
    assert len(str(stop.state)) < 250


@pytest.mark.parametrize('values', [
    None, {}, {'state': {}, 'known': 5}, {'state': {'engaged': 0}, 'known': []},
    {'state': {'engaged': False, 'other': 1}, 'known': []},
    {'state': {'stamp': -1}, 'known': []}, {'state': {'stamp': 1 << 80}, 'known': []},
    {'state': {}, 'known': [['/viewer', 1.5]]}, {'state': {}, 'known': [5]}, '', '[' * 100_000])
def test_state_file_that_cannot_be_read_counts_as_engaged(start, tmp_path, values):
    (tmp_path / 'new').mkdir()
    (tmp_path / 'new' / 'state.json').write_text(
        values if isinstance(values, str) else json.dumps(values))
    stop = start(100)
    assert stop.state.engaged
    assert 'state.json cannot be read' in stop.state.reason
    assert not stop.release(0, '/viewer', '', 110)
    assert stop.release(100, '/viewer', '', 120)
    stop.save()
    assert not start(200).state.engaged
