"""Write a bag: names of topics and types, quality of service, definitions, and the file."""

import contextlib
import importlib
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ament_index_python.packages import get_package_share_directory
from ament_index_python.resources import get_resource
from mcap.writer import CompressionType, Writer
from rclpy.exceptions import InvalidTopicNameException
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.validate_full_topic_name import validate_full_topic_name

from vdl_ros.bags.reader import BagError
from vdl_ros.common.files import write_text
from vdl_ros.common.quoting import quoted

# As rosidl allows them: no dot, which would name a module inside another one, and no path.
_FORM = re.compile(r'([a-z][a-z0-9_]{0,254})/(msg|srv)/([A-Z][A-Za-z0-9]{0,254})')
_KINDS = {'msg': 'message', 'srv': 'service'}


def check_topic(name: str) -> None:
    """Check a full topic name, which DDS does not."""
    try:
        validate_full_topic_name(name)
    except InvalidTopicNameException:
        raise BagError('not a topic name of ROS') from None


def check_type(type_name: str, kind: str = 'msg') -> tuple[str, str]:
    """Return package and name of ``pkg/msg/Name``, or of a ``srv``; nothing is imported."""
    found = _FORM.fullmatch(type_name)
    if found is None or found[2] != kind:
        raise BagError(f'{quoted(type_name)}: not a {_KINDS[kind]} type: package/{kind}/Name')
    package, _, name = found.groups()
    try:
        interfaces, _ = get_resource('rosidl_interfaces', package)
    except (LookupError, OSError):
        interfaces = ''
    if f'{kind}/{name}.{kind}' not in interfaces.splitlines():
        raise BagError(f'{quoted(type_name)}: no such {_KINDS[kind]} is installed here')
    return package, name


def message_class(type_name: str, kind: str = 'msg') -> type:
    """Return the class of an installed ``pkg/msg/Name``, or of a ``srv``.

    BagError: there is none; nothing was imported.
    """
    package, name = check_type(type_name, kind)
    try:
        found: type = getattr(importlib.import_module(f'{package}.{kind}'), name)
    except (AttributeError, ImportError, ValueError):
        raise BagError(f'{quoted(type_name)}: its Python class is not installed here') from None
    return found


#: Messages that wait on a topic that is recorded or played.
DEPTH = 100


def to_bag(profile: QoSProfile) -> dict[str, Any]:
    def duration(value: Any) -> dict[str, int]:
        return dict(zip(('sec', 'nsec'), divmod(int(value.nanoseconds), 10**9), strict=True))

    return {
        # Discovery does not report a publisher's history; rosbag2 stores the same.
        'history': 'unknown', 'depth': 0,
        'reliability': profile.reliability.short_key,
        'durability': profile.durability.short_key,
        'deadline': duration(profile.deadline), 'lifespan': duration(profile.lifespan),
        'liveliness': profile.liveliness.short_key,
        'liveliness_lease_duration': duration(profile.liveliness_lease_duration),
        'avoid_ros_namespace_conventions': False}


def playback_profile(offered: list[dict[str, Any]]) -> QoSProfile:
    kinds = [(str(each.get('reliability')), str(each.get('durability'))) for each in offered]
    # By name, or by number as older versions of rosbag2 wrote it.
    return weakest(all(kind not in ('best_effort', '2') for kind, _ in kinds),
                   bool(kinds) and all(kind in ('transient_local', '1') for _, kind in kinds))


def weakest(reliable: bool, latched: bool) -> QoSProfile:
    """Return the profile that matches all publishers, given what every one of them offers."""
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST, depth=DEPTH,
        reliability=(ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT),
        durability=(DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE))


_FLUSH_S = 1.0
_COMPRESSION = {
    'none': CompressionType.NONE, 'lz4': CompressionType.LZ4, 'zstd': CompressionType.ZSTD}


def definition(type_name: str) -> str:
    """Return the definitions of ``pkg/msg/Name`` and of the types in it, as MCAP stores them."""
    found: dict[str, str] = {}
    waiting = [type_name]
    while waiting:
        name = waiting.pop(0)
        if name in found:
            continue
        package, message = check_type(name)
        try:
            share = Path(get_package_share_directory(package))
            found[name] = (share / 'msg' / f'{message}.msg').read_text()
        except (LookupError, OSError):
            raise BagError(f'{quoted(name)}: its definition is not installed here') from None
        waiting += [each for each in _types_in(found[name], package) if each not in found]
    first, *rest = found.items()
    return first[1] + ''.join(
        f'\n{"=" * 80}\nMSG: {name.replace("/msg/", "/")}\n{text}' for name, text in rest)


