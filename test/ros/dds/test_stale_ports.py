"""A node that replaces a killed one gets other ports, so it receives messages at once."""

import fcntl
import os
import signal
import socket
from pathlib import Path

import pytest

from vdl_ros.msg import Policy
from vdl_ros.ros import qos
from vdl_ros.ros.dds import shm_files
from vdl_ros.ros.dds.stale_ports import first_port, reserved, stale_ports


@pytest.mark.parametrize(('environ', 'port'), [
    ({}, 7410), ({'ROS_DOMAIN_ID': ''}, 7410), ({'ROS_DOMAIN_ID': '3'}, 8160),
    ({'ROS_DOMAIN_ID': '-1'}, None), ({'ROS_DOMAIN_ID': 'lab'}, None)])
def test_the_first_port_depends_on_the_domain(environ, port):
    assert first_port(environ) == port


@pytest.fixture
def root(tmp_path):
    """Return a fake file system with ports of two domains, all but two of them mapped."""
    folder = tmp_path / 'dev/shm'
    folder.mkdir(parents=True)
    maps = ''
    for age, name in enumerate((
            'fastrtps_port7409', 'fastrtps_port7411', 'fastdds_port7413', 'fastrtps_port7415',
            'fastrtps_port7417', 'fastrtps_port7661', 'fastrtps_port7000', 'fastrtps_0a',
            'sem.fastrtps_port7419_mutex', 'other')):
        (folder / name).touch()
        os.utime(folder / name, (1e9 + age, 1e9 + age))
        if name != 'fastrtps_port7417':
            maps += f'7f00-7f01 rw-s 00000000 00:19 5  /dev/shm/{name}\n'
    for name in ('fastrtps_port7411_el', 'fastrtps_port7415_el'):
        (folder / name).touch()
        os.utime(folder / name, (1e9, 1e9))
    (tmp_path / 'proc/7').mkdir(parents=True)
    (tmp_path / 'proc/7/maps').write_text(maps)
    return tmp_path


def test_a_stale_port_is_mapped_and_not_locked(root):
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


def test_at_most_the_newest_stale_ports_are_returned(root):
    maps = ''
    for number in range(40):
        path = root / f'dev/shm/fastrtps_port{7440 + 2 * number}'
        path.touch()
        os.utime(path, (2e9 + number, 2e9 + number))
        maps += f'7f00-7f01 rw-s 00000000 00:19 5  /dev/shm/{path.name}\n'
    (root / 'proc/7/maps').write_text(maps)
    assert stale_ports(7410, root) == [7440 + 2 * number for number in range(39, 23, -1)]


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


def test_a_node_that_replaces_a_killed_one_uses_other_ports_and_receives(launch, peer):
    first = first_port()

    def ports():
        """Return the ports of this domain that have a reader."""
        found = set()
        for path in Path('/', shm_files.FOLDER).glob('*_port*_el'):
            port = int(path.name.removesuffix('_el').rpartition('port')[2])
            if first <= port < first + 240 and shm_files.is_locked(path):
                found.add(port)
        return found

    here = ports()
    policy = peer.node.create_publisher(Policy, 'policy', qos.LATCHED)
    policy.publish(Policy(config='no settings', learner_id='stranger'))
    taken = []
    for _ in range(2):
        actor = launch('ros2', 'run', 'vdl_ros', 'actor')
        actor.wait_for(lambda actor=actor: 'policy refused' in actor.output, 'the policy')
        taken.append(ports() - here)
        os.killpg(actor.process.pid, signal.SIGKILL)
        actor.wait()
        actor.wait_for(lambda: ports() == here, 'its end')
        actor.wait_for(lambda: set(stale_ports(first)) == set().union(*taken), 'its dead port')
    assert len(taken[0]) == len(taken[1]) == 1
    assert taken[0] != taken[1]
