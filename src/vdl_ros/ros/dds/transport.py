"""Configure the Fast DDS transport of this process: shared memory or UDP, buffer sizes.

``configure()`` runs before ``rclpy.init()``. It writes a Fast DDS profile for this machine, sets
the environment variable that selects it, and returns the choice with its reason.
docs/transport.md has the reasons for the values of ``config/dds/fastdds.xml.in``. Launch files
pass ``TransportChoice.environment`` to nodes of other packages.

Fast DDS uses one fragment size for all receivers. Large fragments are cheap through shared memory.
Between hosts they become IP fragments, and a few lost ones fill the kernel's reassembly memory for
30 s, during which no large message arrives.
"""

import contextlib
import dataclasses
import hashlib
import os
import re
import string
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from vdl_ros.common.files import find_resource

CHOICES = ('auto', 'shm', 'udp', 'default')
# Fast DDS 2 reads the first, Fast DDS 3 the second.
PROFILE_VARIABLES = ('FASTRTPS_DEFAULT_PROFILES_FILE', 'FASTDDS_DEFAULT_PROFILES_FILE')
USER_VARIABLES = ('FASTDDS_BUILTIN_TRANSPORTS', *PROFILE_VARIABLES)
TEMPLATE = 'config/dds/fastdds.xml.in'
PROFILE_PREFIX = 'vdl_ros-fastdds-'

MiB = 1 << 20
# Fast DDS touches all of it at the start of each process. Messages of 3 to 60 MB were not clearly
# faster with 64 MiB.
SEGMENT = 16 * MiB
MIN_SEGMENT = 2 * MiB
SOCKET_BUFFER = 4 * MiB
UDP_HEADERS = 28  # bytes of IPv4 and UDP before each datagram
LARGE_DATAGRAM = 65500  # bytes; the largest UDP datagram of Fast DDS
# 1372 bytes with headers: below Ethernet's 1500, and about 1420 in VPNs and overlays.
FRAME_DATAGRAM = 1344

# Tags that Fast DDS 3 (Kilted and later) has renamed.
FASTDDS_3_TAGS = {
    'heartbeatPeriod': 'heartbeat_period',
    'nackResponseDelay': 'nack_response_delay',
    'heartbeatResponseDelay': 'heartbeat_response_delay',
}


@dataclasses.dataclass(frozen=True)
class Host:
    """Limits of this machine, bytes: largest socket buffers, free ``/dev/shm``; None: unknown."""

    rmem_max: int | None = None
    wmem_max: int | None = None
    shm_free: int | None = None

    @classmethod
    def read(cls, root: Path = Path('/')) -> 'Host':
        def limit(name: str) -> int | None:
            try:
                return int((root / 'proc/sys/net/core' / name).read_text())
            except (OSError, ValueError):
                return None
        try:
            space = os.statvfs(root / 'dev/shm')
            free = space.f_bavail * space.f_frsize
        except OSError:
            free = None
        return cls(limit('rmem_max'), limit('wmem_max'), free)


@dataclasses.dataclass(frozen=True)
class TransportChoice:
    """The selected transport.

    ``name`` is ``shm``, ``udp``, ``default`` or ``user``: with the last two DDS is not configured.
    A size is 0 where it does not apply or is the system's. ``loopback``: UDP uses only 127.0.0.1.
    ``environment`` holds the variables that were set.
    """

    name: str
    reason: str
    segment_bytes: int = 0
    send_bytes: int = 0
    receive_bytes: int = 0
    datagram_bytes: int = 0
    warnings: tuple[str, ...] = ()
    loopback: bool = False
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def describe(self) -> str:
        sizes = {
            'segment': self.segment_bytes, 'send buffer': self.send_bytes,
            'receive buffer': self.receive_bytes, 'datagram': self.datagram_bytes,
        }
        figures = ', '.join(f'{key} {_size(value)}' for key, value in sizes.items() if value)
        return f'{self.name}: {self.reason}' + (f' ({figures})' if figures else '')


def configure(
    environ: MutableMapping[str, str] = os.environ, host: Host | None = None,
) -> TransportChoice:
    """Select the transport of this process and set its environment; call before ``rclpy.init()``.

    A second call, or one in a child process, has the same result.
    """
    choice = choose(environ, host or Host.read())
    if choice.name in ('user', 'default'):
        for name in PROFILE_VARIABLES:  # inherited from a parent with another choice
            if _is_ours(environ.get(name, '')):
                del environ[name]
        return choice
    template = find_resource(TEMPLATE).read_text(encoding='utf-8')
    major = _fastdds_major(environ)
    path = _store(render(choice, template, major), environ)
    # One variable only: where both are known, the older one causes a warning in every process.
    variables = {PROFILE_VARIABLES[major >= 3]: str(path)}
    environ.update(variables)
    return dataclasses.replace(choice, environment=variables)


