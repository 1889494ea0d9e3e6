"""
Topic statistics on ``/statistics``: age, period and loss of messages; published and read.

rclpy has no topic statistics. The messages follow rclcpp: one ``statistics_msgs/MetricsMessage``
each second for ``message_age`` and one for ``message_period``, in ms, with average, minimum,
maximum, standard deviation and count of that second, NaN where nothing was measured. Unlike in
rclcpp, ``measurement_source_name`` is ``<node>:<topic>``, which distinguishes the subscriptions of
a node. The age of messages from another host requires synchronised clocks.

A subscriber that counts lost messages adds a third message, ``message_loss`` in messages: its
window starts with the subscription and its only point is the count of that window. A listener
that joins late or misses a report thus still gets the total.

The reader accepts messages of any publisher, such as rclcpp: it skips what it cannot interpret
and never raises.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from builtin_interfaces.msg import Time
from rclpy.node import Node
from rclpy.time import Time as ClockTime
from statistics_msgs.msg import MetricsMessage, StatisticDataPoint, StatisticDataType

from vdl_ros.ros import qos

__all__ = ['AGE', 'LOSS', 'MAX_POINTS', 'PERIOD', 'Figures', 'TopicStatistics', 'Window',
           'absolute_name', 'combine', 'printable', 'read_window', 'statistic_points',
           'window_seconds']

AGE, PERIOD, LOSS = 'message_age', 'message_period', 'message_loss'
_UNITS = {AGE: 'ms', PERIOD: 'ms', LOSS: 'messages'}
_PERIOD_S = 1.0

# Limits for messages of unknown publishers: of a name in ROS, of points (five types exist), of a
# count.
_MAX_NAME = 255
MAX_POINTS = 64
_MAX_COUNT = 2**53


class TopicStatistics:
    """
    Measures one subscription of a node and publishes the result each second.

    Call :meth:`received` first in the subscription's callback.
    """

    def __init__(
        self, node: Node, topic: str, lost: Callable[[], int] | None = None,
    ) -> None:
        """
        Start to measure.

        Args:
            node: the subscriber.
            topic: name of the topic, as the node uses it.
            lost: returns the number of messages lost so far; None if it is unknown.
        """
        self._node, self._lost = node, lost
        self._start = node.get_clock().now()
        self._source = f'{node.get_fully_qualified_name()}:{topic}'
        self._publisher = node.create_publisher(
            MetricsMessage, '/statistics', qos.TOPICS['/statistics'])
        self._last: float | None = None
        self._start_window()
        self._timer = node.create_timer(_PERIOD_S, self._publish)

    def _start_window(self) -> None:
        self._ages_ms: list[float] = []
        self._periods_ms: list[float] = []
        self._window_start = self._node.get_clock().now()

    def received(self, stamp: Time | None = None) -> float:
        """
        Record that a message has arrived.

        Args:
            stamp: of its header, the time of measurement; None if it has no header.

        Returns:
            Its age in seconds; NaN without a stamp.
        """
        now = time.monotonic()
        if self._last is not None:
            self._periods_ms.append((now - self._last) * 1e3)
        self._last = now
        if stamp is None:
            return math.nan
        measured = stamp.sec + stamp.nanosec * 1e-9
        age = float(self._node.get_clock().now().nanoseconds * 1e-9 - measured)
        self._ages_ms.append(age * 1e3)
        return age

    def close(self) -> None:
        """Stop measuring and publishing."""
        self._node.destroy_timer(self._timer)
        self._node.destroy_publisher(self._publisher)

    def _publish(self) -> None:
        stop = self._node.get_clock().now()
        for metric, values in ((AGE, self._ages_ms), (PERIOD, self._periods_ms)):
            self._send(metric, self._window_start, stop, statistic_points(values))
        if self._lost is not None:
            self._send(LOSS, self._start, stop, [StatisticDataPoint(
                data_type=StatisticDataType.STATISTICS_DATA_TYPE_SAMPLE_COUNT,
                data=float(self._lost()))])
        self._start_window()

    def _send(
        self, metric: str, start: ClockTime, stop: ClockTime, points: list[StatisticDataPoint],
    ) -> None:
        self._publisher.publish(MetricsMessage(
            measurement_source_name=self._source, metrics_source=metric, unit=_UNITS[metric],
            window_start=start.to_msg(), window_stop=stop.to_msg(), statistics=points))


def statistic_points(values: Sequence[float]) -> list[StatisticDataPoint]:
    """Return average, minimum, maximum, standard deviation and count, as rclcpp does."""
    array = np.asarray(values if len(values) else [math.nan], dtype=np.float64)
    return [
        StatisticDataPoint(data_type=kind, data=float(value)) for kind, value in (
            (StatisticDataType.STATISTICS_DATA_TYPE_AVERAGE, array.mean()),
            (StatisticDataType.STATISTICS_DATA_TYPE_MINIMUM, array.min()),
            (StatisticDataType.STATISTICS_DATA_TYPE_MAXIMUM, array.max()),
            (StatisticDataType.STATISTICS_DATA_TYPE_STDDEV, array.std()),
            (StatisticDataType.STATISTICS_DATA_TYPE_SAMPLE_COUNT, len(values)))]


@dataclass(frozen=True)
class Window:
    """
    One metric of one subscription over one time window.

    Attributes:
        node: the subscriber.
        topic: absolute name; '' if the report has none, as those of rclcpp.
        metric: AGE, PERIOD or LOSS.
        seconds: length of the window; NaN if it is invalid.
        count: messages measured in it; with LOSS those lost in it.
        mean: ms; NaN if it is unknown, as the two that follow.
        maximum: ms.
        deviation: standard deviation, ms.
    """

    node: str
    topic: str
    metric: str
    seconds: float
    count: int
    mean: float = math.nan
    maximum: float = math.nan
    deviation: float = math.nan


def read_window(message: MetricsMessage) -> Window | None:
    """Return the content of ``message``; None for another metric or unit, or if malformed."""
    metric = message.metrics_source
    if _UNITS.get(metric) != message.unit:
        return None
    points = {point.data_type: float(point.data)
              for point in itertools.islice(message.statistics, MAX_POINTS)}
    count = points.get(StatisticDataType.STATISTICS_DATA_TYPE_SAMPLE_COUNT, math.nan)
    if not 0 <= count <= _MAX_COUNT:
        return None
    node, _, topic = printable(message.measurement_source_name).partition(':')
    if not node:
        return None
    deviation = _finite(points.get(StatisticDataType.STATISTICS_DATA_TYPE_STDDEV))
    return Window(
        node, absolute_name(node, topic), metric,
        seconds=window_seconds(message.window_start, message.window_stop), count=int(count),
        mean=_finite(points.get(StatisticDataType.STATISTICS_DATA_TYPE_AVERAGE)),
        maximum=_finite(points.get(StatisticDataType.STATISTICS_DATA_TYPE_MAXIMUM)),
        deviation=deviation if deviation >= 0 else math.nan)


def absolute_name(node: str, topic: str) -> str:
    """Return the absolute name of ``topic``, resolved in the namespace of ``node``."""
    if not topic or topic.startswith('/'):
        return topic
    if topic.startswith('~'):
        return node + topic[1:]
    return f'{node.rpartition("/")[0]}/{topic}'


def printable(name: str) -> str:
    """Return ``name`` truncated and without control characters, safe for a terminal."""
    return ''.join(letter if letter.isascii() and letter.isprintable() else '?'
                   for letter in name[:_MAX_NAME])


def window_seconds(start: Time, stop: Time) -> float:
    """Return the length of a window in seconds; NaN if it does not end after its start."""
    length = float(stop.sec - start.sec + (stop.nanosec - start.nanosec) * 1e-9)
    return length if length > 0 else math.nan


def _finite(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else math.nan


@dataclass(frozen=True)
class Figures:
    """
    Several windows of one subscription combined; NaN where nothing was measured.

    Attributes:
        rate_hz: messages per second.
        age_mean_ms: from the header's stamp to the callback, as the two that follow.
        age_std_ms: standard deviation over all messages.
        age_max_ms: of the oldest message.
        samples: messages measured.
        lost: messages lost since the subscription began; None if unknown.
    """

    rate_hz: float
    age_mean_ms: float
    age_std_ms: float
    age_max_ms: float
    samples: int
    lost: int | None = None


def combine(windows: Sequence[Window]) -> Figures:
    """Return the figures of all ``windows``; the last one of LOSS includes those before it."""
    ages, periods, losses = ([each for each in windows if each.metric == metric]
                             for metric in (AGE, PERIOD, LOSS))
    # Messages without a stamp have no age, but a period.
    counted = ages if not periods or any(each.count for each in ages) else periods
    mean, deviation = _pooled([each for each in ages if each.count])
    return Figures(
        rate_hz=_rate(counted), age_mean_ms=mean, age_std_ms=deviation,
        age_max_ms=max((each.maximum for each in ages
                        if each.count and not math.isnan(each.maximum)), default=math.nan),
        samples=sum(each.count for each in counted),
        lost=losses[-1].count if losses else None)


def _rate(windows: Sequence[Window]) -> float:
    timed = [each for each in windows if not math.isnan(each.seconds)]
    seconds = sum(each.seconds for each in timed)
    return sum(each.count for each in timed) / seconds if timed else math.nan


def _pooled(windows: Sequence[Window]) -> tuple[float, float]:
    """Return mean and standard deviation over the messages of all ``windows``."""
    known = [each for each in windows if not math.isnan(each.mean)]
    count = sum(each.count for each in known)
    if not count:
        return math.nan, math.nan
    mean = sum(each.mean * each.count for each in known) / count
    # Products overflow to infinity; powers would raise.
    squares = sum(each.count * (each.deviation * each.deviation
                                + (each.mean - mean) * (each.mean - mean)) for each in known)
    return _finite(mean), _finite(math.sqrt(squares / count))
