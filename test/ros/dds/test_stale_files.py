"""What killed nodes leave: the next one gets other ports, removes their segments and no others."""

import contextlib
import fcntl
import os
import re
import secrets
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from processes import until

from vdl_ros.msg import Policy
from vdl_ros.nodes import recorder
from vdl_ros.ros import qos
from vdl_ros.ros.dds import shared_memory
from vdl_ros.ros.dds.shared_memory import (
    clean_stale_shared_memory,
    first_port,
    reserved,
    stale_ports,
    stale_shared_memory,
)


def make_root(folder, names, mapped):
    """Make a file system with these files, the last one newest, some mapped by a process."""
    (folder / 'dev/shm').mkdir(parents=True)
    (folder / 'proc/7').mkdir(parents=True)
    for age, name in enumerate(names):
        (folder / 'dev/shm' / name).write_text('x' * 100)
        os.utime(folder / 'dev/shm' / name, (1e9 + age, 1e9 + age))
    (folder / 'proc/7/maps').write_text(''.join(
        f'7f00-7f01 rw-s 00000000 00:19 5  /dev/shm/{name}\n' for name in mapped))
    return folder


@pytest.fixture
def root(tmp_path):
    """Return a file system with ports of two domains, all but one of them mapped."""
    names = ('fastrtps_port7409', 'fastrtps_port7411', 'fastdds_port7413', 'fastrtps_port7415',
             'fastrtps_port7417', 'fastrtps_port7661', 'fastrtps_port7000', 'fastrtps_0a',
             'sem.fastrtps_port7419_mutex', 'other', 'fastrtps_port7411_el',
             'fastrtps_port7415_el')
    return make_root(tmp_path, names, [name for name in names if name != 'fastrtps_port7417'])


