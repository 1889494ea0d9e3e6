"""The doctor: its process, its functions, and two hosts with a good link and broken ones."""

import contextlib
import json
import os
import socket
import subprocess
import sys

import pytest
from two_hosts import on, run_on

from vdl_ros.tools import doctor


@pytest.mark.slow
@pytest.mark.parametrize('transport_name', ['shm', 'udp'])
def test_messages_between_two_processes_are_measured(transport_name):
    result = subprocess.run(
        [sys.executable, '-m', 'vdl_ros.tools.doctor', '--json', '--ros-args', '-r', 'a:=b'],
        capture_output=True, text=True, timeout=500, check=False,
        env={**os.environ, 'VDL_TRANSPORT': transport_name})
    answer = json.loads(result.stdout)
    assert result.returncode == 0, result.stdout + result.stderr
    assert answer['ok'] is True
    loopback = next(item for item in answer['findings'] if item['name'] == 'loop-back')
    assert len(loopback['figures']) == 4
    assert min(loopback['figures'].values()) > 0
    transport = next(item for item in answer['findings'] if item['name'] == 'transport')
    assert transport['finding'].startswith(transport_name)


def test_a_failed_check_gives_exit_status_1(monkeypatch, capsys):
    monkeypatch.setenv('VDL_TRANSPORT', 'pigeon')
    assert doctor.main([]) == 1
    output, error = capsys.readouterr()
    assert error == "doctor: VDL_TRANSPORT is 'pigeon'; allowed: auto, shm, udp, default\n"
    assert 'fail transport' in output
    assert '\033' not in output


def test_clean_prints_what_was_removed(monkeypatch, capsys):
    monkeypatch.setattr(doctor, 'clean_stale_shared_memory', lambda: (3, 64 << 20))
    monkeypatch.setattr(doctor.checks, 'CHECKS', ())
    monkeypatch.setattr(doctor.transport, 'configure', lambda: None)  # keep os.environ
    assert doctor.main(['--clean']) == 0
    assert capsys.readouterr().out.startswith('removed 3 files of dead processes, 64 MiB')


DOCTOR = (sys.executable, '-m', 'vdl_ros.tools.doctor')
# A doctor whose clock is 50 ms ahead.
FAST_CLOCK = (sys.executable, '-c', """
import sys, time
from vdl_ros.tools import doctor
true = time.time_ns
time.time_ns = lambda: true() + 50_000_000
sys.exit(doctor.main())
""")


class Doctors:
    """A doctor that answers on the second host, and those that ask it from the first."""

    def __init__(self, launch, hosts, address='10.91.7.2', *options, command=DOCTOR, **there):
        self._hosts, self._address = hosts, address
        self.answering = launch(
            *on(hosts[1], *command, '--answer', *options), env={**os.environ, **there})
        self.answering.wait_for(lambda: 'answering' in self.answering.output, 'its start')

    def once(self, *options, **here):
        return subprocess.run(
            on(self._hosts[0], *DOCTOR, *options, '--peer', self._address), capture_output=True,
            text=True, timeout=500, check=False, env={**os.environ, **here})

    def ask(self, status, expected, **here):
        """Return the findings, which must not be ok where ``expected``; at most 3 attempts."""
        for _ in range(3):
            result = self.once('--json', **here)
            assert result.stdout, result.stderr
            findings = {each['name']: each for each in json.loads(result.stdout)['findings']}
            not_ok = {name: each['status'] for name, each in findings.items()
                      if each['status'] != 'ok'}
            # A machine that stood still meanwhile loses packets too.
            if not_ok == expected:
                break
        assert not_ok == expected, findings
        assert result.returncode == status
        return findings

    def end(self):
        self.answering.wait_for(lambda: 'is done' in self.answering.output, 'the last session')
        self.answering.stop()
        assert 'Traceback' not in self.answering.output


@pytest.fixture
def doctors(launch, monkeypatch):
    monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'SUBNET')
    return lambda *options, **more: Doctors(launch, *options, **more)


@pytest.mark.slow
def test_a_good_link_a_narrow_one_and_a_firewall(hosts, doctors, ros_domain):
    both = doctors(hosts)
    findings = both.ask(0, {})
    assert list(findings) == ['peer', 'domain', 'discovery', 'settings', 'unicast', 'multicast',
                              'path MTU', 'IP fragments', 'clock offset', 'TCP', 'DDS']
    assert findings['path MTU']['figures'] == {'packet_bytes': 1500}
    offset = findings['clock offset']['figures']  # one machine has one clock
    assert abs(offset['offset_s']) <= offset['uncertainty_s'] + 1e-6
    assert min(findings['TCP']['figures'].values()) > 0
    assert min(findings['DDS']['figures'].values()) > 0
    # A device on the way drops large packets without a word: a path MTU black hole.
    run_on(hosts[1], 'ip', 'link', 'set', 'link-10.91.7', 'mtu', '1300')
    findings = both.ask(1, {'path MTU': 'fail', 'IP fragments': 'warn', 'DDS': 'fail'})
    assert 'more than 1280 bytes do not arrive at 10.91.7.2' in findings['path MTU']['finding']
    # Which message is the first that is too large depends on what discovery sends.
    assert 'did not come back' in findings['DDS']['finding']
    run_on(hosts[1], 'ip', 'link', 'set', 'link-10.91.7', 'mtu', '1500')
    # A firewall drops the ports of DDS.
    first = 7400 + 250 * ros_domain
    ports = f'ipproto udp dport {first}-{first + 249}'
    for words in (f'add pref 1 iif link-10.91.7 {ports} blackhole', 'add pref 10 lookup local',
                  'del pref 0'):
        run_on(hosts[1], 'ip', 'rule', *words.split())
    findings = both.ask(1, {'unicast': 'fail', 'path MTU': 'warn', 'IP fragments': 'warn',
                            'DDS': 'fail'})
    assert findings['unicast']['finding'] == 'UDP datagrams do not arrive at 10.91.7.2'
    assert f'open the UDP ports {first} to {first + 249} of 10.91.7.2' in \
        findings['unicast']['advice']
    both.end()


