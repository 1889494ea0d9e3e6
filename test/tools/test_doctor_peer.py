"""``doctor --peer`` between two network namespaces: a good link, and each broken one."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys

import pytest
from two_hosts import on, run_on

DOCTOR = (sys.executable, '-m', 'vdl_ros.tools.doctor')
# A doctor whose clock is 50 ms ahead.
FAST_CLOCK = (sys.executable, '-c', """
import sys, time
from vdl_ros.tools import doctor
true = time.time_ns
time.time_ns = lambda: true() + 50_000_000
sys.exit(doctor.main())
""")


@pytest.fixture
def check(launch, monkeypatch):
    """Return a function that runs both doctors: exit status and findings by name."""
    monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'SUBNET')

    def run(hosts, address='10.91.7.2', there=None, here=None, command=DOCTOR):
        answering = launch(*on(hosts[1], *command, '--answer'),
                           env=dict(os.environ) | (there or {}))
        answering.wait_for(lambda: 'answering' in answering.output, 'the doctor that answers')
        result = subprocess.run(
            on(hosts[0], *DOCTOR, '--json', '--peer', address), capture_output=True, text=True,
            timeout=500, check=False, env=dict(os.environ) | (here or {}))
        answering.wait_for(lambda: 'is done' in answering.output, 'the end of the session')
        answering.interrupt()
        assert answering.wait() == 0, answering.output
        assert 'Traceback' not in answering.output
        assert result.stdout, result.stderr
        findings = {each['name']: each for each in json.loads(result.stdout)['findings']}
        return result.returncode, findings

    return run


def not_ok(findings) -> dict[str, str]:
    return {name: each['status'] for name, each in findings.items() if each['status'] != 'ok'}


def test_all_is_well_between_two_hosts_on_a_good_link(hosts, check):
    status, findings = check(hosts)
    assert not_ok(findings) == {}, findings
    assert status == 0
    assert list(findings) == ['peer', 'domain', 'discovery', 'settings', 'unicast', 'multicast',
                              'path MTU', 'IP fragments', 'clock offset', 'TCP', 'DDS']
    assert findings['path MTU']['figures'] == {'packet_bytes': 1500}
    offset = findings['clock offset']['figures']  # one machine has one clock
    assert abs(offset['offset_s']) <= offset['uncertainty_s'] + 1e-6
    assert min(findings['TCP']['figures'].values()) > 0
    assert min(findings['DDS']['figures'].values()) > 0


def test_packets_that_are_too_large_for_the_link(hosts, check):
    # A device on the way drops them without a word: a path MTU black hole.
    run_on(hosts[1], 'ip', 'link', 'set', 'link-10.91.7', 'mtu', '1300')
    status, findings = check(hosts)
    assert status == 1
    assert not_ok(findings) == {'path MTU': 'fail', 'IP fragments': 'warn', 'DDS': 'fail'}
    assert 'more than 1280 bytes do not arrive at 10.91.7.2' in findings['path MTU']['finding']
    # Which message is the first that is too large depends on what discovery sends.
    assert 'did not come back' in findings['DDS']['finding']


def test_fragments_that_are_dropped(hosts, check):
    for name in ('ipfrag_low_thresh', 'ipfrag_high_thresh'):
        run_on(hosts[1], 'sh', '-c', f'echo 0 > /proc/sys/net/ipv4/{name}')
    large = {'VDL_TRANSPORT': 'shm'}
    status, findings = check(hosts, there=large, here=large)
    assert status == 1
    assert not_ok(findings) == {'IP fragments': 'fail', 'DDS': 'fail'}
    assert findings['IP fragments']['finding'].endswith('do not arrive at 10.91.7.2')
    assert findings['IP fragments']['advice'] == 'export VDL_TRANSPORT=auto on both'


def test_a_firewall_that_drops_the_ports_of_dds(hosts, check, ros_domain):
    first = 7400 + 250 * ros_domain
    ports = f'ipproto udp dport {first}-{first + 249}'
    for words in (f'add pref 1 iif link-10.91.7 {ports} blackhole', 'add pref 10 lookup local',
                  'del pref 0'):
        run_on(hosts[1], 'ip', 'rule', *words.split())
    status, findings = check(hosts)
    assert status == 1
    assert not_ok(findings) == {'unicast': 'fail', 'path MTU': 'warn', 'IP fragments': 'warn',
                                'DDS': 'fail'}
    assert findings['unicast']['finding'] == 'UDP datagrams do not arrive at 10.91.7.2'
    assert f'open the UDP ports {first} to {first + 249} of 10.91.7.2' in \
        findings['unicast']['advice']


def test_hosts_with_different_domains(hosts, check, ros_domain):
    status, findings = check(hosts, there={'ROS_DOMAIN_ID': str(ros_domain + 101)})
    assert status == 1
    assert not_ok(findings) == {'domain': 'fail', 'multicast': 'warn', 'DDS': 'fail'}


@pytest.mark.parametrize('peers', [False, True])
def test_multicast_that_does_not_arrive_needs_static_peers(routed_hosts, check, peers):
    here, there = ({'ROS_STATIC_PEERS': address} if peers else None
                   for address in ('10.91.8.1', '10.91.7.1'))
    status, findings = check(routed_hosts, '10.91.8.1', there, here)
    assert not_ok(findings) == ({} if peers else {'multicast': 'warn', 'DDS': 'fail'}), findings
    assert status == (0 if peers else 1)


def test_a_clock_that_is_50_ms_ahead(hosts, check):
    status, findings = check(hosts, command=FAST_CLOCK)
    assert status == 0
    assert not_ok(findings) == {'clock offset': 'warn'}
    figures = findings['clock offset']['figures']
    assert abs(figures['offset_s'] - 0.05) <= figures['uncertainty_s'] + 1e-6


def test_nobody_answers(hosts):
    def ask(host):
        return subprocess.run(on(hosts[0], *DOCTOR, '--peer', host), capture_output=True,
                              text=True, timeout=500, check=False)

    silent = ask('10.91.7.2')
    assert silent.returncode == 1
    assert silent.stdout == (
        'fail peer  10.91.7.2 is up, but no doctor answers at port 7399'
        ' -> on 10.91.7.2: ros2 run vdl_ros doctor --answer\n')
    unknown = ask('no-such-host.invalid')
    assert unknown.returncode == 1
    assert 'no-such-host.invalid has no IPv4 address' in unknown.stdout


def test_only_the_named_host_is_answered(hosts, launch):
    answering = launch(*on(hosts[1], *DOCTOR, '--answer', '10.91.7.9'))
    answering.wait_for(lambda: 'answering 10.91.7.9 at 10.91.7.2' in answering.output, 'its start')
    result = subprocess.run(on(hosts[0], *DOCTOR, '--peer', '10.91.7.2'), capture_output=True,
                            text=True, timeout=500, check=False)
    assert result.returncode == 1
    assert 'the checks ended early' in result.stdout
    assert 'refused 10.91.7.1' in answering.output


def frame(data: bytes) -> bytes:
    return struct.pack('!I', len(data)) + data


HELLO = frame(json.dumps({'request': 'hello', 'token': 'a' * 32}).encode())


@pytest.mark.parametrize(('option', 'domain', 'line'), [
    ('--peer', 'lab', "ROS_DOMAIN_ID is lab; allowed: a whole number from 0 to 232"),
    ('--answer', '233', "ROS_DOMAIN_ID is 233; allowed: a whole number from 0 to 232"),
    ('--answer', '1', 'no-such-host.invalid: ')])
def test_input_that_cannot_be_used_is_one_line(option, domain, line):
    result = subprocess.run(
        [*DOCTOR, option, 'no-such-host.invalid'], capture_output=True, text=True, timeout=500,
        check=False, env=dict(os.environ) | {'ROS_DOMAIN_ID': domain})
    assert result.returncode == 2
    assert result.stderr.startswith(f'doctor: {line}')
    assert result.stderr.count('\n') == 1


@pytest.mark.parametrize(('sent', 'line'), [
    (b'\xff' * 8, 'a message of 4294967295 bytes; at most 16384 are allowed'),
    (frame(b'[' * 16000), "no JSON: b'[[["),
    (frame(b'[]'), "no JSON object: b'[]'"),
    (frame(b'{"request": 1}'), 'request is 1; allowed: at most 20 characters'),
    (frame(b'{"request": "\\u001b[2J"}'), "no such request: '\\x1b[2J'"),
    (frame(b'{"request": "echo"}'), 'no such request: echo'),
    (frame(b'{"request": "hello", "token": "x"}'), 'the token is not allowed'),
    (HELLO + frame(b'{"request": "give", "bytes": 1e12}'), 'bytes is 1000000000000.0; allowed:'),
    (HELLO + frame(b'{"request": "give", "bytes": true}'), 'bytes is True; allowed:'),
    (HELLO + frame(b'{"request": "open"}') + frame(
        b'{"request": "datagrams", "discovery": 53, "data": 53}'), 'discovery is 53; allowed:'),
    (HELLO, 'the other doctor closed the connection'),
])
def test_bad_requests_are_one_line_and_the_next_asker_is_answered(answering, sent, line):
    process, port = answering
    with socket.create_connection(('127.0.0.1', port)) as connection:
        connection.sendall(sent)
        # The other side may have refused what it has read, and reset the connection, by now.
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass
    process.wait_for(lambda: line in process.output, 'the line')
    with socket.create_connection(('127.0.0.1', port)) as connection:
        connection.sendall(HELLO + frame(b'{"request": "goodbye"}'))
        length, = struct.unpack('!I', connection.recv(4, socket.MSG_WAITALL))
        assert 'settings' in json.loads(connection.recv(length, socket.MSG_WAITALL))
    process.interrupt()
    assert process.wait() == 0
    assert 'Traceback' not in process.output


@pytest.fixture
def answering(launch):
    """Return a doctor that answers this host, and its port."""
    while True:
        with socket.create_server(('127.0.0.1', 0)) as free:
            port = free.getsockname()[1]
        process = launch(*DOCTOR, '--answer', '127.0.0.1', '--port', str(port))
        process.wait_for(lambda process=process: 'answering' in process.output
                         or process.process.poll() is not None, 'its start')
        if process.process.poll() is None:
            return process, port
        # Another process has taken the port meanwhile.
        assert f'TCP port {port}' in process.output, process.output
