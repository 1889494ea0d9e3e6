"""A starting node removes segments of dead processes and keeps those in use."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vdl_ros.nodes import recorder
from vdl_ros.ros.dds.stale_shared_memory import clean_stale_shared_memory, stale_shared_memory

LATER = 4e9  # seconds since 1970, long after any file of a test
NODE = """
import sys
import rclpy
from vdl_ros.ros.dds import transport
transport.configure()
rclpy.init()
node = rclpy.create_node('some_node')
print('up', flush=True)
sys.stdin.read()
rclpy.shutdown()
"""


@pytest.fixture
def leftovers(tmp_path):
    """Return a fake file system: two segments, one mapped by process 7, a port, other files."""
    names = ('fastrtps_0a', 'fastrtps_0a_el', 'fastrtps_0b', 'fastrtps_0b_el',
             'fastdds_port7411', 'fastdds_port7411_el', 'sem.fastdds_port7411_mutex',
             'other_program', 'sem.other')
    for folder in ('dev/shm', 'proc/7'):
        (tmp_path / folder).mkdir(parents=True)
    for name in names:
        (tmp_path / 'dev/shm' / name).write_text('x' * 100)
    (tmp_path / 'proc/7/maps').write_text(
        '7f00-7f01 rw-s 00000000 00:19 5  /dev/shm/fastrtps_0b\n')
    return tmp_path


def test_only_unused_files_are_stale(leftovers):
    names = {path.name for path in stale_shared_memory(leftovers, LATER)}
    assert names == {'fastrtps_0a', 'fastrtps_0a_el', 'fastdds_port7411', 'fastdds_port7411_el',
                     'sem.fastdds_port7411_mutex'}


def test_a_locked_file_protects_its_group(leftovers):
    handle = os.open(leftovers / 'dev/shm/fastdds_port7411_el', os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    names = {path.name for path in stale_shared_memory(leftovers, LATER)}
    os.close(handle)
    assert names == {'fastrtps_0a', 'fastrtps_0a_el'}


def test_ports_are_only_included_on_request(leftovers):
    names = {path.name for path in stale_shared_memory(leftovers, LATER, ports=False)}
    assert names == {'fastrtps_0a', 'fastrtps_0a_el'}


def test_new_files_are_kept(leftovers):
    assert not list(stale_shared_memory(leftovers))


def test_clean_removes_files_and_returns_their_number_and_size(leftovers):
    assert clean_stale_shared_memory(leftovers, LATER) == (5, 500)
    left = {path.name for path in (leftovers / 'dev/shm').iterdir()}
    assert left == {'fastrtps_0b', 'fastrtps_0b_el', 'other_program', 'sem.other'}


@pytest.fixture
def start_node(monkeypatch):
    """Return a function that starts a node; it returns the process and its segment files."""
    monkeypatch.setenv('VDL_TRANSPORT', 'shm')
    with contextlib.ExitStack() as processes:
        def start():
            process = processes.enter_context(subprocess.Popen(
                [sys.executable, '-c', NODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                text=True))
            processes.callback(process.kill)
            assert process.stdout.readline() == 'up\n'
            mapped = Path(f'/proc/{process.pid}/maps').read_text()
            return process, set(re.findall(r'/dev/shm/fastrtps_[0-9a-f]{16}', mapped))
        yield start


@pytest.mark.process
def test_the_next_node_removes_segments_of_a_killed_one(start_node, run_here):
    killed, left = start_node()
    killed.kill()
    killed.wait()
    assert left
    living, in_use = start_node()
    for path in left | in_use:
        age(path)
    # Every node does, also one that then rejects a parameter.
    assert run_here(recorder.main, 'no_such_parameter:=1')[0] == 2
    assert not [path for path in left if os.path.exists(path)]
    assert in_use
    assert all(os.path.exists(path) for path in in_use)
    living.communicate(timeout=60)


def age(path):
    """Set an old modification time on a segment and its lock."""
    for each in (path, f'{path}_el'):
        with contextlib.suppress(FileNotFoundError):  # another node has removed it
            os.utime(each, (0, 0))
