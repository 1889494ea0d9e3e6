"""Choice of the transport on simulated machines; messages between real processes."""

import contextlib
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import psutil
import pytest

from vdl_ros.ros.dds import transport
from vdl_ros.ros.dds.transport import Host, TransportChoice, choose, configure, render

BIG = Host(rmem_max=16 << 20, wmem_max=16 << 20, shm_free=8 << 30)
HERE = {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST'}
TEMPLATE = Path(__file__).parents[3] / 'config/dds/fastdds.xml.in'


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    monkeypatch.setenv('XDG_RUNTIME_DIR', str(tmp_path))
    return {'XDG_RUNTIME_DIR': str(tmp_path)}


def values(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for element in ElementTree.fromstring(text).iter():
        found.setdefault(element.tag.rpartition('}')[2], []).append((element.text or '').strip())
    return found


def test_reaches_other_hosts_by_environment():
    for environ, far in (
            ({}, True), ({'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET'}, True),
            ({'ROS_AUTOMATIC_DISCOVERY_RANGE': 'nonsense'}, True), (HERE, False),
            ({'ROS_AUTOMATIC_DISCOVERY_RANGE': 'localhost'}, False),
            ({'ROS_AUTOMATIC_DISCOVERY_RANGE': 'OFF'}, False),
            ({'ROS_LOCALHOST_ONLY': '1'}, False),
            ({**HERE, 'ROS_STATIC_PEERS': '127.0.0.1;localhost'}, False),
            ({**HERE, 'ROS_STATIC_PEERS': '192.168.1.7'}, True),
            ({**HERE, 'ROS_DISCOVERY_SERVER': '127.0.0.1:11811'}, False),
            ({**HERE, 'ROS_DISCOVERY_SERVER': '192.168.1.7:11811'}, True)):
        assert transport.reaches_other_hosts(environ) is far, environ


def test_one_host_uses_shared_memory_and_several_datagrams_that_fit_one_frame():
    choice = choose(HERE, BIG)
    assert (choice.name, choice.segment_bytes) == ('shm', transport.SEGMENT)
    assert choice.datagram_bytes == transport.LARGE_DATAGRAM
    assert choice.warnings == ()
    choice = choose({}, BIG)
    assert choice.name == 'udp'
    assert choice.datagram_bytes + transport.UDP_HEADERS < 1500
    choice = choose({'VDL_TRANSPORT': 'shm'}, BIG)
    assert choice.name == 'shm'
    assert 'IP fragments' in choice.warnings[0], 'other hosts are reachable'


def test_buffers_and_segments_do_not_exceed_what_the_kernel_has(tmp_path):
    choice = choose(HERE, Host(rmem_max=212992, wmem_max=300000, shm_free=8 << 30))
    assert (choice.receive_bytes, choice.send_bytes) == (212992, 300000)
    assert 'net.core.rmem_max is 212992' in ' '.join(choice.warnings)
    # Unknown or tiny limits keep the system's default.
    assert choose(HERE, Host(shm_free=8 << 30)).send_bytes == 0
    assert choose(HERE, Host(4096, 4096, 8 << 30)).receive_bytes == 0
    choice = choose(HERE, Host(16 << 20, 16 << 20, 64 << 20))
    assert (choice.name, choice.segment_bytes) == ('shm', 4 << 20)
    assert choice.warnings
    for free in (None, 0, 31 << 20):
        choice = choose(HERE, Host(16 << 20, 16 << 20, free))
        assert choice.name == 'udp', free
        assert choice.warnings, free
    core = tmp_path / 'proc/sys/net/core'
    core.mkdir(parents=True)
    (core / 'rmem_max').write_text('212992\n')
    host = Host.read(tmp_path)
    assert (host.rmem_max, host.wmem_max, host.shm_free) == (212992, None, None)


def test_a_configuration_of_the_user_is_not_changed(runtime):
    for environ, name in (
            ({'VDL_TRANSPORT': 'udp', **HERE}, 'udp'), ({'VDL_TRANSPORT': '', **HERE}, 'shm'),
            ({'VDL_TRANSPORT': 'default'}, 'default'),
            ({'RMW_IMPLEMENTATION': 'rmw_cyclonedds_cpp'}, 'user'),
            ({'RMW_IMPLEMENTATION': 'rmw_fastrtps_cpp'}, 'udp'),
            ({'FASTDDS_BUILTIN_TRANSPORTS': 'UDPv4'}, 'user'),
            ({'FASTRTPS_DEFAULT_PROFILES_FILE': 'mine.xml'}, 'user'),
            ({'FASTDDS_DEFAULT_PROFILES_FILE': 'mine.xml'}, 'user')):
        before = {**environ, **runtime}
        after = dict(before)
        choice = configure(after, BIG)
        assert choice.name == name, environ
        if name in ('user', 'default'):
            assert after == before
            assert choice.environment == {}
    with pytest.raises(ValueError, match=r"^VDL_TRANSPORT is 'tcp'; allowed: [^\n]*$"):
        configure({'VDL_TRANSPORT': 'tcp'}, BIG)


def test_a_second_configure_and_a_child_process_agree(runtime, tmp_path, monkeypatch):
    environ = {**HERE, **runtime}
    first = configure(environ, BIG)
    assert configure(environ, BIG) == first  # as in a child process
    path = Path(environ['FASTRTPS_DEFAULT_PROFILES_FILE'])
    assert path.is_file()
    assert list(path.parent.iterdir()) == [path]
    environ['VDL_TRANSPORT'] = 'default'
    configure(environ, BIG)
    assert 'FASTRTPS_DEFAULT_PROFILES_FILE' not in environ
    # An unwritable folder is replaced.
    monkeypatch.setattr(transport.tempfile, 'gettempdir', lambda: str(tmp_path))
    environ = {**HERE, 'XDG_RUNTIME_DIR': str(tmp_path / 'absent')}
    configure(environ, BIG)
    folder = Path(environ['FASTRTPS_DEFAULT_PROFILES_FILE']).parent
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o077 == 0


def test_the_profile_has_the_tags_of_the_fastdds_version(runtime, tmp_path):
    manifest = tmp_path / 'share/rmw_fastrtps_cpp/package.xml'
    manifest.parent.mkdir(parents=True)
    for layer, variable, tag in (
            ('8.4.3', 'FASTRTPS_DEFAULT_PROFILES_FILE', 'heartbeatPeriod'),
            ('9.3.3', 'FASTDDS_DEFAULT_PROFILES_FILE', 'heartbeat_period')):
        manifest.write_text(f'<package><version>{layer}</version></package>')
        environ = {'AMENT_PREFIX_PATH': str(tmp_path), **HERE, **runtime}
        assert list(configure(environ, BIG).environment) == [variable]
        assert tag in values(Path(environ[variable]).read_text())


def test_the_profile_contains_the_choice():
    choice = TransportChoice('shm', '', 1 << 20, 70000, 80000, 1344)
    found = values(render(choice, TEMPLATE.read_text()))
    assert found['segment_size'] == [str(1 << 20)]
    assert (found['sendBufferSize'], found['receiveBufferSize']) == (['70000'], ['80000'])
    assert (found['value'], found['type']) == (['1344'], ['SHM', 'UDPv4'])
    assert found['class'] == ['StdoutErrConsumer'], 'errors are not printed between results'
    found = values(render(TransportChoice('udp', ''), TEMPLATE.read_text()))
    assert (found['type'], found['transport_id']) == (['UDPv4'], ['vdl_udp', 'vdl_udp'])


def test_the_profile_allows_only_loopback_if_discovery_is_local():
    for environ, addresses in (
            ({}, []), ({**HERE, 'ROS_STATIC_PEERS': '192.168.1.7'}, []), (HERE, ['127.0.0.1'])):
        text = render(choose(environ, BIG), TEMPLATE.read_text())
        found = values(text)
        assert found.get('address', []) == addresses, environ
        assert ('interfaceWhiteList' in found) == bool(addresses), environ
        assert 'ns0:' not in text, 'tags have no prefix of a namespace'
    # The lease is shorter than the health check.
    lease_s, _announcement_s = (int(each) for each in found['sec'][:2])
    check_ms, = (int(each) for each in found['healthy_check_timeout_ms'])
    assert check_ms > lease_s * 1000 > 1000


PEER = """
import array, sys
from vdl_ros.ros.dds import transport
transport.configure()
from std_msgs.msg import UInt8MultiArray
from vdl_ros.ros.checks.loopback import Endpoint

role, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
received = []
if role == 'writer':
    peer = Endpoint(role, 'data', 'credit', lambda message: received.append(message.data[0]))
    message = UInt8MultiArray(data=array.array('B', bytes(size)))
    for number in range(count):
        message.data[0] = number
        peer.publisher.publish(message)
        print('published', flush=True)
        assert peer.until(lambda: number in received, 240.0), f'{number} was not received'
else:
    def receive(message):
        received.append((message.data[0], len(message.data)))
        peer.publisher.publish(UInt8MultiArray(data=[message.data[0]]))

    peer = Endpoint(role, 'credit', 'data', receive)
    assert peer.until(lambda: len(received) >= count, 240.0), len(received)
    assert received == [(number, size) for number in range(count)], received[-3:]
    print('complete', flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def running(role, size, count, environ):
    """Start a peer; at the end of the block it must end by itself, without an error."""
    with subprocess.Popen(
            [sys.executable, '-c', PEER, role, str(size), str(count)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, **HERE, **environ}) as process:
        try:
            yield process
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors
        finally:
            process.kill()


def check_sockets(pid):
    """Check that a process receives on the loopback interface only."""
    # Fast DDS also has sockets to send from, on ports that the kernel chooses.
    free = int(Path('/proc/sys/net/ipv4/ip_local_port_range').read_text().split()[0])
    places = [each.laddr for each in psutil.Process(pid).net_connections('udp')]
    assert {host for host, port in places if port < free} == {'127.0.0.1'}


UDP, SHM, DEFAULT = ({'VDL_TRANSPORT': name} for name in ('udp', 'shm', 'default'))
SUBNET = {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET'}


@pytest.mark.process
@pytest.mark.parametrize(('writer', 'reader', 'size', 'count'), [
    (SHM, SHM, 2_700_000, 30), *(pytest.param(*each, marks=pytest.mark.slow) for each in (
        (UDP, UDP, 2_700_000, 50), (UDP, SUBNET, 60_000, 20), (SUBNET, UDP, 60_000, 20),
        (UDP, DEFAULT, 60_000, 20), (DEFAULT, UDP, 60_000, 20)))], ids=[
            'shm', 'udp', 'to-subnet', 'from-subnet', 'to-default', 'from-default'])
def test_messages_arrive_in_order_at_a_late_subscriber_and_by_loopback_only(
        writer, reader, size, count):
    with running('writer', size, count, writer) as sender:
        assert sender.stdout.readline() == 'published\n', sender.communicate()[1]
        if writer in (UDP, SHM):
            check_sockets(sender.pid)
        with running('reader', size, count, reader) as receiver:
            assert receiver.stdout.readline() == 'complete\n', receiver.communicate()[1]
