"""The checks of one machine: ROS, transport, network, processor, devices."""

import contextlib
import ctypes
import ctypes.util
import importlib.metadata
import importlib.util
import ipaddress
import math
import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath

import psutil
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from vdl_ros import gymnasium_error
from vdl_ros.arm.driver.usb import how_to_install
from vdl_ros.common.memory import free_memory
from vdl_ros.common.opengl import OpenGLError, check_drawing
from vdl_ros.common.quoting import shown
from vdl_ros.ros.dds import transport
from vdl_ros.ros.dds.shared_memory import files_of_dds, stale_shared_memory
from vdl_ros.ros.dds.transport import reaches_other_hosts
from vdl_ros.ros.environment import (
    Finding,
    System,
    check_discovery,
    check_domain,
    check_logs,
    check_security,
    is_up,
)


def amount(count: float) -> str:
    for unit in ('B', 'KiB', 'MiB'):
        if abs(count) < 1024:
            return f'{count:.0f} {unit}'
        count /= 1024
    return f'{count:.1f} GiB'


REASSEMBLY_MEMORY = 64 << 20


def _judged(
    name: str, text: str, advice: str, figures: Mapping[str, float] | None = None,
) -> Finding:
    return Finding(name, 'warn' if advice else 'ok', text, advice, figures or {})


def ros_version(system: System) -> str:
    names = (item.metadata['Name'] or '' for item in importlib.metadata.distributions())
    wheels = sorted({match[1] for name in names
                     if (match := re.fullmatch(r'ros-([a-z]+)-rclpy', name))})
    name = system.environ.get('ROS_DISTRO') or ''.join(wheels[:1]) or 'unknown distribution'
    version = transport.package_version('rclpy', system.environ)
    origin = 'from PyPI wheels' if wheels else 'installed'
    return f'{name} {origin}' + (f', rclpy {version}' if version else '')


def check_distribution(system: System) -> Finding:
    if importlib.util.find_spec('rclpy') is None:
        return Finding('ROS', 'fail', 'rclpy cannot be imported',
                       'source /opt/ros/DISTRO/setup.bash, or run make setup on a '
                       'machine without ROS 2')
    return Finding('ROS', 'ok', ros_version(system))


def check_python(system: System) -> Finding:
    return Finding('Python', 'ok',
                   f'{platform.python_implementation()} {platform.python_version()}')


def middleware(system: System) -> str:
    wanted = system.environ.get('RMW_IMPLEMENTATION') or 'rmw_fastrtps_cpp'
    return f'{wanted} {transport.package_version(wanted, system.environ)}'.strip()


def check_middleware(system: System) -> Finding:
    text = middleware(system)
    if ' ' not in text:
        return Finding('middleware', 'fail', f'{text} is not installed',
                       'unset RMW_IMPLEMENTATION, or install that middleware')
    if not text.startswith('rmw_fastrtps'):
        return Finding('middleware', 'warn', text,
                       'only tested with Fast DDS: check the loop-back figures below')
    prefixes = filter(None, system.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep))
    libraries = sorted(path.name for prefix in prefixes
                       for path in Path(prefix, 'lib').glob('libfast[rd]*.so.*.*.*'))
    return Finding('middleware', 'ok', text + (
        f', Fast DDS {libraries[-1].partition(".so.")[2]}' if libraries else ''))


def check_transport(system: System) -> Finding:
    try:
        choice = transport.choose(system.environ, transport.Host.read(system.root))
    except ValueError as error:
        return Finding('transport', 'fail', str(error), 'correct or unset VDL_TRANSPORT')
    if choice.name == 'default':
        return Finding('transport', 'warn', choice.describe(),
                       'messages above 512 KB are delayed or lost: unset VDL_TRANSPORT')
    # check_sockets reports the socket limits.
    notes = [note for note in choice.warnings if not note.startswith('net.core')]
    return _judged('transport', choice.describe(), '; '.join(notes))


def check_sockets(system: System) -> Finding:
    values = {name: size for name in ('rmem_max', 'wmem_max')
              if (size := system.number(f'proc/sys/net/core/{name}')) is not None}
    if len(values) < 2:
        return Finding('sockets', 'warn', 'net.core limits cannot be read',
                       'check sysctl net.core.rmem_max')
    text = ', '.join(f'{name} {amount(value)}' for name, value in values.items())
    small = ' '.join(f'net.core.{name}={transport.SOCKET_BUFFER}'
                     for name, value in values.items() if value < transport.SOCKET_BUFFER)
    return _judged('sockets', text, f'sudo sysctl -w {small}' if small else '')


