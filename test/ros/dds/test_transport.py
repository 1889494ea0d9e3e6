"""Choice of the transport on simulated machines; messages between real processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import textwrap
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from vdl_ros.ros.dds import transport
from vdl_ros.ros.dds.transport import Host, TransportChoice, choose, configure, render

pytestmark = pytest.mark.process

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


@pytest.mark.parametrize(('environ', 'far'), [
    ({}, True),
    ({'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET'}, True),
    ({'ROS_AUTOMATIC_DISCOVERY_RANGE': 'nonsense'}, True),
    (HERE, False),
    ({'ROS_AUTOMATIC_DISCOVERY_RANGE': 'localhost'}, False),
    ({'ROS_AUTOMATIC_DISCOVERY_RANGE': 'OFF'}, False),
    ({'ROS_LOCALHOST_ONLY': '1'}, False),
    ({**HERE, 'ROS_STATIC_PEERS': '127.0.0.1;localhost'}, False),
    ({**HERE, 'ROS_STATIC_PEERS': '192.168.1.7'}, True),
    ({**HERE, 'ROS_DISCOVERY_SERVER': '127.0.0.1:11811'}, False),
    ({**HERE, 'ROS_DISCOVERY_SERVER': '192.168.1.7:11811'}, True),
])
def test_reaches_other_hosts_by_environment(environ, far):
    assert transport.reaches_other_hosts(environ) is far


def test_one_host_uses_shared_memory_and_large_datagrams():
    choice = choose(HERE, BIG)
    assert (choice.name, choice.segment_bytes) == ('shm', 64 << 20)
    assert choice.datagram_bytes == transport.LARGE_DATAGRAM
    assert choice.warnings == ()


def test_several_hosts_use_datagrams_that_fit_one_frame():
    choice = choose({}, BIG)
    assert choice.name == 'udp'
    assert choice.datagram_bytes + transport.UDP_HEADERS < 1500


def test_buffers_do_not_exceed_the_kernels_limits():
    choice = choose(HERE, Host(rmem_max=212992, wmem_max=300000, shm_free=8 << 30))
    assert (choice.receive_bytes, choice.send_bytes) == (212992, 300000)
    assert 'net.core.rmem_max is 212992' in ' '.join(choice.warnings)


def test_unknown_or_tiny_limits_keep_the_systems_default():
    assert choose(HERE, Host(shm_free=8 << 30)).send_bytes == 0
    assert choose(HERE, Host(4096, 4096, 8 << 30)).receive_bytes == 0


def test_little_free_shared_memory_gives_a_small_segment():
    choice = choose(HERE, Host(16 << 20, 16 << 20, 64 << 20))
    assert (choice.name, choice.segment_bytes) == ('shm', 4 << 20)
    assert choice.warnings


@pytest.mark.parametrize('free', [None, 0, 31 << 20])
def test_without_shared_memory_udp_is_used(free):
    choice = choose(HERE, Host(16 << 20, 16 << 20, free))
    assert choice.name == 'udp'
    assert choice.warnings


def test_requested_shared_memory_warns_if_other_hosts_are_reachable():
    choice = choose({'VDL_TRANSPORT': 'shm'}, BIG)
    assert choice.name == 'shm'
    assert 'IP fragments' in choice.warnings[0]


@pytest.mark.parametrize(('environ', 'name'), [
    ({'VDL_TRANSPORT': 'udp', **HERE}, 'udp'),
    ({'VDL_TRANSPORT': '', **HERE}, 'shm'),
    ({'VDL_TRANSPORT': 'default'}, 'default'),
    ({'RMW_IMPLEMENTATION': 'rmw_cyclonedds_cpp'}, 'user'),
    ({'RMW_IMPLEMENTATION': 'rmw_fastrtps_cpp'}, 'udp'),
    ({'FASTDDS_BUILTIN_TRANSPORTS': 'UDPv4'}, 'user'),
    ({'FASTRTPS_DEFAULT_PROFILES_FILE': 'mine.xml'}, 'user'),
    ({'FASTDDS_DEFAULT_PROFILES_FILE': 'mine.xml'}, 'user'),
])
def test_a_configuration_of_the_user_is_not_changed(environ, name, runtime):
    before = {**environ, **runtime}
    after = dict(before)
    choice = configure(after, BIG)
    assert choice.name == name
    if name in ('user', 'default'):
        assert after == before
        assert choice.environment == {}


def test_an_unknown_transport_is_an_error_of_one_line():
    with pytest.raises(ValueError, match=r"^VDL_TRANSPORT is 'tcp'; allowed: .*$") as error:
        configure({'VDL_TRANSPORT': 'tcp'}, BIG)
    assert '\n' not in str(error.value)


def test_a_second_configure_and_a_child_process_agree(runtime):
    environ = {**HERE, **runtime}
    first = configure(environ, BIG)
    assert configure(environ, BIG) == first  # as in a child process
    path = Path(environ['FASTRTPS_DEFAULT_PROFILES_FILE'])
    assert path.is_file()
    assert list(path.parent.iterdir()) == [path]
    environ['VDL_TRANSPORT'] = 'default'
    configure(environ, BIG)
    assert 'FASTRTPS_DEFAULT_PROFILES_FILE' not in environ


def test_an_unwritable_runtime_folder_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(transport.tempfile, 'gettempdir', lambda: str(tmp_path))
    environ = {**HERE, 'XDG_RUNTIME_DIR': str(tmp_path / 'absent')}
    configure(environ, BIG)
    folder = Path(environ['FASTRTPS_DEFAULT_PROFILES_FILE']).parent
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(('layer', 'variable', 'tag'), [
    ('8.4.3', 'FASTRTPS_DEFAULT_PROFILES_FILE', 'heartbeatPeriod'),
    ('9.3.3', 'FASTDDS_DEFAULT_PROFILES_FILE', 'heartbeat_period'),
])
def test_the_profile_has_the_tags_of_the_fastdds_version(layer, variable, tag, runtime, tmp_path):
    share = tmp_path / 'share/rmw_fastrtps_cpp'
    share.mkdir(parents=True)
    (share / 'package.xml').write_text(f'<package><version>{layer}</version></package>')
    environ = {'AMENT_PREFIX_PATH': str(tmp_path), **HERE, **runtime}
    choice = configure(environ, BIG)
    assert list(choice.environment) == [variable]
    assert tag in values(Path(environ[variable]).read_text())


def test_the_profile_contains_the_choice():
    choice = TransportChoice('shm', '', 1 << 20, 70000, 80000, 1344)
    found = values(render(choice, TEMPLATE.read_text()))
    assert found['segment_size'] == [str(1 << 20)]
    assert (found['sendBufferSize'], found['receiveBufferSize']) == (['70000'], ['80000'])
    assert found['value'] == ['1344']
    assert found['type'] == ['SHM', 'UDPv4']
    found = values(render(TransportChoice('udp', ''), TEMPLATE.read_text()))
    assert found['type'] == ['UDPv4']
    assert found['transport_id'] == ['vdl_udp', 'vdl_udp']


@pytest.mark.parametrize(('environ', 'addresses'), [
    (HERE, ['127.0.0.1']), ({'VDL_TRANSPORT': 'udp', **HERE}, ['127.0.0.1']), ({}, []),
    ({**HERE, 'ROS_STATIC_PEERS': '192.168.1.7'}, [])])
def test_the_profile_allows_only_loopback_if_discovery_is_local(environ, addresses):
    found = values(render(choose(environ, BIG), TEMPLATE.read_text()))
    assert found.get('address', []) == addresses
    assert ('interfaceWhiteList' in found) == bool(addresses)


def test_the_lease_is_shorter_than_the_health_check():
    found = values(render(choose(HERE, BIG), TEMPLATE.read_text()))
    lease_s, _announcement_s = (int(each) for each in found['sec'][:2])
    check_ms, = (int(each) for each in found['healthy_check_timeout_ms'])
    assert check_ms > lease_s * 1000 > 1000


def test_tags_have_no_namespace_prefix():
    assert 'ns0:' not in render(choose({}, BIG), TEMPLATE.read_text())


def test_limits_are_read_from_the_kernel(tmp_path):
    core = tmp_path / 'proc/sys/net/core'
    core.mkdir(parents=True)
    (core / 'rmem_max').write_text('212992\n')
    host = Host.read(tmp_path)
    assert (host.rmem_max, host.wmem_max, host.shm_free) == (212992, None, None)


NODE = textwrap.dedent("""
    from vdl_ros.ros.dds import transport
    transport.configure()
    import rclpy
    rclpy.init()
    rclpy.create_node('a')
    print('a result')
