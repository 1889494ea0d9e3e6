"""
Time shares of a process's threads on ``/statistics``, measured by ``common/thread_timer.py``.

One message per second for each phase that a thread has been in: ``measurement_source_name`` is the
node's full name, ``metrics_source`` is ``time_<thread>_<phase>``, as ``time_acting_step``,
``unit`` is ``share``; the only point, an average, is the share of the window's wall time. The
shares of one thread and window add up to 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rclpy.node import Node
from statistics_msgs.msg import MetricsMessage, StatisticDataPoint, StatisticDataType

from vdl_ros.common.thread_timer import (
    ACTING,
    CALLBACKS,
    INFERENCE,
    PHASES,
    TRAINING,
    ThreadTimer,
    TimerWindow,
)
from vdl_ros.ros import qos
from vdl_ros.ros.statistics.topic_statistics import MAX_POINTS, printable, window_seconds

__all__ = ['Share', 'ThreadTimeStatistics', 'is_thread_time', 'mean_shares', 'read_share']

_PERIOD_S = 1.0
_UNIT = 'share'
_PREFIX = 'time_'
_AVERAGE = StatisticDataType.STATISTICS_DATA_TYPE_AVERAGE
_METRICS = {f'{_PREFIX}{thread}_{phase}': (thread, phase)
            for thread in (ACTING, TRAINING, CALLBACKS, INFERENCE) for phase in PHASES}


class ThreadTimeStatistics:
    """Publishes the time shares of a node's threads each second."""

    def __init__(self, node: Node, timers: Mapping[str, ThreadTimer]) -> None:
        """Start to publish for ``node``; ``timers`` are by thread."""
        self._node = node
        self._windows = {thread: TimerWindow(timer) for thread, timer in timers.items()}
        self._start = node.get_clock().now()
        self._publisher = node.create_publisher(
            MetricsMessage, '/statistics', qos.TOPICS['/statistics'])
        node.create_timer(_PERIOD_S, self._publish)

    def _publish(self) -> None:
        start, self._start = self._start, self._node.get_clock().now()
        for thread, window in self._windows.items():
            for phase, share in window.take().items():
                self._publisher.publish(MetricsMessage(
                    measurement_source_name=self._node.get_fully_qualified_name(),
                    metrics_source=f'{_PREFIX}{thread}_{phase}', unit=_UNIT,
                    window_start=start.to_msg(), window_stop=self._start.to_msg(),
                    statistics=[StatisticDataPoint(data_type=_AVERAGE, data=share)]))


@dataclass(frozen=True)
class Share:
    """
    One phase of one thread over one time window.

    Attributes:
        node: the thread's node.
        thread: its name in ``common/thread_timer.py``.
        phase: one of PHASES.
        seconds: the window's length.
        share: of the window, 0 to 1.
    """

    node: str
    thread: str
    phase: str
    seconds: float
    share: float


def is_thread_time(message: MetricsMessage) -> bool:
    """Return whether a message is a thread's time share by its name, well-formed or not."""
    return message.metrics_source in _METRICS


def read_share(message: MetricsMessage) -> Share | None:
    """Return the content of ``message``; None for another metric or unit, or if malformed."""
    if not is_thread_time(message) or message.unit != _UNIT:
        return None
    points = [float(point.data) for point in itertools.islice(message.statistics, MAX_POINTS)
              if point.data_type == _AVERAGE]
    node = printable(message.measurement_source_name)
    seconds = window_seconds(message.window_start, message.window_stop)
    if not node or math.isnan(seconds) or len(points) != 1 or not 0 <= points[0] <= 1:
        return None
    return Share(node, *_METRICS[message.metrics_source], seconds, points[0])


def mean_shares(shares: Iterable[Share]) -> dict[str, dict[str, float]]:
    """Return the mean shares by thread and phase, over the time reported for each phase."""
    spent: dict[tuple[str, str], tuple[float, float]] = {}
    for each in shares:
        # Not over the time of all reports: the reports of one window arrive one by one.
        seconds, total = spent.get((each.thread, each.phase), (0.0, 0.0))
        spent[each.thread, each.phase] = (
            seconds + each.share * each.seconds, total + each.seconds)
    found: dict[str, dict[str, float]] = {}
    for (thread, phase), (seconds, total) in spent.items():
        found.setdefault(thread, {})[phase] = seconds / total
    return found
