"""Print what topics there are: type, publishers, subscribers, rate and age (docs/nodes.md).

``ros2 topic list``, ``hz`` and ``delay`` in one table, also where ROS 2 is only wheels. Exit
status 1: no topic matches.
"""

import argparse
import threading
from collections.abc import Sequence

from rclpy.executors import Executor
from rclpy.logging import LoggingSeverity

from vdl_ros.common.command_line import number_above_0
from vdl_ros.ros.bags.recording import Recording
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.node_settings import RecordConfig
from vdl_ros.ros.process import EXIT_OK, spin_until, split_words
from vdl_ros.ros.statistics.topic_counts import TopicCounts

EXIT_NOTHING = 1
_DISCOVER_S = 0.1


class TopicsNode(BaseNode):
    """Counts for some seconds."""

    NAME = 'topics'

    def __init__(self, patterns: Sequence[str] = ('*',), seconds: float = 3.0) -> None:
        super().__init__()
        # What it listens to is in the table.
        self.get_logger().set_level(LoggingSeverity.WARN)
        self._seconds, self._counts = seconds, TopicCounts(self)
        self._recording = Recording(
            self, RecordConfig(topics=','.join(patterns)), self._counts,
            self._counts.cannot_count)
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
    parser = argparse.ArgumentParser(
        prog='topics', description='Print topics with type, publishers, subscribers, messages/s '
        'and age.')
    parser.add_argument('pattern', nargs='*', default=['*'], help='shell patterns of names [*]')
    parser.add_argument('--seconds', type=number_above_0, default=3.0,
                        help='how long it counts [3]')
    options, words = split_words(parser, args)
    return TopicsNode.main(words, options.pattern, options.seconds)