""")


def test_errors_of_fastdds_do_not_end_up_between_results():
    """As where a command writes JSON, and another process holds a port of shared memory."""
    port = 7400 + 250 * int(os.environ['ROS_DOMAIN_ID'])
    with contextlib.ExitStack() as held:
        for each in range(port, port + 100):
            path = Path(f'/dev/shm/fastrtps_port{each}_el')
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(held.enter_context(path.open('w')), fcntl.LOCK_EX | fcntl.LOCK_NB)
                held.callback(path.unlink, missing_ok=True)
        done = subprocess.run([sys.executable, '-c', NODE], env={**os.environ, **HERE},
                              capture_output=True, text=True, check=True)
    assert done.stdout == 'a result\n'
    assert 'RTPS_TRANSPORT_SHM' in done.stderr


PEER = textwrap.dedent("""
    import array, sys, time
    from vdl_ros.ros.dds import transport
    transport.configure()
    import rclpy
    from rclpy.experimental import EventsExecutor
    from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
    from std_msgs.msg import UInt8MultiArray

    role, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    latched = count == 1
    rclpy.init()
    node = rclpy.create_node(role)
    executor = EventsExecutor()
    executor.add_node(node)
    reliable, kept = ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL
    qos = QoSProfile(depth=1 if latched else 10, reliability=reliable)
    if latched:
        qos.durability = kept
    # Latched for the writer: the two directions are discovered one after the other.
    keep = QoSProfile(depth=50, reliability=reliable, durability=kept)
    credit, received = set(), []

    def until(condition, seconds=60.0):
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end:
            executor.spin_once(timeout_sec=0.05)
        return condition()

    if role == 'writer':
        publisher = node.create_publisher(UInt8MultiArray, 'data', qos)
        node.create_subscription(UInt8MultiArray, 'credit', lambda m: credit.add(m.data[0]), keep)
        message = UInt8MultiArray()
        message.data = array.array('B', bytes(size))
        if not latched:
            assert until(lambda: publisher.get_subscription_count() and
                         node.count_publishers('credit')), 'no subscriber'
        for number in range(count):
            message.data[0] = number
            publisher.publish(message)
            print('sent', number, flush=True)
            assert latched or until(lambda: number < 2 or number - 2 in credit), 'no credit'
        # A writer that has exited cannot resend.
        assert latched or until(lambda: count - 1 in credit), 'the last messages were not received'
        if latched:
            sys.stdin.read()
    else:
        answers = node.create_publisher(UInt8MultiArray, 'credit', keep)

        def receive(message):
            received.append((message.data[0], len(message.data)))
            answers.publish(UInt8MultiArray(data=[message.data[0]]))

        node.create_subscription(UInt8MultiArray, 'data', receive, qos)
        until(lambda: len(received) >= count)
        assert received == [(number, size) for number in range(count)], (
            len(received), received[-3:])
        if not latched:
            until(lambda: node.count_publishers('data') == 0, 5.0)
        print('complete', flush=True)