@pytest.mark.slow
def test_lost_fragments_another_domain_and_a_clock_that_is_50_ms_ahead(hosts, doctors, ros_domain):
    for name in ('ipfrag_low_thresh', 'ipfrag_high_thresh'):
        run_on(hosts[1], 'sh', '-c', f'echo 0 > /proc/sys/net/ipv4/{name}')
    both = doctors(hosts, command=FAST_CLOCK, VDL_TRANSPORT='shm',
                   ROS_DOMAIN_ID=str(ros_domain + 101))
    findings = both.ask(1, {'domain': 'fail', 'multicast': 'warn', 'clock offset': 'warn',
                            'IP fragments': 'fail', 'DDS': 'fail'}, VDL_TRANSPORT='shm')
    assert findings['IP fragments']['finding'].endswith('do not arrive at 10.91.7.2')
    assert findings['IP fragments']['advice'] == 'export VDL_TRANSPORT=auto on both'
    figures = findings['clock offset']['figures']
    assert abs(figures['offset_s'] - 0.05) <= figures['uncertainty_s'] + 1e-6
    both.end()


@pytest.mark.slow
def test_multicast_that_does_not_arrive_needs_static_peers(routed_hosts, doctors):
    both = doctors(routed_hosts, '10.91.8.1')
    both.ask(1, {'multicast': 'warn', 'DDS': 'fail'})
    both.end()
    both = doctors(routed_hosts, '10.91.8.1', ROS_STATIC_PEERS='10.91.7.1')
    both.ask(0, {}, ROS_STATIC_PEERS='10.91.8.1')
    both.end()


@pytest.mark.slow
def test_nobody_answers_or_only_another_host_is_answered(hosts, doctors):
    both = doctors(hosts, '10.91.7.2', '10.91.7.9')
    refused = both.once()
    assert refused.returncode == 1
    assert 'the checks ended early' in refused.stdout
    assert 'refused 10.91.7.1' in both.answering.output
    both.answering.interrupt()
    both.answering.wait()
    silent = both.once()
    assert silent.returncode == 1
    assert silent.stdout == (
        'fail peer  10.91.7.2 is up, but no doctor answers at port 7399'
        ' -> on 10.91.7.2: ros2 run vdl_ros doctor --answer\n')


def test_input_that_cannot_be_used_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(doctor.transport, 'configure', lambda: None)  # keep os.environ
    for option, domain, line in (
            ('--peer', 'lab', 'ROS_DOMAIN_ID is lab; allowed: a whole number from 0 to 231'),
            ('--answer', '233', 'ROS_DOMAIN_ID is 233; allowed: a whole number from 0 to 231'),
            ('--answer', '1', 'no-such-host.invalid: ')):
        monkeypatch.setenv('ROS_DOMAIN_ID', domain)
        assert doctor.main([option, 'no-such-host.invalid']) == 2, line
        error = capsys.readouterr().err
        assert error.startswith(f'doctor: {line}')
        assert error.count('\n') == 1, line
    monkeypatch.setenv('ROS_DOMAIN_ID', '1')
    assert doctor.main(['--peer', 'no-such-host.invalid']) == 1
    assert 'no-such-host.invalid has no IPv4 address' in capsys.readouterr().out


HELLO = {'request': 'hello', 'token': 'a' * 32, 'ports': {'discovery': 7410, 'data': 7411}}
BAD_REQUESTS = [
    (b'\xff' * 20000, 'JSON is malformed'),
    (b'{"request": "\\u001b[2J"}\n', "Invalid enum value '"),
    (b'{"request": "hello", "ports": {"discovery": 53, "data": 53}}\n',
     'Expected `int` >= 1024 - at `$.ports.discovery`'),
]


def test_bad_requests_are_one_line_each_and_the_next_asker_is_answered(answering):
    process, port = answering
    for sent, line in BAD_REQUESTS:
        with socket.create_connection(('127.0.0.1', port)) as connection:
            connection.sendall(sent)
            # The other side may have refused what it has read, and reset the connection, by now.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass
        process.wait_for(lambda line=line: line in process.output, line)
    assert '\x1b' not in process.output
    with socket.create_connection(('127.0.0.1', port)) as connection, \
            connection.makefile('rwb') as stream:
        for request in ({'request': 'arrived'}, HELLO):
            stream.write(json.dumps(request).encode() + b'\n')
        stream.flush()
        assert json.loads(stream.readline()) == {'error': 'arrived before hello'}
        assert 'domain' in json.loads(stream.readline())['settings']
    process.stop()
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
