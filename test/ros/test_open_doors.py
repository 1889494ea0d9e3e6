"""The doctor's checks of what others can reach, on simulated machines and a real port."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vdl_ros.ros.checks import machine, open_doors
from vdl_ros.ros.checks.types import System

HERE = {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST'}
UP, LOOPBACK, DOWN = '0x1003\n', '0x9\n', '0x1002\n'


@pytest.mark.parametrize(('environ', 'interfaces', 'status', 'words'), [
    ({}, {'lo': LOOPBACK, 'eth0': UP}, 'warn', 'every host on eth0 can send to the nodes'),
    ({'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET'}, {'lo': LOOPBACK, 'a': UP, 'b': UP}, 'warn',
     'every host on a, b can'),
    (HERE, {'lo': LOOPBACK, 'eth0': UP}, 'ok', 'stays on this machine'),
    ({**HERE, 'ROS_STATIC_PEERS': '10.0.0.2'}, {'eth0': UP}, 'warn', 'eth0'),
    ({}, {'lo': LOOPBACK, 'eth0': DOWN}, 'ok', 'only the loopback'),
    ({}, {}, 'ok', 'only the loopback'),
    # Flags that cannot be read.
    ({}, {'lo': '', 'eth0': ''}, 'warn', 'every host on eth0 can'),
    ({'ROS_SECURITY_ENABLE': 'true'}, {'eth0': UP}, 'ok', 'with SROS2'),
])
def test_a_network_that_reaches_the_nodes_is_named(tmp_path, environ, interfaces, status, words):
    for name, flags in interfaces.items():
        folder = tmp_path / 'sys/class/net' / name
        folder.mkdir(parents=True)
        (folder / 'flags').write_text(flags)
    found = open_doors.check_network(System(tmp_path, environ))
    assert (found.status, words in found.finding) == (status, True), found
    assert ('LOCALHOST' in found.advice) == (status == 'warn')


@pytest.mark.parametrize(('listening', 'status', 'finding', 'advice'), [
    ([], 'ok', 'no TCP port', ''),
    ([('viewer', '127.0.0.1', 8080), ('learner', '::1', 29400)], 'ok', 'no TCP port', ''),
    ([('viewer', '0.0.0.0', 8080)], 'warn', 'viewer at 0.0.0.0 port 8080', 'host:=127.0.0.1'),
    ([('learner', '10.0.0.5', 29400)], 'warn', 'learner at 10.0.0.5', 'group_address'),
    ([('actor', '::', 5)], 'warn', 'actor at :: port 5', 'close it'),
])
def test_ports_that_others_reach_are_named(tmp_path, listening, status, finding, advice):
    found = open_doors.check_ports(System(tmp_path, {}), listening)
    assert found.status == status
    assert finding in found.finding
    assert advice in found.advice


@pytest.fixture
def listen(tmp_path):
    """Return a function that starts a process with a port; ``path`` is of its program."""
    processes = []

    def start(path, host):
        program = tmp_path / path
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text('import socket, sys\n'
                           f'server = socket.create_server(({host!r}, 0))\n'
                           'print(server.getsockname()[1], flush=True)\n'
                           'sys.stdin.read()\n')
        processes.append(subprocess.Popen(
            [sys.executable, str(program)], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE))
        return int(processes[-1].stdout.readline())

    yield start
    for process in processes:
        process.communicate()


def test_a_real_port_is_found_and_other_programs_are_not(tmp_path, listen):
    port, near, other = (
        listen('install/lib/vdl_ros/viewer', '0.0.0.0'),
        listen('install/lib/vdl_ros/learner', '127.0.0.1'),
        listen('install/lib/other/viewer', '0.0.0.0'))
    found = open_doors.check_ports(System(tmp_path, {}))
    assert found.status == 'warn'
    assert f'viewer at 0.0.0.0 port {port}' in found.finding
    assert f'port {near}' not in found.finding
    assert f'port {other}' not in found.finding


def keystore(folder, mode):
    """Make the keys of a keystore."""
    for name in ('private/ca.key.pem', 'enclaves/vdl_ros/key.pem', 'public/ca.cert.pem'):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('')
        path.chmod(mode if name.endswith('key.pem') else 0o644)
    return str(folder)


@pytest.mark.parametrize(('mode', 'environ', 'status', 'words'), [
    (None, {}, 'ok', 'SROS2 is off'),
    (None, {'ROS_SECURITY_ENABLE': 'true'}, 'warn', "ROS_SECURITY_KEYSTORE= is no folder"),
    (None, {'ROS_SECURITY_ENABLE': 'true', 'ROS_SECURITY_KEYSTORE': '/nowhere'}, 'warn',
     'ROS_SECURITY_KEYSTORE=/nowhere is no folder'),
    (0o600, {'ROS_SECURITY_ENABLE': 'true'}, 'warn', 'nodes without a key run without SROS2'),
    (0o600, {'ROS_SECURITY_ENABLE': 'true', 'ROS_SECURITY_STRATEGY': 'Enforce'}, 'ok', 'keys in'),
    (0o644, {'ROS_SECURITY_ENABLE': 'true', 'ROS_SECURITY_STRATEGY': 'Enforce'}, 'warn',
     '2 private keys'),
    (0o640, {}, 'warn', '2 private keys'),
])
def test_security_settings_and_modes_of_keys(tmp_path, mode, environ, status, words):
    environ = {'ROS_HOME': str(tmp_path / 'home'), **environ}
    if mode is not None:
        environ['ROS_SECURITY_KEYSTORE'] = keystore(tmp_path / 'keys', mode)
    found = open_doors.check_security(System(tmp_path, environ))
    assert (found.status, words in found.finding) == (status, True), found


def test_keys_in_ros_home_are_checked_without_settings(tmp_path):
    keystore(tmp_path / 'keystore', 0o604)
    found = open_doors.check_security(System(tmp_path, {'ROS_HOME': str(tmp_path)}))
    assert found.status == 'warn'
    assert found.advice == f'chmod -R go= {tmp_path}/keystore'


@pytest.mark.parametrize(('mode', 'status'), [(0o660, 'ok'), (0o666, 'warn'), (0o662, 'warn')])
def test_an_arm_that_every_user_can_write_to_is_named(tmp_path, monkeypatch, mode, status):
    monkeypatch.setattr(machine.ctypes.util, 'find_library', lambda name: 'libusb-1.0.so.0')
    device, node = tmp_path / 'sys/bus/usb/devices/1-2', tmp_path / 'dev/bus/usb/001/009'
    for folder in (device, node.parent):
        folder.mkdir(parents=True)
    for name, text in (('idVendor', '1267'), ('idProduct', '0001'), ('busnum', '1'),
                       ('devnum', '9')):
        (device / name).write_text(text)
    node.touch()
    node.chmod(mode)
    found = machine.check_usb(System(tmp_path, {}))
    assert found.status == status
    assert ('every user' in found.finding) == (status == 'warn')
