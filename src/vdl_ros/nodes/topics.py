"""Print what topics there are: type, publishers, subscribers, rate and age (docs/nodes.md).

``ros2 topic list``, ``hz`` and ``delay`` in one table, also where ROS 2 is only wheels. Exit
status 1: no topic matches.
"""

import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rclpy.executors import Executor
from rclpy.logging import LoggingSeverity
from rclpy.node import Node
from rclpy.qos import QoSProfile

from vdl_ros.bags.reader import BagError
from vdl_ros.common.command_line import OneLineParser, aligned, number_above_0
from vdl_ros.common.quoting import shown
from vdl_ros.ros.bags.bag_writer import check_topic, message_class
from vdl_ros.ros.bags.recording import Recording
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.process import EXIT_OK, spin_until, split_words

EXIT_NOTHING = 1
_DISCOVER_S = 0.1
# Of a message whose first field is a header: the stamp, after the four bytes of its encapsulation.
_STAMP, _AT = struct.Struct('<iI'), 4
_HEAD = 'topic', 'type', 'publishers', 'subscribers', 'messages/s', 'age (s)'


@dataclass
class _Count:
    is_stamped: bool
    messages: int = 0
    first: float = 0.0
    last: float = 0.0
    age: float | None = None

    @property
    def rate(self) -> float:
        """Messages per second; of a single one it is not known."""
        return (self.messages - 1) / (self.last - self.first) if self.messages > 1 else 0.0


class TopicCounts:
    """Counts messages, which it takes as a bag does, undecoded; ``node`` looks at the graph."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._counts: dict[str, _Count] = {}
        self._names: list[str] = []

    @staticmethod
    def cannot_count(type_name: str) -> bool:
        """Return whether a type is not installed here, or no message's."""
        try:
            message_class(type_name)
        except BagError:
            return True
        return False

    def add_topic(self, name: str, type_name: str, profiles: list[QoSProfile]) -> int:
        fields = message_class(type_name).get_fields_and_field_types()  # type: ignore[attr-defined]
        first = next(iter(fields.items()), None)
        self._counts[name] = _Count(first == ('header', 'std_msgs/Header'))
        self._names.append(name)
        return len(self._names) - 1

    def write(self, handle: int, stamp_ns: int, data: bytes) -> None:
        count = self._counts[self._names[handle]]
        count.messages, count.last = count.messages + 1, stamp_ns * 1e-9
        if count.messages == 1:
            count.first = count.last
        if count.is_stamped and len(data) >= _AT + _STAMP.size:
            seconds, nanoseconds = _STAMP.unpack_from(data, _AT)
            # Without a stamp, or by a simulated clock, it tells nothing.
            age = stamp_ns * 1e-9 - seconds - nanoseconds * 1e-9
            count.age = age if abs(age) < 3600.0 else None

    def table(self, matches: Callable[[str], bool]) -> list[str]:
        """Return a line for each topic that matches, below a head; none without any."""
        rows = [_HEAD]
        for name, types in sorted(self._node.get_topic_names_and_types()):
            if not matches(name):
                continue
            try:
                check_topic(name)
            except BagError:
                continue
            count = self._counts.get(name)
            # Without what counts.
            subscribers = self._node.count_subscribers(name) - (count is not None)
            rows.append((
                name, shown(types[0].replace('/msg/', '/')),
                str(self._node.count_publishers(name)), str(subscribers),
                '-' if count is None else f'{count.rate:.1f}',
                '-' if count is None or count.age is None else f'{count.age:.3f}'))
        return aligned(rows, range(2, len(_HEAD))) if len(rows) > 1 else []


class TopicsNode(BaseNode):
    """Counts for some seconds."""

    NAME = 'topics'

    def __init__(self, patterns: Sequence[str] = ('*',), seconds: float = 3.0) -> None:
        super().__init__()
        # What it listens to is in the table.
        self.get_logger().set_level(LoggingSeverity.WARN)
        self._seconds, self._counts = seconds, TopicCounts(self)
        self._recording = Recording(
            self, ','.join(patterns), self._counts, self._counts.cannot_count)
        self.every(_DISCOVER_S, self._recording.discover_topics)

    def work(self, executor: Executor, stop: threading.Event) -> int:
        spin_until(lambda: False, executor, stop, self._seconds)
        self._recording.flush()
        lines = self._counts.table(self._recording.matches)
        print('\n'.join(lines) or 'no topic matches')
        return EXIT_OK if lines else EXIT_NOTHING

    def stop(self) -> None:
        self._recording.close()


def main(args: Sequence[str] | None = None) -> int:
    parser = OneLineParser(
        prog='topics', description='Print topics with type, publishers, subscribers, messages/s '
        'and age.')
    parser.add_argument('pattern', nargs='*', default=['*'], help='shell patterns of names [*]')
    parser.add_argument('--seconds', type=number_above_0, default=3.0,
                        help='how long it counts [3]')
    options, words = split_words(parser, args)
    return TopicsNode.main(words, options.pattern, options.seconds)
