"""Topic statistics on ``/statistics``: age, period and loss of messages; published and read.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.time import Time as ClockTime
from statistics_msgs.msg import MetricsMessage, StatisticDataPoint, StatisticDataType

from vdl_ros.common.metrics import (
    ACTING,
    CALLBACKS,
    INFERENCE,
    PARTS,
    PHASES,
    TRAINING,
    ReactionTime,
    ThreadTimer,
    TimerWindow,
)
from vdl_ros.ros import qos

__all__ = ['AGE', 'Figures', 'LOSS', 'MAX_POINTS', 'PERIOD', 'ReactionTimeStatistics',
           'RunScalars', 'Scalar', 'Share', 'ThreadTimeStatistics', 'TopicStatistics', 'Window',
           'absolute_name', 'combine', 'is_reaction_time', 'is_scalar', 'is_thread_time',
           'mean_shares', 'printable', 'read_scalar', 'read_share', 'read_window',
           'statistic_points', 'window_seconds']


AGE, PERIOD, LOSS = 'message_age', 'message_period', 'message_loss'
_UNITS = {AGE: 'ms', PERIOD: 'ms', LOSS: 'messages'}
_PERIOD_S = 1.0

# Limits for messages of unknown publishers: of a name in ROS, of points (five types exist), of a
# count.
_MAX_NAME = 255
MAX_POINTS = 64
_MAX_COUNT = 2**53


class TopicStatistics:
    """Measures one subscription of a node and publishes the result each second.

    Call :meth:`received` first in the subscription's callback.

    Args:
        topic: name of the topic, as the node uses it.
        lost: returns the number of messages lost so far; None if it is unknown.
    """

    def __init__(
        self, node: Node, topic: str, lost: Callable[[], int] | None = None,
    ) -> None:
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
        """Record that a message has arrived.

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
    """One metric of one subscription over one time window.

    Attributes:
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
    """Several windows of one subscription combined; NaN where nothing was measured.

    Attributes:
        rate_hz: messages per second.
        age_mean_ms: from the header's stamp to the callback, as the two that follow.
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


_TIME_UNIT = 'share'
_TIME_PREFIX = 'time_'
_AVERAGE = StatisticDataType.STATISTICS_DATA_TYPE_AVERAGE
_TIME_METRICS = {f'{_TIME_PREFIX}{thread}_{phase}': (thread, phase)
            for thread in (ACTING, TRAINING, CALLBACKS, INFERENCE) for phase in PHASES}


class ThreadTimeStatistics:
    """Publishes the time shares of a node's threads each second."""

    def __init__(self, node: Node, timers: Mapping[str, ThreadTimer]) -> None:
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
                    metrics_source=f'{_TIME_PREFIX}{thread}_{phase}', unit=_TIME_UNIT,
                    window_start=start.to_msg(), window_stop=self._start.to_msg(),
                    statistics=[StatisticDataPoint(data_type=_AVERAGE, data=share)]))


