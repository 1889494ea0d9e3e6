"""Requests to the emergency stop: what engages, what releases, what a restart keeps."""

import itertools

import pytest

from vdl_ros.arm.driver.emergency_stop import EmergencyStop, StopState


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a driver's emergency stop, with the same file each time."""
    return lambda now: EmergencyStop(tmp_path / 'new' / 'state.json', now)


def test_release_counts_only_if_it_is_newer_than_every_stop(start):
    stop = start(0)
    assert stop.request(True, 100, 110) == 'engaged'
    assert stop.request(True, 200, 210) == ''
    for stamp in (0, 99, 150, 199, 210):
        assert stop.request(False, stamp, 300) == 'stale'
        assert stop.state.engaged
    assert stop.request(False, 211, 300) == 'released'
    assert stop.state == StopState(False, 300)
    assert stop.request(False, 400, 410) == ''


@pytest.mark.parametrize('order', list(itertools.permutations(range(3))))
def test_requests_from_before_the_start_engage_in_any_order(start, order):
    # Releases that were published before the driver received the stop.
    requests = [(False, 50), (True, 60), (False, 70)]
    stop = start(100)
    for index in order:
        stop.request(*requests[index], 110)
    assert stop.state.engaged


@pytest.mark.parametrize('released', [False, True])
def test_state_survives_a_restart(start, released):
    stop = start(0)
    stop.request(True, 100, 110)
    if released:
        assert stop.request(False, 200, 210) == 'released'
    stop.explain('/viewer', 'a button')
    stop.save()
    again = start(300)
    assert again.state == StopState(not released, 210 if released else 110, '/viewer', 'a button')
    # Publishers repeat what they said last, in any order.
    for engage, stamp in ((True, 100), (False, 90), (True, 100)):
        again.request(engage, stamp, 310)
        assert again.state.engaged == (not released)
    assert again.request(True, 320, 330) == ('engaged' if released else '')
    assert again.request(False, 325, 340) == 'stale'


@pytest.mark.parametrize('text', [
    '', '[', '[' * 100_000, 'null', '{}', '{"state": {}, "received": "1", "known": []}',
    '{"state": {"engaged": 0}, "received": 1, "known": []}',
    '{"state": {"engaged": false, "other": 1}, "received": 1, "known": []}',
    '{"state": {"engaged": false}, "received": 1, "known": 5}'])
def test_state_file_that_cannot_be_read_counts_as_engaged(start, tmp_path, text):
    (tmp_path / 'new').mkdir()
    (tmp_path / 'new' / 'state.json').write_text(text)
    stop = start(100)
    assert stop.state.engaged
    assert 'state.json cannot be read' in stop.state.reason
    assert stop.request(False, 100, 110) == 'stale'
    assert stop.request(False, 101, 120) == 'released'
    stop.save()
    assert not start(200).state.engaged


def test_clock_that_was_set_back_does_not_hold_the_stop_for_long(start):
    stop = start(0)
    stop.request(True, 1000, 1000)
    stop.save()
    assert start(500).request(False, 501, 502) == 'released'
    # Without a restart the second release counts.
    assert stop.request(False, 501, 502) == 'stale'
    assert stop.request(False, 503, 504) == 'released'
