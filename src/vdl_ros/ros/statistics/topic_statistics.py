"""
Topic statistics: age and period of messages on ``/statistics``, by rclcpp's contract.

rclpy has none. As in rclcpp: a ``statistics_msgs/MetricsMessage`` each second for
``message_age`` and one for ``message_period``, in ms, with average, minimum, maximum, standard
deviation and count of that second, NaN where nothing was measured. Unlike rclcpp,
``measurement_source_name`` is ``<node>:<topic>``, so that several subscriptions of a node can be
told apart. Age needs synchronised clocks where messages come from another host.

Beyond rclcpp, a subscriber that can tell how many messages it missed says so in a third message,
``message_loss`` in messages: its window begins with the subscription, its only point is the count
of that window. So whoever listens later, or misses a report, still knows of all of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from builtin_interfaces.msg import Time
from rclpy.node import Node
from rclpy.time import Time as ClockTime
from statistics_msgs.msg import MetricsMessage, StatisticDataPoint, StatisticDataType

from vdl_ros.ros import qos
from vdl_ros.ros.statistics.statistics_reader import AGE, LOSS, PERIOD, UNITS

__all__ = ['RunningStatistic', 'TopicStatistics']

_PERIOD_S = 1.0


class RunningStatistic:
    """Mean, extremes and deviation of numbers seen once (Welford 1962)."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self.count = 0
        self.mean = 0.0
        self.minimum = math.inf
        self.maximum = -math.inf
        self._squares = 0.0

    def add(self, value: float) -> None:
        """See one more number."""
        self.count += 1
        delta = value - self.mean
        self.mean += delta / self.count
        self._squares += delta * (value - self.mean)
        self.minimum = min(self.minimum, value)
        self.maximum = max(self.maximum, value)

    @property
    def deviation(self) -> float:
        """Standard deviation of all that was seen; NaN before the first."""
        return math.sqrt(self._squares / self.count) if self.count else math.nan

    def points(self) -> list[StatisticDataPoint]:
        """Return the five points of rclcpp's contract."""
        known = self.count > 0
        return [
            StatisticDataPoint(data_type=kind, data=float(value)) for kind, value in (
                (StatisticDataType.STATISTICS_DATA_TYPE_AVERAGE, self.mean if known else math.nan),
                (StatisticDataType.STATISTICS_DATA_TYPE_MINIMUM,
                 self.minimum if known else math.nan),
                (StatisticDataType.STATISTICS_DATA_TYPE_MAXIMUM,
                 self.maximum if known else math.nan),
                (StatisticDataType.STATISTICS_DATA_TYPE_STDDEV, self.deviation),
                (StatisticDataType.STATISTICS_DATA_TYPE_SAMPLE_COUNT, self.count))]


class TopicStatistics:
    """
    Measures one subscription of a node and publishes each second.

    Call :meth:`received` first thing in the subscription's callback.
    """

    def __init__(
        self, node: Node, topic: str, lost: Callable[[], int] | None = None,
    ) -> None:
        """
        Measure ``topic`` on behalf of ``node``.

        Args:
            node: who subscribes.
            topic: as the node names it.
            lost: returns how many messages were lost so far; None if nobody knows.
        """
        self._node, self._lost = node, lost
        self._born = node.get_clock().now()
        self._source = f'{node.get_fully_qualified_name()}:{topic}'
        self._publisher = node.create_publisher(
            MetricsMessage, '/statistics', qos.TOPICS['/statistics'])
        self._last: float | None = None
        self._start_window()
        self._timer = node.create_timer(_PERIOD_S, self._publish)

    def _start_window(self) -> None:
        self._ages, self._periods = RunningStatistic(), RunningStatistic()
        self._window_start = self._node.get_clock().now()

    def received(self, stamp: Time | None = None) -> float:
        """
        Note that a message has come.

        Args:
            stamp: of its header, the moment its content was measured; None if it has none.

        Returns:
            Its age in seconds; NaN without a stamp.
        """
        now = time.monotonic()
        if self._last is not None:
            self._periods.add((now - self._last) * 1e3)
        self._last = now
        if stamp is None:
            return math.nan
        measured = stamp.sec + stamp.nanosec * 1e-9
        age = float(self._node.get_clock().now().nanoseconds * 1e-9 - measured)
        self._ages.add(age * 1e3)
        return age

    def close(self) -> None:
        """Measure no more."""
        self._node.destroy_timer(self._timer)
        self._node.destroy_publisher(self._publisher)

    def _publish(self) -> None:
        stop = self._node.get_clock().now()
        for metric, statistic in ((AGE, self._ages), (PERIOD, self._periods)):
            self._say(metric, self._window_start, stop, statistic.points())
        if self._lost is not None:
            self._say(LOSS, self._born, stop, [StatisticDataPoint(
                data_type=StatisticDataType.STATISTICS_DATA_TYPE_SAMPLE_COUNT,
                data=float(self._lost()))])
        self._start_window()

    def _say(
        self, metric: str, start: ClockTime, stop: ClockTime, points: list[StatisticDataPoint],
    ) -> None:
        self._publisher.publish(MetricsMessage(
            measurement_source_name=self._source, metrics_source=metric, unit=UNITS[metric],
            window_start=start.to_msg(), window_stop=stop.to_msg(), statistics=points))
