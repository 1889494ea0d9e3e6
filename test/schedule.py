"""Schedule of tests: most run in parallel, those that measure time run alone.

``make test`` starts several workers (pytest-xdist). A test with the mark ``alone`` or the fixture
``took`` waits until no other test runs and keeps others from starting. The tests of a file run in
one worker, because they may share a graph. Files that start processes run first, because they
take longest.
"""

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path

import pytest

# Folders of tests that start processes, and fixtures of tests that do, or that wait for DDS.
PROCESS_FOLDERS = ('launch', 'nodes', 'tools', 'bootstrap')
PROCESS_FIXTURES = {'launch', 'make_node', 'node', 'peer', 'run_here', 'took'}


def pytest_configure(config):
    config.addinivalue_line('markers', 'alone: measures time; no other test runs at the same time')
    config.addinivalue_line(
        'markers', 'process: starts processes, or waits for DDS; not in make test-fast')
    config.addinivalue_line('markers', 'slow: only in make test-all')


def folder_of(item):
    return (*Path(item.location[0]).parts, '')[1]


def pytest_collection_modifyitems(items):
    for item in items:
        if 'took' in item.fixturenames:
            item.add_marker('alone')
        if folder_of(item) in PROCESS_FOLDERS or PROCESS_FIXTURES & set(item.fixturenames):
            item.add_marker('process')
        group = item.location[0] + '-alone' * is_alone(item)
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: (
        is_alone(item), *(folder_of(item) != each for each in PROCESS_FOLDERS)))


def is_alone(item):
    return item.get_closest_marker('alone') is not None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Wait for the turn of this test before its time limit starts."""
    with turn(is_alone(item)):
        return (yield)


@contextlib.contextmanager
def turn(alone):
    """Lock the machine, shared with other tests or alone."""
    folder = Path(tempfile.gettempdir()) / f'vdl_ros-tests-{os.getuid()}'
    folder.mkdir(exist_ok=True)
    with (folder / 'door').open('w') as door, (folder / 'machine').open('w') as machine:
        # A test that waits for the machine holds the door, so no later test passes it.
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(machine, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        try:
            yield
        finally:
            # Closing is not enough: a process forked meanwhile would keep the lock.
            fcntl.flock(machine, fcntl.LOCK_UN)