def test_a_stale_port_is_mapped_and_not_locked(root):
    for domain, port in (('', 7410), ('3', 8160), ('-1', None), ('lab', None)):
        assert first_port({'ROS_DOMAIN_ID': domain}) == port, domain
    assert stale_ports(7410, root) == [7415, 7413, 7411]
    assert stale_ports(7660, root) == [7661]
    handle = os.open(root / 'dev/shm/fastrtps_port7415_el', os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert stale_ports(7410, root) == [7413, 7411]
    os.close(handle)
    # A new lock file may belong to a process that has not locked it yet.
    (root / 'dev/shm/fastrtps_port7415_el').touch()
    assert stale_ports(7410, root) == [7413, 7411]
    assert stale_ports(7910, root) == []
    assert stale_ports(7410, root / 'nothing') == []


def test_concurrent_lock_tests_do_not_count_as_readers(root, monkeypatch):
    flock, found = fcntl.flock, []

    def look_meanwhile(handle, how):
        flock(handle, how)
        monkeypatch.setattr(fcntl, 'flock', flock)
        found.append(stale_ports(7410, root))

    monkeypatch.setattr(fcntl, 'flock', look_meanwhile)
    assert stale_ports(7410, root) == [7415, 7413, 7411]
    assert found == [[7415, 7413, 7411]]


def test_at_most_the_newest_stale_ports_are_returned(tmp_path):
    names = [f'fastrtps_port{7440 + 2 * number}' for number in range(40)]
    assert stale_ports(7410, make_root(tmp_path, names, names)) == [
        7440 + 2 * number for number in range(39, 23, -1)]


def free(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        try:
            taken.bind(('', port))
        except OSError:
            return False
        return True


def test_several_nodes_can_reserve_a_port_and_release_it(root):
    environ = {'ROS_DOMAIN_ID': '0'}
    ports = (7410, 7411, 7412, 7413, 7414, 7415)
    was = [free(port) for port in ports]
    with reserved(environ, root), reserved(environ, root):
        assert not any(map(free, ports))
    assert [free(port) for port in ports] == was
    with reserved({'ROS_DOMAIN_ID': 'lab'}, root):
        assert [free(port) for port in ports] == was


def test_only_old_unused_files_are_stale_and_removed(tmp_path):
    segment = {'fastrtps_0a', 'fastrtps_0a_el'}
    port = {'fastdds_port7411', 'fastdds_port7411_el', 'sem.fastdds_port7411_mutex'}
    kept = {'fastrtps_0b', 'fastrtps_0b_el', 'other_program', 'sem.other'}
    root = make_root(tmp_path, segment | port | kept, ['fastrtps_0b'])
    assert not list(stale_shared_memory(root, 1e9)), 'they are new'

    def stale(**options):
        return {path.name for path in stale_shared_memory(root, **options)}

    assert stale() == segment | port
    assert stale(ports=False) == segment
    # A locked file protects its group.
    handle = os.open(root / 'dev/shm/fastdds_port7411_el', os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert stale() == segment
    os.close(handle)
    assert clean_stale_shared_memory(root) == (5, 500)
    assert {path.name for path in (root / 'dev/shm').iterdir()} == kept


NODE = """
import rclpy
from vdl_ros.msg import Policy
from vdl_ros.ros import qos
from vdl_ros.ros.process import run_node

def make():
    node = rclpy.create_node('listener')
    node.create_subscription(
        Policy, 'policy', lambda message: print('received', flush=True), qos.LATCHED)
    return node

run_node('listener', make, lambda node, stop: rclpy.spin(node), (), [])
"""


@pytest.fixture
def start(monkeypatch):
    """Return a function that starts a node, and returns when it has received the policy."""
    monkeypatch.setenv('VDL_TRANSPORT', 'shm')
    with contextlib.ExitStack() as processes:
        def start_node():
            process = processes.enter_context(subprocess.Popen(
                [sys.executable, '-c', NODE], stdout=subprocess.PIPE, text=True))
            processes.callback(process.kill)
            assert process.stdout.readline() == 'received\n'
            return process
        yield start_node


@pytest.mark.process
def test_a_node_that_replaces_a_killed_one_has_other_ports_and_receives_at_once(start, make_node):
    first = first_port()

    def ports():
        found = set()
        for path in Path('/', shared_memory.FOLDER).glob('*_port*_el'):
            port = int(path.name.removesuffix('_el').rpartition('port')[2])
            if first <= port < first + 240 and shared_memory.is_locked(path):
                found.add(port)
        return found

    policy = make_node().create_publisher(Policy, '/policy', qos.LATCHED)
    policy.publish(Policy(version=7))
    here = ports()
    killed = start()
    its_ports = ports() - here
    killed.kill()
    killed.wait()
    until(lambda: ports() == here, 'its end')
    until(lambda: set(stale_ports(first)) == its_ports, 'its dead port')
    start()
    other_ports = ports() - here
    assert len(its_ports) == len(other_ports) == 1
    assert its_ports != other_ports


def test_the_next_node_removes_segments_of_a_dead_one_and_none_in_use(make_node, run_here):
    def mapped():
        maps = Path('/proc/self/maps').read_text()
        return set(re.findall(r'/dev/shm/fastrtps_[0-9a-f]{16}', maps))

    # Only those of this node: this process may hold mappings of deleted segments of other tests.
    before = mapped()
    node = make_node()
    in_use = mapped() - before
    assert in_use
    # What a killed process leaves has such a name, and nobody has it mapped.
    dead = Path(f'/dev/shm/fastrtps_{secrets.token_hex(8)}')
    left = {str(dead), f'{dead}_el'}
    for path in left:
        Path(path).touch()
    for path in left | in_use:
        with contextlib.suppress(FileNotFoundError):  # another node has removed it
            os.utime(path, (0, 0))
    # Every node does, also one that then rejects a parameter.
    assert run_here(recorder.main, 'no_such_parameter:=1')[0] == 2
    assert not [path for path in left if os.path.exists(path)]
    assert all(os.path.exists(path) for path in in_use)
    node.destroy_node()
