"""Print a live table of the age and rate of messages, one row per subscription.

Subscribes to ``/statistics`` (statistics_msgs/MetricsMessage), on which the subscribers of this
package, and those of rclcpp with topic statistics, publish what they measure. Publishes nothing.
Parameters: docs/nodes.md, or ``ros2 run vdl_ros topic_stats --help``.

Exit status: 0; with once:=true 1 if there was nothing to show.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence

from rclpy.node import Node
from statistics_msgs.msg import MetricsMessage

from vdl_ros.common.settings import select
from vdl_ros.ros import qos
from vdl_ros.ros.node_settings import ProcessConfig, TopicStatsConfig
from vdl_ros.ros.process import EXIT_OK, make_executor, run_node, take_settings
from vdl_ros.ros.statistics.readers import Screen, TopicTable, table_text
from vdl_ros.ros.statistics.statistics import (
    is_reaction_time,
    is_scalar,
    is_thread_time,
    read_window,
)

EXIT_NOTHING = 1

SETTINGS = (TopicStatsConfig, ProcessConfig)


class TopicStatsNode(Node):
    """Collects reports in a table.

    Raises:
        SettingError: a parameter that is unknown or not allowed.
    """

    def __init__(self) -> None:
        super().__init__('topic_stats')
        given, self.process = take_settings(self, *SETTINGS)
        self.config = select(TopicStatsConfig, given)
        self.table = TopicTable(self.config.topics, self.config.period)
        self.create_subscription(
            MetricsMessage, '/statistics', self._on_statistics, qos.TOPICS['/statistics'])

    def _on_statistics(self, message: MetricsMessage) -> None:
        if not (is_thread_time(message) or is_reaction_time(message) or is_scalar(message)):
            self.table.add(read_window(message), time.monotonic())

    def text(self) -> str:
        """Return the current table."""
        return table_text(self.table.rows(time.monotonic()), self.table.left_out)


def show(node: TopicStatsNode, stop: threading.Event) -> int:
    """Print tables until ``stop`` is set, or one; return the exit status."""
    executor = make_executor(node.process.executor)
    executor.add_node(node)

    def spin_for(seconds: float, enough: Callable[[], bool] = lambda: False) -> None:
        end = time.monotonic() + seconds
        while not stop.is_set() and time.monotonic() < end and not enough():
            executor.spin_once(timeout_sec=0.1)

    screen = Screen(sys.stdout)
    try:
        if node.config.once:
            spin_for(node.config.wait, enough=node.table.has_rows)
            found = node.table.has_rows()
            if found:
                spin_for(node.config.period)
            screen.show(node.text())
            return EXIT_OK if found else EXIT_NOTHING
        while not stop.is_set():
            screen.show(node.text())
            spin_for(node.config.period)
    except BrokenPipeError:
        # The pipe is closed, as by head; the interpreter must not write to it when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        executor.remove_node(node)
    return EXIT_OK


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node('topic_stats', TopicStatsNode, show, SETTINGS, args)


if __name__ == '__main__':
    raise SystemExit(main())