@dataclass(frozen=True)
class Share:
    """One phase of one thread over one time window.

    Attributes:
        node: the thread's node.
        thread: its name in ``common/metrics.py``.
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
    return message.metrics_source in _TIME_METRICS


def read_share(message: MetricsMessage) -> Share | None:
    """Return the content of ``message``; None for another metric or unit, or if malformed."""
    if not is_thread_time(message) or message.unit != _TIME_UNIT:
        return None
    points = [float(point.data) for point in itertools.islice(message.statistics, MAX_POINTS)
              if point.data_type == _AVERAGE]
    node = printable(message.measurement_source_name)
    seconds = window_seconds(message.window_start, message.window_stop)
    if not node or math.isnan(seconds) or len(points) != 1 or not 0 <= points[0] <= 1:
        return None
    return Share(node, *_TIME_METRICS[message.metrics_source], seconds, points[0])


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


_SUM, _LATE = 'reaction_time', 'late_actions'
_REACTION_METRICS = (_SUM, *(f'{_SUM}_{part}' for part in PARTS), _LATE)


class ReactionTimeStatistics:
    """Publishes a node's reaction times each second; nothing while there are none."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._reaction_time, self._late = ReactionTime(), 0
        self._start = node.get_clock().now()
        self._publisher = node.create_publisher(
            MetricsMessage, '/statistics', qos.TOPICS['/statistics'])
        node.create_timer(_PERIOD_S, self._publish)

    def add(self, extras: Mapping[str, NDArray[Any]]) -> None:
        """Add steps, by the names of ``rl/data/unroll.py``, [..., 4] and [...]."""
        if 'reaction_time' in extras:
            self._reaction_time.extend(extras['reaction_time'])
        if 'late_actions' in extras:
            self._late += int(extras['late_actions'].sum())

    def _publish(self) -> None:
        start, self._start = self._start, self._node.get_clock().now()
        late, self._late = self._late, 0
        parts = 1e3 * self._reaction_time.take()
        if not len(parts):
            return
        self._send(_SUM, start, 'ms', statistic_points(parts.sum(axis=1)))
        for name, values in zip(PARTS, parts.T, strict=True):
            self._send(f'{_SUM}_{name}', start, 'ms', statistic_points(values))
        self._send(_LATE, start, 'actions', [StatisticDataPoint(
            data_type=StatisticDataType.STATISTICS_DATA_TYPE_SAMPLE_COUNT, data=float(late))])

    def _send(
        self, metric: str, start: Any, unit: str, points: Sequence[StatisticDataPoint],
    ) -> None:
        self._publisher.publish(MetricsMessage(
            measurement_source_name=self._node.get_fully_qualified_name(), metrics_source=metric,
            unit=unit, window_start=start.to_msg(), window_stop=self._start.to_msg(),
            statistics=points))


def is_reaction_time(message: MetricsMessage) -> bool:
    """Return whether a message is of these by its name, well-formed or not."""
    return message.metrics_source in _REACTION_METRICS


_SCALAR_UNIT = 'scalar'
_SCALAR_PREFIX = 'scalar_'
# Tags of other reports on this topic.
_REPORTED = ('time/', 'topics/')
_LONGEST_TAG = 80
_VALUE = StatisticDataType.STATISTICS_DATA_TYPE_AVERAGE


class RunScalars:
    """Publishes the newest scalars each second."""

    def __init__(self, node: Node, scalars: Callable[[], Mapping[str, float]]) -> None:
        self._node, self._scalars = node, scalars
        self._publisher = node.create_publisher(
            MetricsMessage, '/statistics', qos.TOPICS['/statistics'])
        node.create_timer(_PERIOD_S, self._publish)

    def _publish(self) -> None:
        now = self._node.get_clock().now().to_msg()
        for tag, value in self._scalars().items():
            if not tag.startswith(_REPORTED):
                self._publisher.publish(MetricsMessage(
                    measurement_source_name=self._node.get_fully_qualified_name(),
                    metrics_source=f'{_SCALAR_PREFIX}{tag}', unit=_SCALAR_UNIT, window_start=now,
                    window_stop=now,
                    statistics=[StatisticDataPoint(data_type=_VALUE, data=float(value))]))


@dataclass(frozen=True)
class Scalar:
    """One value of a run."""

    node: str
    tag: str
    value: float


def is_scalar(message: MetricsMessage) -> bool:
    """Return whether a message is a run's scalar by its name, well-formed or not."""
    return str(message.metrics_source).startswith(_SCALAR_PREFIX)


def read_scalar(message: MetricsMessage) -> Scalar | None:
    """Return the content of ``message``; None for another metric, if malformed or not finite."""
    if not is_scalar(message) or message.unit != _SCALAR_UNIT:
        return None
    points = [float(point.data) for point in itertools.islice(message.statistics, MAX_POINTS)
              if point.data_type == _VALUE]
    node = printable(message.measurement_source_name)
    tag = printable(message.metrics_source.removeprefix(_SCALAR_PREFIX))
    if not node or not 0 < len(tag) <= _LONGEST_TAG:
        return None
    if len(points) != 1 or not math.isfinite(points[0]):
        return None
    return Scalar(node, tag, points[0])