def check_fragments(system: System) -> Finding:
    """Check IP reassembly, which large datagrams to other hosts require."""
    seconds = system.number('proc/sys/net/ipv4/ipfrag_time')
    memory = system.number('proc/sys/net/ipv4/ipfrag_high_thresh')
    if seconds is None or memory is None:
        return Finding('fragments', 'ok', 'IP reassembly settings cannot be read')
    text = f'ipfrag_time {seconds} s, ipfrag_high_thresh {amount(memory)}'
    exposed = (system.environ.get('VDL_TRANSPORT') in ('shm', 'default')
               and reaches_other_hosts(system.environ))
    if exposed and (seconds > 5 or memory < REASSEMBLY_MEMORY):
        return Finding('fragments', 'warn', f'{text}: a lost fragment can block large messages '
                       f'for {seconds} s', 'sudo sysctl -w net.ipv4.ipfrag_time=3 '
                       'net.ipv4.ipfrag_high_thresh=134217728, or VDL_TRANSPORT=auto')
    return Finding('fragments', 'ok', text + ('' if exposed else ' (not used)'))


def check_shared_memory(system: System) -> Finding:
    """Check the free space of ``/dev/shm`` and files of killed processes."""
    try:
        stat = os.statvfs(system.root / 'dev/shm')
    except OSError:
        return Finding('/dev/shm', 'warn', 'cannot be read', 'VDL_TRANSPORT=udp does not need it')
    size, free = stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
    files = list(stale_shared_memory(system.root))
    lost = 0
    for path in files:
        with contextlib.suppress(OSError):  # just removed
            lost += path.stat().st_size
    text, advice = f'{amount(free)} of {amount(size)} free', ''
    closed = sum(not os.access(path, os.R_OK | os.W_OK) for path in files_of_dds(system.root))
    if files:
        text += f'; {len(files)} files of dead processes use {amount(lost)}'
        advice = 'ros2 run vdl_ros doctor --clean'
    elif closed:
        text += f'; {closed} files belong to another user'
        advice = 'run all nodes of a domain as one user, or set VDL_TRANSPORT=udp for all'
    elif free < transport.SEGMENT * 16:
        advice = ('make it 256 MiB or more (docker run --shm-size=1g or --ipc=host), or set '
                  'VDL_TRANSPORT=udp')
    return _judged('/dev/shm', text, advice, {
        'free_bytes': free, 'stale_files': len(files), 'stale_bytes': lost})


_PORT_ADVICE = {
    'viewer': 'start the viewer with view_host:=127.0.0.1',
    'training_viewer': 'start the training with view_host:=127.0.0.1',
    'learner': 'set group_address to an address that only the learners reach',
}


def check_network(system: System) -> Finding:
    if not reaches_other_hosts(system.environ):
        return Finding('network', 'ok', 'discovery stays on this machine')
    names = [folder.name for folder in sorted((system.root / 'sys/class/net').glob('*'))
             if folder.name != 'lo' and is_up(system, folder.name)]
    if not names:
        return Finding('network', 'ok', 'only the loopback interface is up')
    if system.environ.get('ROS_SECURITY_ENABLE') == 'true':
        return Finding('network', 'ok', f'nodes are announced on {", ".join(names)}, with SROS2')
    return Finding('network', 'warn', f'every host on {", ".join(names)} can send to the nodes, '
                   'unless a firewall that doctor cannot see stops it',
                   'on one machine export ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST, else '
                   'docs/security.md')


def check_ports(system: System) -> Finding:
    found = sorted({each for each in _listening()
                    if not ipaddress.ip_address(each[1]).is_loopback})
    if not found:
        return Finding('ports', 'ok', 'no TCP port of this package is open to other hosts')
    text = ', '.join(f'{name} at {address} port {port}' for name, address, port in found)
    advice = '; '.join(advice for name, advice in _PORT_ADVICE.items()
                       if any(name == each for each, _, _ in found))
    return Finding('ports', 'warn', f'other hosts can connect: {text}',
                   f'{advice or "close it"}, or block the port (docs/security.md)')