def choose(environ: Mapping[str, str], host: Host) -> TransportChoice:
    """Return the transport for an environment and a machine's limits; changes nothing."""
    requested = environ.get('VDL_TRANSPORT', '') or 'auto'
    if requested not in CHOICES:
        raise ValueError(f'VDL_TRANSPORT is {requested!r}; allowed: {", ".join(CHOICES)}')
    if requested == 'default':
        return TransportChoice('default', 'VDL_TRANSPORT=default does not configure DDS')
    middleware = environ.get('RMW_IMPLEMENTATION', '')
    if middleware and not middleware.startswith('rmw_fastrtps'):
        return TransportChoice('user', f'RMW_IMPLEMENTATION={middleware} is not Fast DDS')
    for name in USER_VARIABLES:
        if environ.get(name) and not _is_ours(environ[name]):
            return TransportChoice('user', f'{name}={environ[name]} is already set')

    warnings: list[str] = []
    send = _buffer('net.core.wmem_max', host.wmem_max, warnings)
    receive = _buffer('net.core.rmem_max', host.rmem_max, warnings)
    several_hosts = reaches_other_hosts(environ)
    # A sixteenth: a graph has several processes, each of which allocates a segment.
    segment = min(SEGMENT, (host.shm_free or 0) // 16) // MiB * MiB
    name = 'shm'
    reason = 'discovery stays on this host' if requested == 'auto' else 'VDL_TRANSPORT=shm'
    if requested == 'udp' or (requested == 'auto' and several_hosts):
        name, reason = 'udp', (
            'VDL_TRANSPORT=udp' if requested == 'udp' else 'discovery reaches other hosts')
    elif segment < MIN_SEGMENT:
        warnings.append(
            f'/dev/shm has {_size(host.shm_free or 0)} free; shared memory needs '
            f'{_size(MIN_SEGMENT * 16)}, so UDP is used')
        name, reason = 'udp', 'no room in /dev/shm'
    else:
        if segment < SEGMENT:
            warnings.append(f'/dev/shm is nearly full: the segment is {_size(segment)} '
                            f'instead of {_size(SEGMENT)}, and large messages are slower')
        if several_hosts:
            warnings.append('VDL_TRANSPORT=shm while discovery reaches other hosts: large '
                            'messages to them do not arrive if IP fragments are lost')
    segment, datagram = (segment, LARGE_DATAGRAM) if name == 'shm' else (0, FRAME_DATAGRAM)
    return TransportChoice(
        name, reason, segment, send, receive, datagram, tuple(warnings), not several_hosts)


def reaches_other_hosts(environ: Mapping[str, str]) -> bool:
    if environ.get('ROS_LOCALHOST_ONLY') == '1':
        return False
    scope = environ.get('ROS_AUTOMATIC_DISCOVERY_RANGE', '').upper()
    if scope == 'OFF':
        return False
    if scope != 'LOCALHOST':  # ROS uses SUBNET for no value and for an unknown one
        return True
    # ADDRESS or, of a server, ADDRESS:PORT.
    peers = (each.strip() for name in ('ROS_STATIC_PEERS', 'ROS_DISCOVERY_SERVER')
             for each in environ.get(name, '').split(';'))
    return any(peer and not peer.startswith(('localhost', '127.')) for peer in peers)


def render(choice: TransportChoice, template: str, fastdds_major: int = 2) -> str:
    """Return the Fast DDS profile for ``choice``, of version 3 for Kilted and later."""
    for part, is_used in (('shm', choice.name != 'udp'), ('loop-back', choice.loopback)):
        if not is_used:
            template = re.sub(f'(?s)<!-- only {part} -->.*?<!-- end {part} -->', '', template)
    text = string.Template(template).substitute(
        segment_bytes=choice.segment_bytes, send_bytes=choice.send_bytes,
        receive_bytes=choice.receive_bytes, datagram_bytes=choice.datagram_bytes)
    for tag, renamed in FASTDDS_3_TAGS.items() if fastdds_major >= 3 else ():
        text = text.replace(tag, renamed)
    return text


def package_version(package: str, environ: Mapping[str, str]) -> str:
    for prefix in environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep):
        manifest = Path(prefix) / 'share' / package / 'package.xml'
        if prefix and manifest.is_file():
            with contextlib.suppress(ElementTree.ParseError, OSError):
                return ElementTree.parse(manifest).findtext('version', '').strip()
    return ''


def _fastdds_major(environ: Mapping[str, str]) -> int:
    # The library installs no version file; its ROS layer changed its major version with it.
    layer = package_version('rmw_fastrtps_cpp', environ).partition('.')[0]
    return 3 if layer.isdigit() and int(layer) >= 9 else 2


def _buffer(name: str, limit: int | None, warnings: list[str]) -> int:
    # 0 keeps the system's default.
    if limit is None:
        return 0
    if limit < SOCKET_BUFFER:
        warnings.append(f'{name} is {limit} bytes: bursts of large messages are resent; '
                        f'sudo sysctl -w {name}={SOCKET_BUFFER}')
    size = min(limit, SOCKET_BUFFER)
    return size if size >= LARGE_DATAGRAM + UDP_HEADERS else 0


def _is_ours(value: str) -> bool:
    return Path(value).name.startswith(PROFILE_PREFIX)


def _store(text: str, environ: Mapping[str, str]) -> Path:
    # Named by content and moved into place, so that processes can write and read it concurrently.
    base = environ.get('XDG_RUNTIME_DIR', '')
    if not (base and os.access(base, os.W_OK)):
        base = os.path.join(tempfile.gettempdir(), f'vdl_ros-{os.getuid()}')
        os.makedirs(base, mode=0o700, exist_ok=True)
        if os.stat(base).st_uid != os.getuid():
            base = tempfile.mkdtemp(prefix='vdl_ros-')
    path = Path(base) / f'{PROFILE_PREFIX}{hashlib.sha256(text.encode()).hexdigest()[:12]}.xml'
    with contextlib.suppress(OSError):
        if path.read_text(encoding='utf-8') == text:
            return path
    handle, draft = tempfile.mkstemp(dir=base, suffix='.xml')
    with os.fdopen(handle, 'w', encoding='utf-8') as file:
        file.write(text)
    os.replace(draft, path)
    return path


def _size(count: int) -> str:
    if count >= MiB:
        return f'{count / MiB:.0f} MiB'
    return f'{count // 1024} KiB' if count >= 8192 else f'{count} B'
