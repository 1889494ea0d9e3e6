"""The comparison of two hosts' settings."""

import pytest

from vdl_ros.ros.checks.peer.host_settings import (
    NAMES,
    check_ranges,
    check_settings,
    read_settings,
)
from vdl_ros.ros.checks.types import System

ADDRESSES = '10.0.0.1', '10.0.0.2'


@pytest.fixture
def here():
    return read_settings(System(environ={'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET'}))


def test_all_settings_are_sent(here):
    assert tuple(here) == NAMES


@pytest.mark.parametrize(('name', 'value', 'status'), [
    ('messages', '0', 'fail'), ('SROS2', 'on', 'fail'), ('middleware', 'rmw_other 1', 'fail'),
    ('middleware', 'rmw_fastrtps_cpp 0', 'warn'), ('vdl_ros', '9.9.9', 'warn'),
    ('ROS', 'kilted', 'warn'), ('transport', 'shm', 'ok'), ('Python', 'CPython 3.9', 'ok'),
    ('vdl_ros', '\x1b[2J', 'warn')])
def test_a_setting_that_differs_is_named(here, name, value, status):
    if name == 'middleware':
        here[name] = 'rmw_fastrtps_cpp 8.4'
    found = check_settings(here, here | {name: value})
    assert found.status == status
    assert found.finding.startswith(f'{name} ')
    assert found.finding.isprintable()


def test_the_worst_difference_counts(here):
    assert check_settings(here, here | {'messages': '0', 'ROS': 'x'}).status == 'fail'


@pytest.mark.parametrize(('scope', 'peers', 'status'), [
    ('SUBNET', '', 'ok'), ('LOCALHOST', '', 'fail'), ('OFF', '10.0.0.1', 'fail'),
    ('LOCALHOST', '10.0.0.1', 'ok')])
def test_both_ranges_must_include_the_other_host(here, scope, peers, status):
    there = here | {'range': scope, 'static peers': peers}
    assert check_ranges(here, there, ADDRESSES).status == status
    assert check_ranges(there, here, ADDRESSES).status == status


@pytest.mark.parametrize(('ours', 'theirs', 'where'), [
    ('down', 'up', 'here'), ('up', 'down', 'there'), ('down', 'down', 'here and there')])
def test_a_loopback_interface_that_is_down_is_named(here, ours, theirs, where):
    found = check_ranges(here | {'loop-back': ours}, here | {'loop-back': theirs}, ADDRESSES)
    assert (found.status, found.finding) == (
        'fail', f'the loop-back interface lo is down {where}: DDS does not start')
