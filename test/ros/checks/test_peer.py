"""What the doctor finds between two hosts: the offset of their clocks, and their settings."""

import random

import pytest

from vdl_ros.ros.checks.machine import System
from vdl_ros.ros.checks.peer import (
    Exchange,
    check_ranges,
    check_settings,
    estimate_offset,
    read_settings,
)

ADDRESSES = '10.0.0.1', '10.0.0.2'


def exchanges(offset, there, back, count=200, queue=0, seed=0):
    """Return exchanges with a peer; the ways take at least ``there`` and ``back``, all in ns."""
    chance, now, found = random.Random(seed), 10 ** 18, []
    for _ in range(count):
        arrival = now + there + int(queue * chance.random() ** 4)
        departure = arrival + 20_000
        end = departure + back + int(queue * chance.random() ** 4)
        found.append(Exchange(now, arrival + offset, departure + offset, end))
        now = end + 1_000_000
    return found


def test_the_error_is_within_the_uncertainty_despite_queues():
    # It is exact if both ways take as long.
    assert estimate_offset(exchanges(-3_600_000_000_000, 100_000, 100_000)) == (
        pytest.approx(-3600.0, abs=1e-9), pytest.approx(100e-6))
    for seed in range(5):
        for there, back in ((100_000, 100_000), (10_000, 2_000_000)):
            found, uncertainty = estimate_offset(
                exchanges(12_000_000, there, back, queue=20_000_000, seed=seed))
            assert abs(found - 0.012) <= uncertainty, (seed, there, back)
            # The queues of 10 ms on average are filtered out.
            assert uncertainty < (there + back) / 2e9 + 1e-3, (seed, there, back)


@pytest.fixture(scope='module')
def here():
    return read_settings(System(environ={'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET'}))


def test_the_setting_with_the_worst_difference_is_named(here):
    for name, value, status in (
            ('messages', '0', 'fail'), ('SROS2', 'on', 'fail'),
            ('middleware', 'rmw_other 1', 'fail'), ('middleware', 'rmw_fastrtps_cpp 0', 'warn'),
            ('vdl_ros', '9.9.9', 'warn'), ('ROS', 'kilted', 'warn'), ('transport', 'shm', 'ok'),
            ('Python', 'CPython 3.9', 'ok'), ('vdl_ros', '\x1b[2J', 'warn')):
        ours = here | ({'middleware': 'rmw_fastrtps_cpp 8.4'} if name == 'middleware' else {})
        found = check_settings(ours, ours | {name: value})
        assert found.status == status, (name, value)
        assert found.finding.startswith(f'{name} ')
        assert found.finding.isprintable()
    assert check_settings(here, here | {'messages': '0', 'ROS': 'x'}).status == 'fail'


def test_both_ranges_must_include_the_other_host_and_loopback_be_up(here):
    for scope, peers, status in (
            ('SUBNET', '', 'ok'), ('LOCALHOST', '', 'fail'), ('OFF', '10.0.0.1', 'fail'),
            ('LOCALHOST', '10.0.0.1', 'ok')):
        there = here | {'range': scope, 'static peers': peers}
        assert check_ranges(here, there, ADDRESSES).status == status, scope
        assert check_ranges(there, here, ADDRESSES).status == status, scope
    for ours, theirs, where in (
            ('down', 'up', 'here'), ('up', 'down', 'there'), ('down', 'down', 'here and there')):
        found = check_ranges(here | {'loop-back': ours}, here | {'loop-back': theirs}, ADDRESSES)
        assert (found.status, found.finding) == (
            'fail', f'the loop-back interface lo is down {where}: DDS does not start')