""")


def start(role: str, size: int, count: int, environ: dict[str, str] | None = None):
    return subprocess.Popen(
        [sys.executable, '-c', PEER, role, str(size), str(count)], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, **(environ or {})})


def finish(process: subprocess.Popen) -> str:
    try:
        output, errors = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        errors += '\ntimed out'
    assert process.returncode == 0, errors
    return output


@pytest.mark.timeout(150)
@pytest.mark.parametrize('wish', ['shm', 'udp'])
def test_large_reliable_messages_all_arrive_in_order(wish, monkeypatch):
    monkeypatch.setenv('VDL_TRANSPORT', wish)
    writer, reader = start('writer', 2_700_000, 50), start('reader', 2_700_000, 50)
    try:
        assert 'complete' in finish(reader)
        assert finish(writer).count('sent') == 50
    finally:
        for process in (writer, reader):
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.mark.timeout(150)
@pytest.mark.parametrize('other', [
    {'VDL_TRANSPORT': 'default'}, {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET'}],
    ids=lambda environ: ' '.join(environ.values()))
@pytest.mark.parametrize('swap', [False, True], ids=['to', 'from'])
def test_a_node_on_loopback_and_one_with_other_settings_exchange_messages(other, swap):
    sides = [HERE | {'VDL_TRANSPORT': 'udp'}, HERE | other]
    writer, reader = (
        start(role, 60_000, 20, environ)
        for role, environ in zip(('writer', 'reader'), sides[::-1 if swap else 1], strict=True))
    try:
        assert 'complete' in finish(reader)
        assert finish(writer).count('sent') == 20
    finally:
        for process in (writer, reader):
            if process.poll() is None:
                process.kill()
                process.wait()


def udp_sockets(pid: int) -> dict[tuple[str, int], int]:
    """Return address and port of a process's UDP sockets, with the bytes that wait in each."""
    inodes = set()
    for link in Path(f'/proc/{pid}/fd').iterdir():
        # A descriptor may be closed meanwhile.
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(link))
    found = {}
    for line in Path(f'/proc/{pid}/net/udp').read_text().splitlines()[1:]:
        words = line.split()
        if f'socket:[{words[9]}]' in inodes:
            address, port = words[1].split(':')
            host = socket.inet_ntoa(bytes.fromhex(address)[::-1])
            found[host, int(port, 16)] = int(words[4].partition(':')[2], 16)
    return found