def _types_in(text: str, package: str) -> list[str]:
    found = []
    for line in text.splitlines():
        words = line.split('#', 1)[0].split()
        if len(words) < 2 or '=' in words[1]:
            continue
        where, _, name = re.split(r'[\[<]', words[0])[0].rpartition('/')
        if name[:1].isupper():  # no primitive type
            found.append(f'{where.removesuffix("/msg") or package}/msg/{name}')
    return found


@dataclass
class _Topic:
    """A topic; ``qos`` is what its publishers offered, as rosbag2 stores it."""

    name: str
    type: str
    qos: list[dict[str, Any]]
    count: int = 0


class BagWriter(contextlib.AbstractContextManager['BagWriter']):
    """A bag that grows, of one file in a folder that must not exist.

    ``compression`` is none, lz4 or zstd. :meth:`close` writes ``distribution``, that of ROS 2, and
    ``labels``, texts by name, as ``custom_data`` into the metadata.
    """

    def __init__(
        self, path: Path, *, compression: str = 'none', distribution: str = '',
    ) -> None:
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise BagError(f'{path} exists; name another bag') from None
        except OSError as error:
            raise BagError(f'{path} cannot be made: {error.strerror}') from None
        self.path, self.count = path, 0
        self.labels: dict[str, str] = {}
        self._distribution = distribution
        self._name = f'{path.name}_0.mcap'
        self._stream = (path / self._name).open('xb')
        self._writer = Writer(self._stream, compression=_COMPRESSION[compression])
        self._writer.start(profile='ros2', library='vdl_ros')
        self._topics: dict[int, _Topic] = {}
        self._schemas: dict[str, int] = {}
        self._first, self._last = 2**63 - 1, 0
        self._flushed = time.monotonic()
        self._write_metadata()

    def add_topic(self, name: str, type_name: str, profiles: list[QoSProfile]) -> int:
        """Announce a topic of ``pkg/msg/Name``; return its handle."""
        if type_name not in self._schemas:
            self._schemas[type_name] = self._writer.register_schema(
                type_name, 'ros2msg', definition(type_name).encode())
        offered = [to_bag(each) for each in profiles]
        handle: int = self._writer.register_channel(
            name, 'cdr', self._schemas[type_name],
            {'offered_qos_profiles': yaml.safe_dump(offered, sort_keys=False)})
        self._topics[handle] = _Topic(name, type_name, offered)
        return handle

    def write(self, handle: int, stamp_ns: int, data: bytes) -> None:
        """Write one serialised message; after an OSError what was written before is readable."""
        self._writer.add_message(handle, stamp_ns, data, stamp_ns)
        self._topics[handle].count += 1
        self.count += 1
        self._first, self._last = min(self._first, stamp_ns), max(self._last, stamp_ns)
        now = time.monotonic()
        if now - self._flushed > _FLUSH_S:
            self._flushed = now
            self._writer.flush()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        if self._stream.closed:
            return
        try:
            self._writer.finish()  # type: ignore[no-untyped-call]
            self._write_metadata()
        finally:
            self._stream.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write_metadata(self) -> None:
        """Write metadata.yaml as rosbag2 does, version 9."""
        start, end = (self._first, self._last) if self.count else (0, 0)
        info = {'rosbag2_bagfile_information': {
            'version': 9, 'storage_identifier': 'mcap',
            'duration': {'nanoseconds': end - start},
            'starting_time': {'nanoseconds_since_epoch': start},
            'message_count': self.count,
            'topics_with_message_count': [{
                'topic_metadata': {
                    'name': topic.name, 'type': topic.type, 'serialization_format': 'cdr',
                    'offered_qos_profiles': topic.qos, 'type_description_hash': ''},
                'message_count': topic.count} for topic in self._topics.values()],
            'compression_format': '', 'compression_mode': '',
            'relative_file_paths': [self._name],
            'files': [{
                'path': self._name, 'starting_time': {'nanoseconds_since_epoch': start},
                'duration': {'nanoseconds': end - start}, 'message_count': self.count}],
            'custom_data': self.labels or None, 'ros_distro': self._distribution}}
        write_text(self.path / 'metadata.yaml', yaml.safe_dump(info, sort_keys=False))