def _listening() -> Iterator[tuple[str, str, int]]:
    """Yield executable, address and TCP port for the processes of this package."""
    for process in psutil.process_iter():
        try:
            name = _executable(process.cmdline())
            if not name:
                continue
            for each in process.net_connections('tcp'):
                if each.status == psutil.CONN_LISTEN:
                    yield name, each.laddr.ip, each.laddr.port
        except psutil.Error:  # it has ended, or belongs to another user
            continue


def _executable(words: list[str]) -> str:
    for word in words[:3]:
        path = PurePath(word)
        if path.parent.parts[-2:] == ('lib', 'vdl_ros'):
            return shown(path.name)
        if word.startswith(('vdl_ros.nodes.', 'vdl_ros.tools.')):
            return shown(word.rpartition('.')[2])
    return ''


FEATURES = ('avx2', 'avx512f', 'avx512_bf16', 'amx_bf16')
ARM_VENDOR, ARM_PRODUCTS = '1267', ('0000', '0001')
LIBRARIES = {'numpy': 'tensors on topics', 'torch': 'learning', 'gymnasium': 'environments',
             'ale_py': 'Atari games', 'mujoco': 'the simulated arm'}


def check_cpu(system: System) -> Finding:
    lines = (system.text('proc/cpuinfo') or '').splitlines()
    flags = set(next((line for line in lines if line.startswith(('flags', 'Features'))), '')
                .partition(':')[2].split())
    found = [name for name in FEATURES if name in flags]
    speed = ('bfloat16 in hardware: networks train about 2x faster than in float32'
             if flags & {'amx_bf16', 'avx512_bf16', 'bf16'} else
             'no bfloat16 in hardware: float32 is faster')
    slow = flags and not flags & {'avx2', 'asimd'}
    return _judged('CPU', f'{" ".join(found) or "no AVX2"}; {speed}',
                   'learning on this CPU is several times slower' if slow else '')


def check_cores(system: System) -> Finding:
    usable = len(os.sched_getaffinity(0))
    cores = min(float(usable), _cpu_quota(system))
    load = float((system.text('proc/loadavg') or '0').split()[0])
    text = f'{cores:g} usable{" (cgroup quota)" * (cores < usable)}, load {load:.1f}'
    advice = ('actor and learner share one core' if cores < 2 else
              'other programs use the CPU: figures will be low' if load > cores * 0.75 else '')
    return _judged('cores', text, advice, {'cores': cores, 'load': load})


def check_memory(_: System) -> Finding:
    free = free_memory()
    advice = 'training needs 2 GiB or more' if free < 2 << 30 else ''
    return _judged('memory', f'{amount(free)} free', advice, {'free_bytes': free})


def check_clock(system: System) -> Finding:
    synchronised = _clock_is_synchronised()
    if synchronised is None:
        return Finding('clock', 'ok', 'unknown whether it is synchronised')
    if synchronised:
        return Finding('clock', 'ok', 'synchronised')
    if system.environ.get('ROS_STATIC_PEERS') and reaches_other_hosts(system.environ):
        return Finding('clock', 'warn', 'not synchronised',
                       'run chrony on each host, or do not compare their stamps')
    return Finding('clock', 'ok', 'not synchronised; only required between hosts')


def check_egl(system: System) -> Finding:
    try:
        return Finding('EGL', 'ok', check_drawing())
    except OpenGLError as error:
        reason, _, remedy = str(error).removeprefix('OpenGL: ').partition('; ')
        return Finding('EGL', 'warn', reason,
                       f'only required for camera images: {remedy or "check the graphics driver"}')