@pytest.mark.timeout(150)
@pytest.mark.parametrize('wish', ['shm', 'udp'])
def test_a_node_reads_only_the_loopback_sockets_if_discovery_is_local(wish):
    node = start('writer', 10, 1, HERE | {'VDL_TRANSPORT': wish})
    try:
        assert node.stdout.readline() == 'sent 0\n'
        sockets = udp_sockets(node.pid)
        # Fast DDS also has sockets to send from, on ports that the kernel chooses.
        free = int(Path('/proc/sys/net/ipv4/ip_local_port_range').read_text().split()[0])
        read = [(host, port) for host, port in sockets if port < free]
        assert {host for host, _ in read} == {'127.0.0.1'}
        others = [(host, port) for host, port in sockets if host != '127.0.0.1']
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for host, port in [*others, *read]:
                sender.sendto(b'hello', (host.replace('0.0.0.0', '127.0.0.1'), port))
        end = time.monotonic() + 30.0
        while any(udp_sockets(node.pid)[place] for place in read):
            assert time.monotonic() < end, udp_sockets(node.pid)
            time.sleep(0.05)
        waiting = udp_sockets(node.pid)
        assert all(waiting[place] for place in others), 'what is sent to them is not read'
        finish(node)
    finally:
        if node.poll() is None:
            node.kill()
            node.wait()


@pytest.mark.timeout(150)
@pytest.mark.parametrize('wish', ['shm', 'udp'])
def test_a_late_subscriber_gets_the_latched_message(wish, monkeypatch):
    monkeypatch.setenv('VDL_TRANSPORT', wish)
    writer = start('writer', 7_000_000, 1)
    try:
        assert writer.stdout.readline() == 'sent 0\n'  # sent without a subscriber
        readers = [start('reader', 7_000_000, 1) for _ in range(2)]
        for reader in readers:
            assert 'complete' in finish(reader)
        finish(writer)
    finally:
        if writer.poll() is None:
            writer.kill()
            writer.wait()
