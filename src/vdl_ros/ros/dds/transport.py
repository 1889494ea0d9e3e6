"""
How large messages travel: the Fast DDS transport of every vdl_ros process.

``configure()`` runs before ``rclpy.init()``. It writes a Fast DDS profile that fits this machine,
names it in the environment, and says what it did and why. The profile is
``config/dds/fastdds.xml.in``; the measurements behind it are in ``docs/transport.md``. Launch
files give ``TransportChoice.environment`` to nodes of other packages.

Fast DDS cuts a message into fragments of one size, whoever receives it. Large fragments are cheap
through shared memory; between hosts they become IP fragments, and a few lost ones fill the
kernel's reassembly memory for 30 s, in which nothing large arrives. So ``auto`` takes shared
memory and 64 KB fragments where discovery stays on this host, and otherwise UDP in datagrams
that fit one Ethernet frame.

Environment: ``VDL_TRANSPORT`` = ``auto``, ``shm``, ``udp`` or ``default``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import string
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from vdl_ros.common.resources import find_resource

__all__ = [
    'FRAME_DATAGRAM', 'LARGE_DATAGRAM', 'Host', 'TransportChoice', 'choose', 'configure',
    'package_version', 'reaches_other_hosts', 'render',
]

CHOICES = ('auto', 'shm', 'udp', 'default')
# Fast DDS 2 reads the first, Fast DDS 3 the second.
PROFILE_VARIABLES = ('FASTRTPS_DEFAULT_PROFILES_FILE', 'FASTDDS_DEFAULT_PROFILES_FILE')
USER_VARIABLES = ('FASTDDS_BUILTIN_TRANSPORTS', *PROFILE_VARIABLES)
TEMPLATE = 'config/dds/fastdds.xml.in'
PROFILE_PREFIX = 'vdl_ros-fastdds-'

MiB = 1 << 20
SEGMENT = 64 * MiB
SMALLEST_SEGMENT = 2 * MiB
SOCKET_BUFFER = 4 * MiB
UDP_HEADERS = 28  # bytes of IPv4 and UDP before each datagram
LARGE_DATAGRAM = 65500  # bytes; the most that Fast DDS puts into one UDP datagram
# 1372 bytes with headers: inside Ethernet's 1500, and the 1420 or so that VPNs and overlays leave.
FRAME_DATAGRAM = 1344

# Fast DDS 3 (Kilted and later) writes these tags in another way; all else is the same.
FASTDDS_3_TAGS = {
    'heartbeatPeriod': 'heartbeat_period',
    'nackResponseDelay': 'nack_response_delay',
    'heartbeatResponseDelay': 'heartbeat_response_delay',
}
NAMESPACE = 'http://www.eprosima.com/XMLSchemas/fastRTPS_Profiles'


@dataclasses.dataclass(frozen=True)
class Host:
    """
    What this machine allows.

    ``rmem_max`` and ``wmem_max`` are the kernel's largest socket buffers, ``shm_free`` the free
    space of ``/dev/shm``, all in bytes; ``None`` where it could not be read.
    """

    rmem_max: int | None = None
    wmem_max: int | None = None
    shm_free: int | None = None

    @classmethod
    def read(cls, root: Path = Path('/')) -> Host:
        """Read the limits of the machine whose file system starts at ``root``."""
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
    """
    The transport in force.

    ``name`` is ``shm``, ``udp``, ``default`` (DDS left alone on request) or ``user`` (left alone
    because somebody else configured it). Sizes are in bytes, 0 where they do not apply or where
    the system's default is kept. ``environment`` holds the variables that were set.
    """

    name: str
    reason: str
    segment_bytes: int = 0
    send_bytes: int = 0
    receive_bytes: int = 0
    datagram_bytes: int = 0
    warnings: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def describe(self) -> str:
        """Return one line for a log: what is in force and why."""
        sizes = {
            'segment': self.segment_bytes, 'send buffer': self.send_bytes,
            'receive buffer': self.receive_bytes, 'datagram': self.datagram_bytes,
        }
        figures = ', '.join(f'{key} {_size(value)}' for key, value in sizes.items() if value)
        return f'{self.name}: {self.reason}' + (f' ({figures})' if figures else '')


def configure(
    environ: MutableMapping[str, str] = os.environ, host: Host | None = None,
) -> TransportChoice:
    """
    Choose this process's transport and set the environment for it; call before ``rclpy.init()``.

    Calling it again, or in a child process, gives the same answer. Raises ``ValueError`` when
    ``VDL_TRANSPORT`` has an unknown value, ``OSError`` when the profile cannot be written.
    """
    choice = choose(environ, host or Host.read())
    if choice.name in ('user', 'default'):
        for name in PROFILE_VARIABLES:  # inherited from a parent that had chosen otherwise
            if _is_ours(environ.get(name, '')):
                del environ[name]
        return choice
    template = find_resource(TEMPLATE).read_text(encoding='utf-8')
    major = _fastdds_major(environ)
    path = _store(render(choice, template, major), environ)
    # One name only: where both are known, the older one gives a warning in every process.
    variables = {PROFILE_VARIABLES[major >= 3]: str(path)}
    environ.update(variables)
    return dataclasses.replace(choice, environment=variables)


def choose(environ: Mapping[str, str], host: Host) -> TransportChoice:
    """
    Decide from the environment and the machine's limits; changes nothing.

    Raises ``ValueError`` when ``VDL_TRANSPORT`` has an unknown value.
    """
    wish = environ.get('VDL_TRANSPORT', '') or 'auto'
    if wish not in CHOICES:
        raise ValueError(f'VDL_TRANSPORT is {wish!r}; allowed: {", ".join(CHOICES)}')
    if wish == 'default':
        return TransportChoice('default', 'VDL_TRANSPORT=default leaves DDS alone')
    middleware = environ.get('RMW_IMPLEMENTATION', '')
    if middleware and not middleware.startswith('rmw_fastrtps'):
        return TransportChoice('user', f'RMW_IMPLEMENTATION={middleware} is not Fast DDS')
    for name in USER_VARIABLES:
        if environ.get(name) and not _is_ours(environ[name]):
            return TransportChoice('user', f'{name}={environ[name]} is already set')

    warnings: list[str] = []
    send = _buffer('net.core.wmem_max', host.wmem_max, warnings)
    receive = _buffer('net.core.rmem_max', host.rmem_max, warnings)
    many = reaches_other_hosts(environ)
    if wish == 'udp' or (wish == 'auto' and many):
        reason = 'VDL_TRANSPORT=udp' if wish == 'udp' else 'discovery reaches other hosts'
        return TransportChoice('udp', reason, 0, send, receive, FRAME_DATAGRAM, tuple(warnings))
    segment = _segment(host.shm_free)
    if segment == 0:
        warnings.append(
            f'/dev/shm has {_size(host.shm_free or 0)} free; shared memory needs '
            f'{_size(SMALLEST_SEGMENT * 16)}, so UDP is used')
        return TransportChoice('udp', 'no room in /dev/shm', 0, send, receive, FRAME_DATAGRAM,
                               tuple(warnings))
    if segment < SEGMENT:
        warnings.append(f'/dev/shm is nearly full: the segment is {_size(segment)} '
                        f'instead of {_size(SEGMENT)}, and large messages are slower')
    if many:
        warnings.append('VDL_TRANSPORT=shm while discovery reaches other hosts: large messages '
                        'to them do not survive lost IP fragments')
    reason = 'discovery stays on this host' if wish == 'auto' else 'VDL_TRANSPORT=shm'
    return TransportChoice('shm', reason, segment, send, receive, LARGE_DATAGRAM, tuple(warnings))


def reaches_other_hosts(environ: Mapping[str, str]) -> bool:
    """Return whether nodes with this environment can discover nodes of another machine."""
    if environ.get('ROS_LOCALHOST_ONLY') == '1':
        return False
    scope = environ.get('ROS_AUTOMATIC_DISCOVERY_RANGE', '').upper()
    if scope == 'OFF':
        return False
    if scope != 'LOCALHOST':  # SUBNET is what ROS takes for no value and for an unknown one
        return True
    peers = (peer.strip() for peer in environ.get('ROS_STATIC_PEERS', '').split(';'))
    return any(peer and peer != 'localhost' and not peer.startswith('127.') for peer in peers)


def render(choice: TransportChoice, template: str, fastdds_major: int = 2) -> str:
    """
    Return the Fast DDS profile for ``choice`` from the text of ``config/dds/fastdds.xml.in``.

    ``fastdds_major`` is 2 (Humble to Jazzy) or 3 (Kilted and later).
    """
    text = string.Template(template).substitute(
        segment_bytes=choice.segment_bytes, send_bytes=choice.send_bytes,
        receive_bytes=choice.receive_bytes, datagram_bytes=choice.datagram_bytes)
    root = ElementTree.fromstring(text)
    if choice.name == 'udp':
        _drop_shared_memory(root)
    if fastdds_major >= 3:
        for element in root.iter():
            bare = element.tag.rpartition('}')[2]
            element.tag = element.tag.replace(bare, FASTDDS_3_TAGS.get(bare, bare))
    # Without a registered name the writer would prefix every tag, which Fast DDS cannot read.
    ElementTree.register_namespace('', NAMESPACE)
    return ElementTree.tostring(root, encoding='unicode') + '\n'


def package_version(package: str, environ: Mapping[str, str]) -> str:
    """Return the version of an installed ROS package, or an empty text when it is not there."""
    for prefix in environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep):
        manifest = Path(prefix) / 'share' / package / 'package.xml'
        if prefix and manifest.is_file():
            with contextlib.suppress(ElementTree.ParseError, OSError):
                return ElementTree.parse(manifest).findtext('version', '').strip()
    return ''


def _fastdds_major(environ: Mapping[str, str]) -> int:
    # The library itself installs no version to read; its ROS layer changed major with it.
    layer = package_version('rmw_fastrtps_cpp', environ).partition('.')[0]
    return 3 if layer.isdigit() and int(layer) >= 9 else 2


def _drop_shared_memory(root: ElementTree.Element) -> None:
    def name(element: ElementTree.Element) -> str:
        return (element.findtext(f'{{{NAMESPACE}}}transport_id') or element.text or '').strip()

    for parent in root.iter():
        for child in list(parent):
            tag = child.tag.rpartition('}')[2]
            own = tag == 'transport_descriptor' or (
                tag == 'transport_id' and parent.tag.endswith('userTransports'))
            if own and name(child) == 'vdl_shared_memory':
                parent.remove(child)


def _buffer(name: str, limit: int | None, warnings: list[str]) -> int:
    # 0 keeps the system's default, which is always accepted.
    if limit is None:
        return 0
    if limit < SOCKET_BUFFER:
        warnings.append(f'{name} is {limit} bytes: bursts of large messages are sent twice; '
                        f'sudo sysctl -w {name}={SOCKET_BUFFER}')
    size = min(limit, SOCKET_BUFFER)
    return size if size >= LARGE_DATAGRAM + UDP_HEADERS else 0


def _segment(free: int | None) -> int:
    # A sixteenth: a graph has several processes, and each commits its segment when it starts.
    share = min(SEGMENT, (free or 0) // 16) // MiB * MiB
    return share if share >= SMALLEST_SEGMENT else 0


def _is_ours(value: str) -> bool:
    return Path(value).name.startswith(PROFILE_PREFIX)


def _store(text: str, environ: Mapping[str, str]) -> Path:
    # Named by content and moved into place: processes that start together agree, and none ever
    # reads half a file.
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
