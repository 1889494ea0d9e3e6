"""Checks of ROS, DDS and the transport of messages between processes and hosts."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
from pathlib import Path

from vdl_ros.ros.checks.types import Finding, System, amount
from vdl_ros.ros.dds import transport
from vdl_ros.ros.dds.stale_shared_memory import stale_shared_memory

__all__ = [
    'LOOPBACK_ADVICE', 'check_discovery', 'check_distribution', 'check_domain', 'check_fragments',
    'check_middleware', 'check_python', 'check_shared_memory', 'check_sockets', 'check_transport',
    'loopback_is_up',
]

RANGES = ('SUBNET', 'LOCALHOST', 'OFF', 'SYSTEM_DEFAULT')
# From 102 to 214 the ports of a domain are in the ephemeral range of Linux.
SAFE_DOMAINS = (*range(102), *range(215, 233))
REASSEMBLY_MEMORY = 64 << 20
LOOPBACK_ADVICE = 'sudo ip link set lo up; a new network namespace has it down'
_UP = 0x1  # IFF_UP of linux/if.h


def loopback_is_up(system: System) -> bool:
    """Return whether the loop-back interface is up, as far as that can be read."""
    flags = system.text('sys/class/net/lo/flags') or ''
    return not re.fullmatch('0x[0-9a-f]+', flags) or bool(int(flags, 16) & _UP)


def check_distribution(system: System) -> Finding:
    """Report the ROS 2 distribution and its origin."""
    if importlib.util.find_spec('rclpy') is None:
        return Finding('ROS', 'fail', 'rclpy cannot be imported',
                       'source /opt/ros/DISTRO/setup.bash, or run make setup on a '
                       'machine without ROS 2')
    names = (item.metadata['Name'] or '' for item in importlib.metadata.distributions())
    wheels = sorted({match[1] for name in names
                     if (match := re.fullmatch(r'ros-([a-z]+)-rclpy', name))})
    name = system.environ.get('ROS_DISTRO') or ''.join(wheels[:1]) or 'unknown distribution'
    version = transport.package_version('rclpy', system.environ)
    origin = 'from PyPI wheels' if wheels else 'installed'
    return Finding('ROS', 'ok', f'{name} {origin}' + (f', rclpy {version}' if version else ''))


def check_python(system: System, version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    """Check that Python is 3.10 or newer."""
    del system
    text = f'{platform.python_implementation()} {".".join(map(str, version))}'
    if version < (3, 10):
        return Finding('Python', 'fail', text, 'use Python 3.10 or newer')
    return Finding('Python', 'ok', text)


def check_middleware(system: System) -> Finding:
    """Report the ROS middleware and its version."""
    wanted = system.environ.get('RMW_IMPLEMENTATION') or 'rmw_fastrtps_cpp'
    version = transport.package_version(wanted, system.environ)
    if not version:
        return Finding('middleware', 'fail', f'{wanted} is not installed',
                       'unset RMW_IMPLEMENTATION, or install that middleware')
    libraries = sorted(path.name for prefix in _prefixes(system)
                       for path in (prefix / 'lib').glob('libfast[rd]*.so.*.*.*'))
    text = f'{wanted} {version}'
    if not wanted.startswith('rmw_fastrtps'):
        return Finding('middleware', 'warn', text,
                       'only tested with Fast DDS: check the loop-back figures below')
    return Finding('middleware', 'ok', text + (
        f', Fast DDS {libraries[-1].partition(".so.")[2]}' if libraries else ''))


def check_domain(system: System) -> Finding:
    """Check that ROS_DOMAIN_ID is valid and its ports are free."""
    text = system.environ.get('ROS_DOMAIN_ID', '')
    if not text:
        return Finding('domain', 'ok', '0: shared with all machines that do not set it',
                       'export ROS_DOMAIN_ID=1..101 separates experiments')
    if not text.isdigit() or int(text) > 232:
        return Finding('domain', 'fail', f'ROS_DOMAIN_ID is {text!r}', 'use 0 to 101')
    if int(text) not in SAFE_DOMAINS:
        return Finding('domain', 'warn', f'{text}: its ports can be taken by other programs',
                       'use 0 to 101, or 215 to 232')
    return Finding('domain', 'ok', text)


def check_discovery(system: System) -> Finding:
    """Report the discovery range, which includes this host only by its loop-back interface."""
    if not loopback_is_up(system):
        return Finding('discovery', 'fail', 'the loop-back interface lo is down: nodes of this '
                       'host do not discover each other', LOOPBACK_ADVICE)
    scope = system.environ.get('ROS_AUTOMATIC_DISCOVERY_RANGE', '').upper()
    peers = system.environ.get('ROS_STATIC_PEERS', '')
    if system.environ.get('ROS_LOCALHOST_ONLY') == '1':
        return Finding('discovery', 'warn', 'ROS_LOCALHOST_ONLY=1 overrides the newer variables',
                       'unset it; use ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST')
    if scope and scope not in RANGES:
        return Finding('discovery', 'fail', f'ROS_AUTOMATIC_DISCOVERY_RANGE is {scope!r}',
                       f'use one of {", ".join(RANGES)}')
    if scope == 'OFF':
        return Finding('discovery', 'warn', 'OFF: nodes do not discover each other',
                       'use LOCALHOST or SUBNET')
    if peers and scope == 'SYSTEM_DEFAULT':
        return Finding('discovery', 'warn', f'ROS_STATIC_PEERS={peers} has no effect here',
                       'use LOCALHOST or SUBNET with it')
    text = scope or 'SUBNET (not set)'
    text += f', static peers {peers}' if peers else ''
    server = system.environ.get('ROS_DISCOVERY_SERVER', '')
    text += f', by the server {server}' if server else ''
    advice = ''
    if transport.reaches_other_hosts(system.environ) and not peers and not server:
        advice = ('on one host, ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST makes large messages '
                  'several times faster')
    return Finding('discovery', 'ok', text, advice)


def check_transport(system: System) -> Finding:
    """Report the choice of ``transport.configure``."""
    host = transport.Host.read(system.root)
    if system.space is not None:
        host = transport.Host(host.rmem_max, host.wmem_max, system.space[1])
    try:
        choice = transport.choose(system.environ, host)
    except ValueError as error:
        return Finding('transport', 'fail', str(error), 'correct or unset VDL_TRANSPORT')
    if choice.name == 'default':
        return Finding('transport', 'warn', choice.describe(),
                       'messages above 512 KB are delayed or lost: unset VDL_TRANSPORT')
    # check_sockets reports the socket limits.
    notes = [note for note in choice.warnings if not note.startswith('net.core')]
    return Finding('transport', 'warn' if notes else 'ok', choice.describe(), '; '.join(notes))


def check_sockets(system: System) -> Finding:
    """Check that socket buffers may be large enough for a burst of fragments."""
    values = {name: size for name in ('rmem_max', 'wmem_max')
              if (size := system.number(f'proc/sys/net/core/{name}')) is not None}
    if len(values) < 2:
        return Finding('sockets', 'warn', 'net.core limits cannot be read',
                       'check sysctl net.core.rmem_max')
    text = ', '.join(f'{name} {amount(value)}' for name, value in values.items())
    small = [name for name, value in values.items() if value < transport.SOCKET_BUFFER]
    if small:
        commands = ' '.join(f'net.core.{name}={transport.SOCKET_BUFFER}' for name in small)
        return Finding('sockets', 'warn', text, f'sudo sysctl -w {commands}')
    return Finding('sockets', 'ok', text)


def check_fragments(system: System) -> Finding:
    """Check IP reassembly, which large datagrams to other hosts require."""
    seconds = system.number('proc/sys/net/ipv4/ipfrag_time')
    memory = system.number('proc/sys/net/ipv4/ipfrag_high_thresh')
    if seconds is None or memory is None:
        return Finding('fragments', 'ok', 'IP reassembly settings cannot be read')
    text = f'ipfrag_time {seconds} s, ipfrag_high_thresh {amount(memory)}'
    choice = system.environ.get('VDL_TRANSPORT', '') or 'auto'
    exposed = choice in ('shm', 'default') and transport.reaches_other_hosts(system.environ)
    if exposed and (seconds > 5 or memory < REASSEMBLY_MEMORY):
        return Finding('fragments', 'warn', f'{text}: a lost fragment can block large messages '
                       f'for {seconds} s', 'sudo sysctl -w net.ipv4.ipfrag_time=3 '
                       'net.ipv4.ipfrag_high_thresh=134217728, or VDL_TRANSPORT=auto')
    return Finding('fragments', 'ok', text + ('' if exposed else ' (not used)'))


def check_shared_memory(system: System) -> Finding:
    """Check the free space of ``/dev/shm`` and files of killed processes."""
    space = system.shared_memory()
    if space is None:
        return Finding('/dev/shm', 'warn', 'cannot be read', 'VDL_TRANSPORT=udp does not need it')
    size, free = space
    files = list(stale_shared_memory(system.root))
    lost = 0
    for path in files:
        try:
            lost += path.stat().st_size
        except OSError:
            continue
    text = f'{amount(free)} of {amount(size)} free'
    figures = {'free_bytes': free, 'stale_files': len(files), 'stale_bytes': lost}
    if files:
        return Finding('/dev/shm', 'warn', f'{text}; {len(files)} files of dead processes use '
                       f'{amount(lost)}', 'ros2 run vdl_ros doctor --clean', figures)
    if free < transport.SEGMENT * 16:
        return Finding('/dev/shm', 'warn', text, 'make it 1 GiB or more (docker run --shm-size=2g '
                       'or --ipc=host), or set VDL_TRANSPORT=udp', figures)
    return Finding('/dev/shm', 'ok', text, '', figures)


def _prefixes(system: System) -> list[Path]:
    text = system.environ.get('AMENT_PREFIX_PATH', '')
    return [Path(item) for item in text.split(os.pathsep) if item]