def check_usb(system: System) -> Finding:
    # From the system or from the wheel libusb-package.
    library = ctypes.util.find_library('usb-1.0') or importlib.util.find_spec('libusb_package')
    missing = '' if library else 'apt install libusb-1.0-0, or pip install libusb-package'
    # The folder of a device has the name of its port.
    arms = [folder for folder in sorted((system.root / 'sys/bus/usb/devices').glob('*'))
            if system.text(f'{folder}/idVendor') == ARM_VENDOR
            and system.text(f'{folder}/idProduct') in ARM_PRODUCTS]
    if not arms:
        return Finding('USB arm', 'ok', 'none connected' + ('' if library else ', and no libusb'),
                       missing)
    if not library:
        return Finding('USB arm', 'warn', 'connected, but libusb is missing', missing)
    nodes = {}
    for folder in arms:
        bus, device = (system.number(f'{folder}/{name}') or 0 for name in ('busnum', 'devnum'))
        nodes[folder.name] = system.root / f'dev/bus/usb/{bus:03d}/{device:03d}'
    for node in nodes.values():
        if node.exists() and node.stat().st_mode & 0o002:
            return Finding('USB arm', 'warn', 'every user of this machine can move the arm: '
                           f'{node}', f'remove other rules of vendor {ARM_VENDOR}; '
                           f'{how_to_install()}')
    text = f'{len(nodes)} connected, USB port {", ".join(nodes)}'
    closed = [str(node) for node in nodes.values() if not os.access(node, os.R_OK | os.W_OK)]
    if not closed:
        return Finding('USB arm', 'ok', text, 'choose one: ' + ' or '.join(
            f'usb_port:={name}' for name in nodes) if len(nodes) > 1 else '')
    rules = (path for folder in ('etc/udev/rules.d', 'lib/udev/rules.d', 'usr/lib/udev/rules.d')
             for path in (system.root / folder).glob('*.rules'))
    is_ruled = any(ARM_VENDOR in (system.text(str(path)) or '') for path in rules)
    return Finding('USB arm', 'warn', f'{text}, but no permission to write {", ".join(closed)}',
                   'reconnect the arm' if is_ruled else how_to_install())


def check_libraries(system: System) -> Finding:
    found: list[str] = []
    missing: list[str] = []
    for name, purpose in LIBRARIES.items():
        try:
            found.append(f'{name} {importlib.metadata.version(name.replace("_", "-"))}')
        except importlib.metadata.PackageNotFoundError:
            if importlib.util.find_spec(name) is not None:
                found.append(name)
            else:
                missing.append(f'{name} ({purpose})')
    text = ', '.join(found) + (f'; missing: {", ".join(missing)}' if missing else '')
    if any(each.startswith('numpy') for each in missing):
        return Finding('libraries', 'fail', text, 'pip install numpy')
    if error := gymnasium_error():
        return Finding('libraries', 'fail', text, error)
    unmet = '; '.join(_unmet_requirements())
    return _judged('libraries', text, unmet and
                   f'{unmet}: docs/environments.md#versions installs other versions apart')


def _unmet_requirements() -> Iterator[str]:
    """Yield which packages require other versions of the libraries than the installed ones."""
    names = {name.replace('_', '-') for name in LIBRARIES}
    for package in importlib.metadata.distributions():
        for text in package.requires or ():
            # Metadata that follow no standard, or a library that is not installed.
            with contextlib.suppress(ValueError, importlib.metadata.PackageNotFoundError):
                found = Requirement(text)
                if canonicalize_name(found.name) in names and not found.specifier.contains(
                        importlib.metadata.version(found.name), prereleases=True) and (
                        not found.marker or found.marker.evaluate({'extra': ''})):
                    yield (f'{package.metadata["Name"]} {package.version} requires '
                           f'{found.name}{found.specifier}')


def _cpu_quota(system: System) -> float:
    words = (system.text('sys/fs/cgroup/cpu.max') or '').split()  # cgroup v2
    if len(words) == 2 and words[0].isdigit():
        return int(words[0]) / int(words[1])
    quota = system.number('sys/fs/cgroup/cpu/cpu.cfs_quota_us')  # v1; -1 is no limit
    period = system.number('sys/fs/cgroup/cpu/cpu.cfs_period_us')
    return quota / period if quota and period and quota > 0 else math.inf


def _clock_is_synchronised() -> bool | None:
    unsynchronised = 5  # TIME_ERROR of adjtimex(2)
    try:
        # Modes of 0 only read; the structure has 208 bytes on 64-bit Linux.
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != unsynchronised


CHECKS: tuple[Callable[[System], Finding], ...] = (
    check_distribution, check_python, check_middleware, check_domain, check_discovery,
    check_logs,
    check_transport, check_sockets, check_fragments, check_shared_memory, check_cpu, check_cores,
    check_memory, check_clock, check_egl, check_usb, check_network, check_ports, check_security,
    check_libraries,
)
