"""Each check of the doctor on a simulated machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vdl_ros.arm.driver.udev_rule import how_to_install
from vdl_ros.ros import checks
from vdl_ros.ros.checks import machine, middleware
from vdl_ros.ros.checks.loopback import Loopback, check_loopback
from vdl_ros.ros.checks.types import Finding, System, amount

HERE = {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST'}


def fake(root: Path, files: dict[str, str] | None = None, environ=None, space=(8 << 30, 8 << 30)):
    for name, text in (files or {}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return System(root, environ or {}, space)


@pytest.mark.parametrize(('value', 'status'), [
    ('', 'ok'), ('0', 'ok'), ('101', 'ok'), ('215', 'ok'), ('102', 'warn'), ('214', 'warn'),
    ('233', 'fail'), ('-1', 'fail'), ('lab', 'fail'),
])
def test_domain_id(tmp_path, value, status):
    system = fake(tmp_path, environ={'ROS_DOMAIN_ID': value})
    assert middleware.check_domain(system).status == status


@pytest.mark.parametrize(('environ', 'status'), [
    ({}, 'ok'),
    (HERE, 'ok'),
    ({'ROS_AUTOMATIC_DISCOVERY_RANGE': 'OFF'}, 'warn'),
    ({'ROS_AUTOMATIC_DISCOVERY_RANGE': 'WORLD'}, 'fail'),
    ({'ROS_LOCALHOST_ONLY': '1'}, 'warn'),
    ({'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SYSTEM_DEFAULT', 'ROS_STATIC_PEERS': 'a'}, 'warn'),
])
def test_discovery(tmp_path, environ, status):
    assert middleware.check_discovery(fake(tmp_path, environ=environ)).status == status


@pytest.mark.parametrize(('flags', 'status'), [('0x9', 'ok'), ('0x8', 'fail'), ('?', 'ok')])
def test_discovery_needs_the_loopback_interface(tmp_path, flags, status):
    system = fake(tmp_path, {'sys/class/net/lo/flags': flags}, HERE)
    assert middleware.check_discovery(system).status == status


@pytest.mark.parametrize(('version', 'status'), [((3, 9, 2), 'fail'), ((3, 10, 0), 'ok')])
def test_python(tmp_path, version, status):
    assert middleware.check_python(fake(tmp_path), version).status == status


def test_the_ros_distribution_is_found(tmp_path):
    assert middleware.check_distribution(fake(tmp_path)).status == 'ok'


def test_middleware(tmp_path):
    manifest = '<package><version>8.4.3</version></package>'
    files = {'share/rmw_fastrtps_cpp/package.xml': manifest,
             'share/rmw_other/package.xml': manifest, 'lib/libfastrtps.so.2.14.5': ''}
    environ = {'AMENT_PREFIX_PATH': str(tmp_path)}
    found = middleware.check_middleware(fake(tmp_path, files, environ))
    assert (found.status, found.finding) == ('ok', 'rmw_fastrtps_cpp 8.4.3, Fast DDS 2.14.5')
    environ['RMW_IMPLEMENTATION'] = 'rmw_other'
    assert middleware.check_middleware(fake(tmp_path, environ=environ)).status == 'warn'
    environ['RMW_IMPLEMENTATION'] = 'rmw_absent'
    assert middleware.check_middleware(fake(tmp_path, environ=environ)).status == 'fail'


@pytest.mark.parametrize(('environ', 'free', 'status'), [
    (HERE, 8 << 30, 'ok'),
    (HERE, 1 << 20, 'warn'),
    ({'VDL_TRANSPORT': 'default'}, 8 << 30, 'warn'),
    ({'VDL_TRANSPORT': 'pigeon'}, 8 << 30, 'fail'),
])
def test_transport(tmp_path, environ, free, status):
    found = middleware.check_transport(fake(tmp_path, environ=environ, space=(free, free)))
    assert found.status == status


@pytest.mark.parametrize(('limit', 'status'), [(212992, 'warn'), (4 << 20, 'ok')])
def test_sockets(tmp_path, limit, status):
    system = fake(tmp_path, {f'proc/sys/net/core/{name}': f'{limit}\n'
                             for name in ('rmem_max', 'wmem_max')})
    found = middleware.check_sockets(system)
    assert found.status == status
    assert ('sysctl' in found.advice) == (status == 'warn')


@pytest.mark.parametrize(('environ', 'seconds', 'status'), [
    ({}, 30, 'ok'), (HERE, 30, 'ok'),
    ({'VDL_TRANSPORT': 'shm'}, 30, 'warn'), ({'VDL_TRANSPORT': 'shm'}, 3, 'ok'),
])
def test_fragments(tmp_path, environ, seconds, status):
    system = fake(tmp_path, {'proc/sys/net/ipv4/ipfrag_time': str(seconds),
                             'proc/sys/net/ipv4/ipfrag_high_thresh': str(128 << 20)}, environ)
    assert middleware.check_fragments(system).status == status


@pytest.mark.process
def test_missing_system_files_are_findings_and_no_errors(tmp_path):
    findings = checks.run(fake(tmp_path / 'nothing', space=None),
                          tuple(check for check in checks.CHECKS if check not in
                                (checks.check_loopback, checks.check_egl)))
    assert not [item for item in findings if 'bug of the check' in item.advice]


def test_an_exception_in_a_check_is_a_failed_finding(tmp_path):
    def check_that_breaks(system):
        raise KeyError('what')

    assert checks.run(fake(tmp_path), (check_that_breaks,))[0].status == 'fail'


def test_shared_memory(tmp_path):
    system = fake(
        tmp_path, {f'dev/shm/{name}': 'x' for name in ('fastrtps_0a', 'fastrtps_0a_el')})
    (tmp_path / 'proc').mkdir()
    for path in (tmp_path / 'dev/shm').iterdir():
        os.utime(path, (0, 0))
    found = middleware.check_shared_memory(system)
    assert (found.status, found.figures['stale_files']) == ('warn', 2)
    assert '--clean' in found.advice
    assert middleware.check_shared_memory(fake(tmp_path / 'a')).status == 'ok'
    small = fake(tmp_path / 'a', space=(64 << 20, 64 << 20))
    assert middleware.check_shared_memory(small).status == 'warn'


@pytest.mark.parametrize(('flags', 'status', 'words'), [
    ('fpu avx2 avx512f avx512_bf16', 'ok', 'bfloat16 in hardware: networks train'),
    ('fpu avx2', 'ok', 'no bfloat16'), ('fpu sse2', 'warn', 'no AVX2'),
])
def test_cpu(tmp_path, flags, status, words):
    found = machine.check_cpu(fake(tmp_path, {'proc/cpuinfo': f'model : x\nflags\t\t: {flags}\n'}))
    assert found.status == status
    assert words in found.finding


@pytest.mark.parametrize(('usable', 'quota', 'load', 'status', 'cores'), [
    (8, 'max 100000', 1.0, 'ok', 8), (8, '200000 100000', 0.1, 'ok', 2),
    (8, '150000 100000', 0.1, 'warn', 1.5), (4, 'max 100000', 3.5, 'warn', 4),
])
def test_cores(tmp_path, usable, quota, load, status, cores):
    system = fake(tmp_path, {'sys/fs/cgroup/cpu.max': quota, 'proc/loadavg': f'{load} 0 0 1/2 3'})
    found = machine.check_cores(system, usable)
    assert (found.status, found.figures['cores']) == (status, cores)


@pytest.mark.parametrize(('limit', 'status'), [('max', 'ok'), (str(1 << 30), 'warn')])
def test_memory(tmp_path, limit, status):
    system = fake(tmp_path, {'proc/meminfo': 'MemTotal: 9 kB\nMemAvailable: 9000000 kB\n',
                             'sys/fs/cgroup/memory.max': limit})
    assert machine.check_memory(system).status == status


@pytest.mark.parametrize(('synchronised', 'peers', 'status'), [
    (True, '', 'ok'), (False, '', 'ok'), (False, '10.0.0.2', 'warn'),
])
def test_clock(tmp_path, synchronised, peers, status):
    system = fake(tmp_path, environ={'ROS_STATIC_PEERS': peers})
    assert machine.check_clock(system, synchronised).status == status


@pytest.mark.process
def test_egl_never_raises(tmp_path):
    assert machine.check_egl(fake(tmp_path)).status in ('ok', 'warn')


def test_usb(tmp_path, monkeypatch):
    monkeypatch.setattr(machine.ctypes.util, 'find_library', lambda name: 'libusb-1.0.so.0')
    assert machine.check_usb(fake(tmp_path)).finding == 'none connected'
    device = 'sys/bus/usb/devices/1-2'
    system = fake(tmp_path, {f'{device}/idVendor': '1267\n', f'{device}/idProduct': '0001\n',
                             f'{device}/busnum': '1\n', f'{device}/devnum': '9\n'})
    found = machine.check_usb(system)  # the device node is missing
    assert found.status == 'warn'
    assert found.advice == how_to_install()
    fake(tmp_path, {'etc/udev/rules.d/60.rules': 'ATTR{idVendor}=="1267"'})
    assert machine.check_usb(system).advice == 'reconnect the arm'
    fake(tmp_path, {'dev/bus/usb/001/009': ''})
    assert machine.check_usb(system).status == 'ok'


def test_libraries(tmp_path):
    assert 'numpy' in machine.check_libraries(fake(tmp_path)).finding


def test_loopback_reports_figures_and_failures(tmp_path):
    found = check_loopback(fake(tmp_path), lambda: [Loopback(28000, 0.25, 224.0)])
    assert found.status == 'ok'
    assert found.figures == {'p50_ms_28000_bytes': 0.25, 'MBps_28000_bytes': 224.0}

    def nothing():
        raise TimeoutError('message 1 of 2.7 MB did not come back in 5 s')

    found = check_loopback(fake(tmp_path), nothing)
    assert found.status == 'fail'
    assert found.finding.startswith('message 1 of 2.7 MB')


@pytest.mark.parametrize(('count', 'text'), [
    (12, '12 B'), (2048, '2 KiB'), (4 << 20, '4 MiB'), (3 << 29, '1.5 GiB'),
])
def test_amounts(count, text):
    assert amount(count) == text


@pytest.mark.process
def test_findings_have_a_known_status(tmp_path):
    system = fake(tmp_path)
    for check in checks.CHECKS:
        if check not in (checks.check_loopback, checks.check_egl):
            found = check(system)
            assert isinstance(found, Finding)
            assert found.status in ('ok', 'warn', 'fail')
            assert '\n' not in found.finding + found.advice
