"""
How tests share the machine: most run side by side, those that measure time run alone.

``make test`` starts several workers (pytest-xdist). A test marked ``alone``, or that asks for the
fixture ``took``, waits until no other test runs and keeps others from starting. The tests of a
file stay together, because they may share a graph; files that start processes come first, so
that none of them is left when all other workers are done.
"""

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path

import pytest

# Their tests start processes and wait for them.
PROCESS_FOLDERS = ('launch', 'nodes', 'tools', 'benchmarks', 'bootstrap', 'setup')


def pytest_configure(config):
    config.addinivalue_line('markers', 'alone: measures time; no other test runs meanwhile')
    config.addinivalue_line('markers', 'process: starts processes; not in make test-fast')


def folder_of(item):
    return Path(item.location[0]).parts[1:2][0]


def pytest_collection_modifyitems(items):
    for item in items:
        if 'took' in item.fixturenames:
            item.add_marker('alone')
        if folder_of(item) in PROCESS_FOLDERS or {'launch', 'took'} & set(item.fixturenames):
            item.add_marker('process')
        group = item.location[0] + '-alone' * is_alone(item)
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: (
        is_alone(item), *(folder_of(item) != each for each in PROCESS_FOLDERS)))


def is_alone(item):
    return item.get_closest_marker('alone') is not None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Wait for this test's turn, outside of its time limit."""
    with turn(is_alone(item)):
        return (yield)


@contextlib.contextmanager
def turn(alone):
    """Hold the machine: together with other tests, or alone."""
    folder = Path(tempfile.gettempdir()) / f'vdl_ros-tests-{os.getuid()}'
    folder.mkdir(exist_ok=True)
    with (folder / 'door').open('w') as door, (folder / 'machine').open('w') as machine:
        # Who waits for the machine holds the door: so no other test comes before.
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(machine, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        try:
            yield
        finally:
            # A process that was forked meanwhile would hold it on.
            fcntl.flock(machine, fcntl.LOCK_UN)
