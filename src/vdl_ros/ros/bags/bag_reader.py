"""Serialised messages of an MCAP bag in the order in which they were written, one at a time."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from mcap.exceptions import McapError
from mcap.reader import NonSeekingReader, SeekingReader
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

from vdl_ros.ros.bags.bag_writer import BagError, BagPart, BagTopic

__all__ = ['BagMessage', 'BagReader', 'closed_part']

_DEPTH = 100


@dataclass(frozen=True)
class BagMessage:
    """
    One message as it was on the wire.

    ``stamp_ns`` is when it was received, ``type`` is ``pkg/msg/Name``, ``profile`` what its
    publishers offered.
    """

    topic: str
    type: str
    profile: QoSProfile
    stamp_ns: int
    data: bytes


class BagReader:
    """
    A bag, of ours or of rosbag2.

    Attributes:
        cut_off: the bag ends in the middle, as a killed writer leaves it; known at its end.
    """

    def __init__(self, path: Path) -> None:
        """
        Find the bag's files.

        Args:
            path: the bag's folder, or one file.

        Raises:
            BagError: there is no ``.mcap`` file.
        """
        self._files = sorted(path.glob('*.mcap')) if path.is_dir() else [path]
        if not self._files or not all(file.is_file() for file in self._files):
            raise BagError(f'{path}: no bag is there: a folder with a .mcap file, or the file')
        self.cut_off = False

    def __iter__(self) -> Iterator[BagMessage]:
        """
        Yield every message.

        Raises:
            BagError: a file is no MCAP file, or a message in it is broken.
        """
        for file in self._files:
            yield from self._read(file)

    def _read(self, file: Path) -> Iterator[BagMessage]:
        profiles: dict[int, QoSProfile] = {}
        count = 0
        # Not by the index: a bag that was cut off has none.
        with file.open('rb') as stream:
            reader = NonSeekingReader(stream)
            try:
                for schema, channel, message in reader.iter_messages(log_time_order=False):
                    if schema is None or channel.message_encoding != 'cdr':
                        raise BagError(f'{file}: {channel.topic} is not a topic of ROS 2')
                    if channel.id not in profiles:
                        profiles[channel.id] = _profile(
                            channel.metadata.get('offered_qos_profiles', ''))
                    count += 1
                    yield BagMessage(channel.topic, schema.name, profiles[channel.id],
                                     message.log_time, message.data)
            except (McapError, EOFError, ValueError) as error:
                if isinstance(error, BagError):
                    raise
                if not count:
                    raise BagError(f'{file}: not an MCAP file, or nothing is in it') from error
                self.cut_off = True


def closed_part(file: Path) -> BagPart | None:
    """Return what a file's own index says of it; None if it was cut off and has none."""
    with file.open('rb') as stream:
        try:
            summary = SeekingReader(stream).get_summary()
        except (McapError, OSError, EOFError, ValueError, struct.error):
            return None
    if summary is None or summary.statistics is None:
        return None
    counts = summary.statistics.channel_message_counts
    topics = tuple(
        BagTopic(channel.topic, summary.schemas[channel.schema_id].name,
                 yaml.safe_load(channel.metadata.get('offered_qos_profiles', '')) or [],
                 counts.get(number, 0))
        for number, channel in summary.channels.items())
    return BagPart(file.name, summary.statistics.message_start_time,
                   summary.statistics.message_end_time, topics)


def _profile(text: str) -> QoSProfile:
    """Return the profile to publish with: the weakest of those that were offered."""
    try:
        offered: Any = yaml.safe_load(text) or []
        kinds = [(str(each['reliability']), str(each['durability'])) for each in offered]
    except (yaml.YAMLError, KeyError, TypeError):
        kinds = []
    # By name, or by number as older versions of rosbag2 wrote it.
    best_effort = any(kind in ('best_effort', '2') for kind, _ in kinds)
    latched = bool(kinds) and all(kind in ('transient_local', '1') for _, kind in kinds)
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST, depth=_DEPTH,
        reliability=(ReliabilityPolicy.BEST_EFFORT if best_effort
                     else ReliabilityPolicy.RELIABLE),
        durability=(DurabilityPolicy.TRANSIENT_LOCAL if latched
                    else DurabilityPolicy.VOLATILE))
