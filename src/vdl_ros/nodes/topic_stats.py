"""Print a live table of the age and rate of messages, one row per subscription.

The subscribers of this package, and those of rclcpp with topic statistics, report them on
``/statistics``. Exit status: 0; with once:=true 1 if there was nothing to show.
"""

import os
import sys
import threading
import time

from rclpy.executors import Executor
from statistics_msgs.msg import MetricsMessage

from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.node_settings import TopicStatsConfig
from vdl_ros.ros.process import EXIT_OK, spin_until
from vdl_ros.ros.statistics.readers import Screen, TopicTable, table_text
from vdl_ros.ros.statistics.statistics import is_of_topic, read

EXIT_NOTHING = 1


class TopicStatsNode(BaseNode):
    """Collects reports in a table."""

    NAME = 'topic_stats'
    SETTINGS = (TopicStatsConfig,)

    def __init__(self) -> None:
        super().__init__()
        config = self.settings(TopicStatsConfig)
        self.table = TopicTable(config.topics, config.period)
        self.sub('/statistics', self._on_statistics)

    def _on_statistics(self, message: MetricsMessage) -> None:
        if is_of_topic(message):
            self.table.add(read(message), time.monotonic())

    def text(self) -> str:
        return table_text(self.table.rows(time.monotonic()), self.table.left_out)

    def work(self, executor: Executor, stop: threading.Event) -> int:
        config, screen = self.settings(TopicStatsConfig), Screen(sys.stdout)
        try:
            if config.once:
                found = spin_until(self.table.has_rows, executor, stop, config.wait)
                if found:
                    spin_until(lambda: False, executor, stop, config.period)
                screen.show(self.text())
                return EXIT_OK if found else EXIT_NOTHING
            while not stop.is_set():
                screen.show(self.text())
                spin_until(lambda: False, executor, stop, config.period)
        except BrokenPipeError:
            # The pipe is closed, as by head; the interpreter must not write to it when it exits.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK


main = TopicStatsNode.main
