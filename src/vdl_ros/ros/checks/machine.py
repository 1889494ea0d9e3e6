"""Checks of the machine: processor, memory, clock, rendering, USB, Python libraries."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.metadata
import importlib.util
import os
from pathlib import Path

from vdl_ros.arm.driver.udev_rule import how_to_install
from vdl_ros.common.opengl import OpenGLError, check_drawing
from vdl_ros.ros.checks.types import Finding, System, amount
from vdl_ros.ros.dds import transport

__all__ = [
    'check_clock', 'check_cores', 'check_cpu', 'check_egl', 'check_libraries', 'check_memory',
    'check_usb',
]

FEATURES = ('avx2', 'avx512f', 'avx512_bf16', 'amx_bf16')
ARM_VENDOR, ARM_PRODUCTS = '1267', ('0000', '0001')
# name, purpose, whether it is optional
LIBRARIES = (
    ('numpy', 'tensors on topics', False),
    ('torch', 'learning', True),
    ('gymnasium', 'environments', True),
    ('ale_py', 'Atari games', True),
    ('mujoco', 'the simulated arm', True),
)


def check_cpu(system: System) -> Finding:
    """Report the vector units and the speed of bfloat16."""
    flags: set[str] = set()
    for line in (system.text('proc/cpuinfo') or '').splitlines():
        if line.startswith(('flags', 'Features')):
            flags = set(line.partition(':')[2].split())
            break
    found = [name for name in FEATURES if name in flags]
    if flags & {'amx_bf16', 'avx512_bf16', 'bf16'}:
        speed = 'bfloat16 in hardware: networks train about 2x faster than in float32'
    else:
        speed = 'no bfloat16 in hardware: float32 is faster'
    text = f'{" ".join(found) or "no AVX2"}; {speed}'
    if flags and 'avx2' not in flags and 'asimd' not in flags:
        return Finding('CPU', 'warn', text, 'learning on this CPU is several times slower')
    return Finding('CPU', 'ok', text)


def check_cores(system: System, usable: int | None = None) -> Finding:
    """Report the usable cores and their load."""
    if usable is None:
        usable = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else (
            os.cpu_count() or 1)
    quota = _cpu_quota(system)
    cores = min(float(usable), quota) if quota else float(usable)
    load = float((system.text('proc/loadavg') or '0').split()[0])
    text = f'{cores:g} usable' + (' (cgroup quota)' if quota and quota < usable else '')
    text += f', load {load:.1f}'
    figures = {'cores': cores, 'load': load}
    if cores < 2:
        return Finding('cores', 'warn', text, 'actor and learner share one core', figures)
    if load > cores * 0.75:
        return Finding('cores', 'warn', text, 'other programs use the CPU: figures will be low',
                       figures)
    return Finding('cores', 'ok', text, '', figures)


def check_memory(system: System) -> Finding:
    """Report the free memory, within the limit of the container."""
    lines = (system.text('proc/meminfo') or '').splitlines()
    values = {line.partition(':')[0]: line.split()[1] for line in lines if len(line.split()) > 1}
    if 'MemAvailable' not in values:
        return Finding('memory', 'warn', 'cannot be read', 'check it by free -h')
    free = int(values['MemAvailable']) * 1024
    limit = system.number('sys/fs/cgroup/memory.max')
    if limit is not None:
        free = min(free, limit - (system.number('sys/fs/cgroup/memory.current') or 0))
    if free < 2 << 30:
        return Finding('memory', 'warn', f'{amount(free)} free', 'training needs 2 GiB or more',
                       {'free_bytes': free})
    return Finding('memory', 'ok', f'{amount(free)} free', '', {'free_bytes': free})


def check_clock(system: System, synchronised: bool | None = None) -> Finding:
    """Check whether the clock is synchronised, as latencies between hosts require."""
    if synchronised is None:
        synchronised = _clock_is_synchronised()
    if synchronised is None:
        return Finding('clock', 'ok', 'unknown whether it is synchronised')
    if synchronised:
        return Finding('clock', 'ok', 'synchronised')
    several = bool(system.environ.get('ROS_STATIC_PEERS')) and transport.reaches_other_hosts(
        system.environ)
    if several:
        return Finding('clock', 'warn', 'not synchronised',
                       'run chrony on each host, or do not compare their stamps')
    return Finding('clock', 'ok', 'not synchronised; only required between hosts')


def check_egl(system: System) -> Finding:
    """Check that rendering works without a display."""
    del system
    try:
        return Finding('EGL', 'ok', check_drawing())
    except OpenGLError as error:
        reason, _, remedy = str(error).removeprefix('OpenGL: ').partition('; ')
        return Finding('EGL', 'warn', reason,
                       f'only required for camera images: {remedy or "check the graphics driver"}')


def check_usb(system: System) -> Finding:
    """Check for an OWI arm on USB, and whether this user may access it."""
    # From the system or from the wheel libusb-package.
    library = ctypes.util.find_library('usb-1.0') or importlib.util.find_spec('libusb_package')
    missing = '' if library else 'apt install libusb-1.0-0, or pip install libusb-package'
    arms = [folder for folder in sorted((system.root / 'sys/bus/usb/devices').glob('*'))
            if system.text(f'{folder}/idVendor') == ARM_VENDOR
            and system.text(f'{folder}/idProduct') in ARM_PRODUCTS]
    if not arms:
        return Finding('USB arm', 'ok', 'none connected' + ('' if library else ', and no libusb'),
                       missing)
    if not library:
        return Finding('USB arm', 'warn', 'connected, but libusb is missing', missing)
    bus, device = (system.number(f'{arms[0]}/{name}') or 0 for name in ('busnum', 'devnum'))
    node = system.root / f'dev/bus/usb/{bus:03d}/{device:03d}'
    if node.exists() and node.stat().st_mode & 0o002:
        return Finding('USB arm', 'warn', f'every user of this machine can move the arm: {node}',
                       f'remove other rules of vendor {ARM_VENDOR}; {how_to_install()}')
    if os.access(node, os.R_OK | os.W_OK):
        return Finding('USB arm', 'ok', f'{len(arms)} connected, bus {bus} device {device}')
    rule = 'reconnect the arm' if _udev_rule(system) else how_to_install()
    return Finding('USB arm', 'warn', f'connected, but no permission to write {node}', rule)


def check_libraries(system: System) -> Finding:
    """Report the versions of the Python libraries."""
    del system
    found: list[str] = []
    absent: list[str] = []
    needed: list[str] = []
    for name, purpose, optional in LIBRARIES:
        try:
            found.append(f'{name} {importlib.metadata.version(name.replace("_", "-"))}')
        except importlib.metadata.PackageNotFoundError:
            if importlib.util.find_spec(name) is not None:
                found.append(name)
            else:
                (absent if optional else needed).append(f'{name} ({purpose})')
    missing = ', '.join(needed + absent)
    text = ', '.join(found) + (f'; missing: {missing}' if missing else '')
    if needed:
        return Finding('libraries', 'fail', text, f'pip install {needed[0].split()[0]}')
    return Finding('libraries', 'ok', text)


def _cpu_quota(system: System) -> float | None:
    words = (system.text('sys/fs/cgroup/cpu.max') or '').split()  # cgroup v2
    if len(words) == 2 and words[0].isdigit():
        return int(words[0]) / int(words[1])
    quota = system.number('sys/fs/cgroup/cpu/cpu.cfs_quota_us')  # v1; -1 is no limit
    period = system.number('sys/fs/cgroup/cpu/cpu.cfs_period_us')
    return quota / period if quota and period and quota > 0 else None


def _clock_is_synchronised() -> bool | None:
    unsynchronised = 5  # TIME_ERROR of adjtimex(2)
    try:
        # Modes of 0 only read; the structure has 208 bytes on 64-bit Linux.
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != unsynchronised


def _udev_rule(system: System) -> Path | None:
    for folder in ('etc/udev/rules.d', 'lib/udev/rules.d', 'usr/lib/udev/rules.d'):
        for path in sorted((system.root / folder).glob('*.rules')):
            if ARM_VENDOR in (system.text(str(path)) or ''):
                return path
    return None
