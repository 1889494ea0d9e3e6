"""Messages of any topics, counted without decoding them."""

import struct
from collections.abc import Callable
from dataclasses import dataclass

from rclpy.node import Node
from rclpy.qos import QoSProfile

from vdl_ros.bags.reader import BagError
from vdl_ros.common.quoting import shown
from vdl_ros.ros.bags.bag_writer import check_topic, message_class

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
    """Takes messages as a bag does; ``node`` looks at the graph."""

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
        if len(rows) == 1:
            return []
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return ['  '.join(
            text.ljust(width) if index < 2 else text.rjust(width)
            for index, (text, width) in enumerate(zip(row, widths, strict=True))).rstrip()
            for row in rows]
