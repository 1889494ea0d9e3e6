"""Each check of the doctor on a simulated machine, and what others can reach on a real port."""

import importlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import vdl_ros.envs
from vdl_ros.arm.driver.usb import how_to_install
from vdl_ros.ros import checks
from vdl_ros.ros.checks import machine
from vdl_ros.ros.checks.loopback import check_loopback
from vdl_ros.ros.checks.machine import Finding, System, amount

HERE = {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST'}
UP, LOOPBACK, DOWN = '0x1003\n', '0x9\n', '0x1002\n'
USB = 'sys/bus/usb/devices/1-2'
ARM = {f'{USB}/idVendor': '1267\n', f'{USB}/idProduct': '0001\n', f'{USB}/busnum': '1\n',
       f'{USB}/devnum': '9\n'}


def fake(root: Path, files: dict[str, str] | None = None, environ=None):
    for name, text in (files or {}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return System(root, environ or {})


@pytest.fixture(autouse=True)
def libusb(monkeypatch):
    """Find libusb without the processes of ctypes."""
    monkeypatch.setattr(machine.ctypes.util, 'find_library', lambda name: 'libusb-1.0.so.0')


@pytest.fixture
def has(monkeypatch):
    """Return a function: what the machine has that no file tells."""
    def set_parts(free=8 << 30, cores=8, synchronised=True, listening=(), memory=8 << 30):
        space = SimpleNamespace(f_blocks=8 << 30, f_frsize=1, f_bavail=free)
        monkeypatch.setattr(os, 'statvfs', lambda path: space)
        monkeypatch.setattr(os, 'sched_getaffinity', lambda process: range(cores))
        monkeypatch.setattr(machine, '_clock_is_synchronised', lambda: synchronised)
        monkeypatch.setattr(machine, '_listening', lambda: listening)
        monkeypatch.setattr(machine, 'free_memory', lambda: memory)
    return set_parts


RANGE, CORE = 'ROS_AUTOMATIC_DISCOVERY_RANGE', 'proc/sys/net/core'
IPV4, CGROUP = 'proc/sys/net/ipv4', 'sys/fs/cgroup'
# Check, files, environment, what else the machine has, status, words of it.
CASES = [
    *((machine.check_domain, {}, {'ROS_DOMAIN_ID': domain}, {}, status, '')
      for domain, status in (('', 'ok'), ('101', 'ok'), ('231', 'ok'), ('102', 'warn'),
                             ('232', 'fail'), ('-1', 'fail'), ('5x', 'fail'))),
    *((machine.check_discovery, {}, environ, {}, status, '') for environ, status in (
        ({}, 'ok'), (HERE, 'ok'), ({RANGE: 'OFF'}, 'warn'), ({RANGE: 'WORLD'}, 'fail'),
        ({'ROS_LOCALHOST_ONLY': '1'}, 'warn'), ({'ROS_STATIC_PEERS': '127.0.0.1;;'}, 'ok'),
        ({'ROS_STATIC_PEERS': '127.0.0.1;no..host'}, 'fail'),
        ({RANGE: 'SYSTEM_DEFAULT', 'ROS_STATIC_PEERS': 'a'}, 'warn'))),
    # It needs the loopback interface.
    *((machine.check_discovery, {'sys/class/net/lo/flags': flags}, HERE, {}, status, '')
      for flags, status in (('0x9', 'ok'), ('0x8', 'fail'), ('?', 'ok'))),
    *((machine.check_logs, {}, environ, {}, status, words) for environ, status, words in (
        ({'ROS_LOG_DIR': '/tmp'}, 'ok', 'in /tmp'), ({}, 'fail', 'HOME is not set'),
        ({'ROS_HOME': '/proc/none'}, 'fail', '/proc/none/log: No such file'))),
    (machine.check_distribution, {}, {}, {}, 'ok', ''),
    *((machine.check_transport, {}, environ, {'free': free}, status, '')
      for environ, free, status in (
        (HERE, 8 << 30, 'ok'), (HERE, 1 << 20, 'warn'),
        ({'VDL_TRANSPORT': 'default'}, 8 << 30, 'warn'),
        ({'VDL_TRANSPORT': 'pigeon'}, 8 << 30, 'fail'))),
    *((machine.check_sockets, {f'{CORE}/rmem_max': limit, f'{CORE}/wmem_max': limit}, {}, {},
       status, words) for limit, status, words in (
        ('212992', 'warn', 'sysctl'), (str(4 << 20), 'ok', ''))),
    *((machine.check_fragments, {f'{IPV4}/ipfrag_time': seconds,
                                 f'{IPV4}/ipfrag_high_thresh': str(128 << 20)},
       environ, {}, status, '') for environ, seconds, status in (
        ({}, '30', 'ok'), ({'VDL_TRANSPORT': 'shm'}, '30', 'warn'),
        ({'VDL_TRANSPORT': 'shm'}, '3', 'ok'))),
    *((machine.check_cpu, {'proc/cpuinfo': f'model : x\nflags\t\t: fpu {flags}\n'}, {}, {},
       status, words) for flags, status, words in (
        ('avx2 avx512f avx512_bf16', 'ok', 'bfloat16 in hardware: networks train'),
        ('avx2', 'ok', 'no bfloat16'), ('sse2', 'warn', 'no AVX2'))),
    *((machine.check_cores, {f'{CGROUP}/cpu.max': quota, 'proc/loadavg': f'{load} 0 0 1/2 3'},
       {}, {'cores': cores}, status, words) for cores, quota, load, status, words in (
        (8, 'max 100000', 1.0, 'ok', "'cores': 8"), (8, '200000 100000', 0.1, 'ok', "'cores': 2"),
        (8, '150000 100000', 0.1, 'warn', "'cores': 1.5"),
        (4, 'max 100000', 3.5, 'warn', "'cores': 4"))),
    (machine.check_memory, {}, {}, {}, 'ok', '8.0 GiB free'),
    (machine.check_memory, {}, {}, {'memory': 1 << 30}, 'warn', 'training needs 2 GiB or more'),
    *((machine.check_clock, {}, {'ROS_STATIC_PEERS': peers}, {'synchronised': synchronised},
       status, '') for synchronised, peers, status in (
        (True, '', 'ok'), (False, '', 'ok'), (False, '10.0.0.2', 'warn'))),
    (machine.check_libraries, {}, {}, {}, 'ok', 'numpy'),
    # Which networks reach the nodes; flags of interfaces that cannot be read are up.
    *((machine.check_network,
       {f'sys/class/net/{name}/flags': flags for name, flags in interfaces.items()}, environ, {},
       status, words) for environ, interfaces, status, words in (
        ({}, {'lo': LOOPBACK, 'eth0': UP}, 'warn', 'every host on eth0 can send to the nodes'),
        ({RANGE: 'SUBNET'}, {'lo': LOOPBACK, 'a': UP, 'b': UP}, 'warn', 'every host on a, b can'),
        (HERE, {'lo': LOOPBACK, 'eth0': UP}, 'ok', 'stays on this machine'),
        ({**HERE, 'ROS_STATIC_PEERS': '10.0.0.2'}, {'eth0': UP}, 'warn', 'LOCALHOST'),
        ({}, {'lo': LOOPBACK, 'eth0': DOWN}, 'ok', 'only the loopback'),
        ({}, {'lo': '', 'eth0': ''}, 'warn', 'every host on eth0 can'),
        ({'ROS_SECURITY_ENABLE': 'true'}, {'eth0': UP}, 'ok', 'with SROS2'))),
    *((machine.check_ports, {}, {}, {'listening': listening}, status, words)
      for listening, status, words in (
        ([('viewer', '127.0.0.1', 8080), ('learner', '::1', 29400)], 'ok', 'no TCP port'),
        ([('viewer', '0.0.0.0', 8080)], 'warn',
         'viewer at 0.0.0.0 port 8080 start the viewer with view_host:=127.0.0.1, or block'),
        ([('learner', '10.0.0.5', 29400)], 'warn', 'set group_address'),
        ([('actor', '::', 5)], 'warn', 'actor at :: port 5 close it'))),
]


def test_each_check_tells_what_is_wrong_of_a_simulated_machine(tmp_path, has):
    for number, (check, files, environ, parts, status, words) in enumerate(CASES):
        has(**parts)
        found = check(fake(tmp_path / str(number), files, environ))
        assert found.status == status, (check.__name__, files, environ, found)
        assert words in f'{found.finding} {found.advice} {found.figures}', found
    for count, text in ((12, '12 B'), (2048, '2 KiB'), (4 << 20, '4 MiB'), (3 << 29, '1.5 GiB')):
        assert amount(count) == text


def test_middleware(tmp_path):
    manifest = '<package><version>8.4.3</version></package>'
    files = {'share/rmw_fastrtps_cpp/package.xml': manifest,
             'share/rmw_other/package.xml': manifest, 'lib/libfastrtps.so.2.14.5': ''}
    environ = {'AMENT_PREFIX_PATH': str(tmp_path)}
    found = machine.check_middleware(fake(tmp_path, files, environ))
    assert (found.status, found.finding) == ('ok', 'rmw_fastrtps_cpp 8.4.3, Fast DDS 2.14.5')
    for name, status in (('rmw_other', 'warn'), ('rmw_absent', 'fail')):
        environ['RMW_IMPLEMENTATION'] = name
        assert machine.check_middleware(fake(tmp_path, environ=environ)).status == status


def test_missing_files_and_exceptions_are_findings_of_one_line_and_no_errors(tmp_path):
    parts = tuple(check for check in checks.CHECKS
                  if check not in (checks.check_loopback, machine.check_egl))
    for found in checks.run(fake(tmp_path / 'nothing'), parts):
        assert isinstance(found, Finding)
        assert found.status in ('ok', 'warn', 'fail'), found
        assert '\n' not in found.finding + found.advice
        assert 'bug of the check' not in found.advice, found

    def check_that_breaks(system):
        raise KeyError('what')

    assert checks.run(fake(tmp_path), (check_that_breaks,))[0].status == 'fail'


def test_shared_memory(tmp_path, has):
    has()
    system = fake(tmp_path, {f'dev/shm/{name}': 'x' for name in ('fastrtps_0a', 'fastrtps_0a_el')})
    (tmp_path / 'proc').mkdir()
    for path in (tmp_path / 'dev/shm').iterdir():
        os.utime(path, (0, 0))
    found = machine.check_shared_memory(system)
    assert (found.status, found.figures['stale_files']) == ('warn', 2)
    assert '--clean' in found.advice
    assert machine.check_shared_memory(fake(tmp_path / 'a')).status == 'ok'
    has(free=64 << 20)
    assert machine.check_shared_memory(fake(tmp_path / 'a')).status == 'warn'


def test_shared_memory_of_another_user_is_named(tmp_path, has, monkeypatch):
    has()
    system = fake(tmp_path, {'dev/shm/fastrtps_port7411_el': 'x', 'dev/shm/other': 'x'})
    assert machine.check_shared_memory(system).status == 'ok'
    monkeypatch.setattr(os, 'access', lambda path, mode: False)
    found = machine.check_shared_memory(system)
    assert found.status == 'warn'
    assert '1 files belong to another user' in found.finding


def test_a_package_that_requires_another_version_of_a_library_is_named(tmp_path, monkeypatch):
    class Package:
        metadata = {'Name': 'metaworld'}
        version = '3.1.1'
        requires = ['mujoco==3.3.0', 'numpy>=1.18', 'gymnasium<1; extra == "old"', 'not installed',
                    '=']

    monkeypatch.setattr(machine.importlib.metadata, 'distributions', lambda: [Package])
    found = machine.check_libraries(fake(tmp_path))
    assert (found.status, found.advice.partition(':')[0]) == (
        'warn', 'metaworld 3.1.1 requires mujoco==3.3.0')


def test_a_gymnasium_that_is_too_old_is_named_with_the_oldest_that_is_not(
        tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(machine.importlib.metadata, 'version', lambda name: '1.0.0')
    monkeypatch.setattr(machine.importlib.metadata, 'distributions', list)
    line = "gymnasium 1.0.0 is too old: pip install 'gymnasium>=1.1'"
    found = machine.check_libraries(fake(tmp_path))
    assert (found.status, found.advice) == ('fail', line)
    # Tools say a ValueError in one line.
    with pytest.raises(ImportError, match=line) as error:
        importlib.reload(vdl_ros.envs)
    assert isinstance(error.value, ValueError)
    with pytest.raises(SystemExit, match='2'):
        vdl_ros.begin_program('serial')
    assert capsys.readouterr().err == f'serial: {line}\n'


def test_an_arm_on_usb_without_rights_or_with_those_of_everybody(tmp_path):
    assert machine.check_usb(fake(tmp_path)).finding == 'none connected'
    system = fake(tmp_path, ARM)
    found = machine.check_usb(system)  # the device node is missing
    assert (found.status, found.advice) == ('warn', how_to_install())
    fake(tmp_path, {'etc/udev/rules.d/60.rules': 'ATTR{idVendor}=="1267"'})
    assert machine.check_usb(system).advice == 'reconnect the arm'
    fake(tmp_path, {'dev/bus/usb/001/009': ''})
    for mode, status in ((0o660, 'ok'), (0o666, 'warn'), (0o662, 'warn')):
        (tmp_path / 'dev/bus/usb/001/009').chmod(mode)
        found = machine.check_usb(system)
        assert (found.status, 'every user' in found.finding) == (status, status == 'warn'), mode
    (tmp_path / 'dev/bus/usb/001/009').chmod(0o660)
    fake(tmp_path, {path.replace('1-2', '1-4.1'): text for path, text in ARM.items()})
    found = machine.check_usb(system)
    assert (found.status, found.finding) == ('ok', '2 connected, USB port 1-2, 1-4.1')
    assert found.advice == 'choose one: usb_port:=1-2 or usb_port:=1-4.1'


def test_loopback_reports_failures(tmp_path):
    def nothing():
        raise TimeoutError('message 1 of 2.7 MB did not come back in 5 s')

    environ = {'ROS_LOG_DIR': str(tmp_path)}
    found = check_loopback(fake(tmp_path, environ=environ), nothing)
    assert (found.status, found.finding[:19]) == ('fail', 'message 1 of 2.7 MB')
    # DDS would end the process.
    environ['ROS_DOMAIN_ID'] = '233'
    found = check_loopback(fake(tmp_path, environ=environ), pytest.fail)
    assert (found.status, found.finding) == ('fail', 'not measured: no node can start')


LISTENER = """import socket, sys
servers = [socket.create_server((host, 0)) for host in ('0.0.0.0', '127.0.0.1')]
print(*(each.getsockname()[1] for each in servers), flush=True)
sys.stdin.read()
"""


@pytest.mark.process
def test_a_real_port_is_found_and_those_of_other_programs_are_not(tmp_path):
    program = tmp_path / 'install/lib/vdl_ros/viewer'
    fake(tmp_path, {'install/lib/vdl_ros/viewer': LISTENER})
    with socket.create_server(('0.0.0.0', 0)) as mine, subprocess.Popen(
            [sys.executable, str(program)], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE) as process:
        port, near = process.stdout.readline().split()
        other = mine.getsockname()[1]
        found = machine.check_ports(System(tmp_path, {}))
        process.communicate()
    assert found.status == 'warn'
    assert f'viewer at 0.0.0.0 port {port}' in found.finding
    assert f'port {near}' not in found.finding
    assert f'port {other}' not in found.finding


def keystore(folder, mode):
    for name in ('private/ca.key.pem', 'enclaves/vdl_ros/key.pem', 'public/ca.cert.pem'):
        fake(folder, {name: ''})
        (folder / name).chmod(mode if name.endswith('key.pem') else 0o644)
    return str(folder)


def test_security_settings_and_modes_of_keys(tmp_path):
    on, enforce = {'ROS_SECURITY_ENABLE': 'true'}, {'ROS_SECURITY_STRATEGY': 'Enforce'}
    for number, (mode, environ, status, words) in enumerate((
            (None, {}, 'ok', 'SROS2 is off'),
            (None, on, 'warn', 'ROS_SECURITY_KEYSTORE= is no folder'),
            (None, {**on, 'ROS_SECURITY_KEYSTORE': '/nowhere'}, 'warn', '/nowhere is no folder'),
            (0o600, on, 'warn', 'nodes without a key run without SROS2'),
            (None, on | enforce, 'fail', 'ROS_SECURITY_KEYSTORE= has no keys'),
            (0o600, on | enforce | {'ROS_SECURITY_ENCLAVE_OVERRIDE': '/x'}, 'fail', 'enclave /x'),
            (0o600, on | enforce, 'ok', 'keys in'),
            (0o644, on | enforce, 'warn', '2 private keys'), (0o640, {}, 'warn', '2 private'))):
        environ = {'ROS_HOME': str(tmp_path / 'home'), **environ}
        if mode is not None:
            environ['ROS_SECURITY_KEYSTORE'] = keystore(tmp_path / str(number), mode)
        found = machine.check_security(System(tmp_path, environ))
        assert (found.status, words in found.finding) == (status, True), found
    # Keys in ROS_HOME are checked without settings.
    keystore(tmp_path / 'keystore', 0o604)
    found = machine.check_security(System(tmp_path, {'ROS_HOME': str(tmp_path)}))
    assert (found.status, found.advice) == ('warn', f'chmod -R go= {tmp_path}/keystore')
