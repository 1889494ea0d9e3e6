"""What nodes measure, on ``/statistics``: published each second, and read.

rclpy has no topic statistics. The messages follow rclcpp: one ``statistics_msgs/MetricsMessage``
each second for ``message_age`` and one for ``message_period``, in ms, NaN where nothing was
measured. Unlike in rclcpp, ``measurement_source_name`` is ``<node>:<topic>``, which distinguishes
the subscriptions of a node. The age of messages from another host requires synchronised clocks.

A subscriber that counts lost messages adds a third message, ``message_loss``: its window starts
with the subscription, so that a listener that joins late or misses a report gets the total.

Nodes of a training also publish the time shares of their threads, reaction times and the scalars
of a run. The reader skips what it cannot interpret, of any publisher, and never raises.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.time import Time as ClockTime
from statistics_msgs.msg import MetricsMessage, StatisticDataPoint, StatisticDataType

from vdl_ros.common import metrics
from vdl_ros.ros import qos

AGE, PERIOD, LOSS = 'message_age', 'message_period', 'message_loss'
_REACTION_TIME, _LATE = 'reaction_time', 'late_actions'
_SCALAR = 'scalar_'
_THREADS = metrics.ACTING, metrics.TRAINING, metrics.CALLBACKS, metrics.INFERENCE
_SHARES = {f'time_{thread}_{phase}': (thread, phase)
           for thread in _THREADS for phase in metrics.PHASES}
_UNITS = {
    AGE: 'ms', PERIOD: 'ms', LOSS: 'messages', **dict.fromkeys(_SHARES, 'share'),
    _REACTION_TIME: 'ms', **{f'{_REACTION_TIME}_{part}': 'ms' for part in metrics.PARTS},
    _LATE: 'actions'}
_REPORTED = ('time/', 'topics/')  # tags of scalars that other metrics report

_PERIOD_S = 1.0
_AVERAGE = StatisticDataType.STATISTICS_DATA_TYPE_AVERAGE
_MAXIMUM = StatisticDataType.STATISTICS_DATA_TYPE_MAXIMUM
_DEVIATION = StatisticDataType.STATISTICS_DATA_TYPE_STDDEV
_COUNT = StatisticDataType.STATISTICS_DATA_TYPE_SAMPLE_COUNT
# Limits for messages of unknown publishers: of a name in ROS, of points (five types exist), of a
# count.
_MAX_NAME, _MAX_POINTS, _MAX_COUNT = 255, 64, 2**53

# Name of a metric, its points, and the start of its window.
_Report = tuple[str, Sequence[StatisticDataPoint], ClockTime]


def _unit(metric: str) -> str | None:
    return 'scalar' if metric.startswith(_SCALAR) else _UNITS.get(metric)


class _Publisher:
    """Publishes each second what a node has measured in it."""

    def __init__(self, node: Node, topic: str = '') -> None:
        self._node = node
        self._source = node.get_fully_qualified_name() + (f':{topic}' if topic else '')
        self._publisher = qos.pub(node, '/statistics')
        self._window_start = node.get_clock().now()
        self._timer = node.create_timer(_PERIOD_S, self._publish)

    def _reports(self, start: ClockTime, now: ClockTime) -> Iterator[_Report]:
        raise NotImplementedError

    def _publish(self) -> None:
        start, now = self._window_start, self._node.get_clock().now()
        self._window_start = now
        for metric, points, begin in self._reports(start, now):
            self._publisher.publish(MetricsMessage(
                measurement_source_name=self._source, metrics_source=metric, unit=_unit(metric),
                window_start=begin.to_msg(), window_stop=now.to_msg(), statistics=points))

    def close(self) -> None:
        self._node.destroy_timer(self._timer)
        self._node.destroy_publisher(self._publisher)


class TopicStatistics(_Publisher):
    """Age, period and loss of the messages of one subscription.

    Call :meth:`received` first in its callback. ``lost`` returns the number lost so far.
    """

    def __init__(self, node: Node, topic: str, lost: Callable[[], int] | None = None) -> None:
        super().__init__(node, topic)
        self._lost, self._begun = lost, self._window_start
        self._last: float | None = None
        self._ages_ms: list[float] = []
        self._periods_ms: list[float] = []

    def received(self, stamp: Time | None = None) -> float:
        """Record a message by its header's stamp; return its age, s, NaN without a stamp."""
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

    def _reports(self, start: ClockTime, now: ClockTime) -> Iterator[_Report]:
        for metric, values in ((AGE, self._ages_ms), (PERIOD, self._periods_ms)):
            yield metric, statistic_points(values), start
            values.clear()
        if self._lost is not None:
            yield LOSS, [_point(_COUNT, self._lost())], self._begun


class ThreadTimeStatistics(_Publisher):
    """Time shares of a node's threads, by their names in ``common/metrics.py``."""

    def __init__(self, node: Node, timers: Mapping[str, metrics.ThreadTimer]) -> None:
        super().__init__(node)
        self._windows = {thread: metrics.TimerWindow(timer) for thread, timer in timers.items()}

    def _reports(self, start: ClockTime, now: ClockTime) -> Iterator[_Report]:
        for thread, window in self._windows.items():
            for phase, share in window.take().items():
                yield f'time_{thread}_{phase}', [_point(_AVERAGE, share)], start


class ReactionTimeStatistics(_Publisher):
    """Reaction times of a node's actions; nothing while there are none."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._reaction_time, self._late = metrics.ReactionTime(), 0

    def add(self, extras: Mapping[str, NDArray[Any]]) -> None:
        """Add steps, by the names of ``rl/data/unroll.py``, [..., 4] and [...]."""
        if 'reaction_time' in extras:
            self._reaction_time.extend(extras['reaction_time'])
        if 'late_actions' in extras:
            self._late += int(extras['late_actions'].sum())

    def _reports(self, start: ClockTime, now: ClockTime) -> Iterator[_Report]:
        late, self._late = self._late, 0
        parts = 1e3 * self._reaction_time.take()
        if not len(parts):
            return
        yield _REACTION_TIME, statistic_points(parts.sum(axis=1)), start
        for name, values in zip(metrics.PARTS, parts.T, strict=True):
            yield f'{_REACTION_TIME}_{name}', statistic_points(values), start
        yield _LATE, [_point(_COUNT, late)], start


class RunScalars(_Publisher):
    """The newest scalars of a run."""

    def __init__(self, node: Node, scalars: Callable[[], Mapping[str, float]]) -> None:
        super().__init__(node)
        self._scalars = scalars

    def _reports(self, start: ClockTime, now: ClockTime) -> Iterator[_Report]:
        for tag, value in self._scalars().items():
            if not tag.startswith(_REPORTED):
                yield f'{_SCALAR}{tag}', [_point(_AVERAGE, value)], now


def _point(kind: int, value: float) -> StatisticDataPoint:
    return StatisticDataPoint(data_type=kind, data=float(value))


def statistic_points(values: Sequence[float]) -> list[StatisticDataPoint]:
    """Return average, minimum, maximum, standard deviation and count, as rclcpp does."""
    array = np.asarray(values if len(values) else [math.nan], dtype=np.float64)
    return [_point(kind, value) for kind, value in (
        (_AVERAGE, array.mean()),
        (StatisticDataType.STATISTICS_DATA_TYPE_MINIMUM, array.min()),
        (_MAXIMUM, array.max()), (_DEVIATION, array.std()), (_COUNT, len(values)))]


@dataclass(frozen=True)
class Window:
    """One metric of one subscription over one time window; NaN where something is unknown."""

    node: str
    topic: str  # absolute name; '' if the report has none, as those of rclcpp
    metric: str  # AGE, PERIOD or LOSS
    seconds: float
    count: int  # messages measured in it; with LOSS those lost in it
    mean: float = math.nan  # ms, as the other two
    maximum: float = math.nan
    deviation: float = math.nan


@dataclass(frozen=True)
class Share:
    """The share of one phase in the time of one thread, 0 to 1, over a window of ``seconds``."""

    node: str
    thread: str
    phase: str
    seconds: float
    share: float


@dataclass(frozen=True)
class Scalar:
    """One value of a run."""

    node: str
    tag: str
    value: float


def is_of_topic(message: MetricsMessage) -> bool:
    """Return whether a message may be about a topic: it has no other metric of this package."""
    metric = message.metrics_source
    return metric in (AGE, PERIOD, LOSS) or _unit(metric) is None


def read(message: MetricsMessage) -> Window | Share | Scalar | None:
    """Return the content of a message; None for others than these, or if it is malformed."""
    metric, source = message.metrics_source, _printable(message.measurement_source_name)
    node, _, topic = source.partition(':')
    if not node or _unit(metric) != message.unit:
        return None
    start, stop = message.window_start, message.window_stop
    length = float(stop.sec - start.sec + (stop.nanosec - start.nanosec) * 1e-9)
    seconds = length if length > 0 else math.nan
    points = {point.data_type: float(point.data)
              for point in itertools.islice(message.statistics, _MAX_POINTS)}
    average = finite(points.get(_AVERAGE))
    if metric in _SHARES:
        thread, phase = _SHARES[metric]
        known = 0 <= average <= 1 and not math.isnan(seconds)
        return Share(source, thread, phase, seconds, average) if known else None
    if metric.startswith(_SCALAR):
        tag = _printable(metric.removeprefix(_SCALAR))
        return Scalar(source, tag, average) if tag and not math.isnan(average) else None
    count = points.get(_COUNT, math.nan)
    if metric not in (AGE, PERIOD, LOSS) or not 0 <= count <= _MAX_COUNT:
        return None
    deviation = finite(points.get(_DEVIATION))
    return Window(node, absolute_name(node, topic), metric, seconds, int(count), average,
                  finite(points.get(_MAXIMUM)), deviation if deviation >= 0 else math.nan)


def absolute_name(node: str, topic: str) -> str:
    if not topic or topic.startswith('/'):
        return topic
    if topic.startswith('~'):
        return node + topic[1:]
    return f'{node.rpartition("/")[0]}/{topic}'


def _printable(name: str) -> str:
    """Return ``name`` truncated and without control characters, safe for a terminal."""
    return ''.join(letter if letter.isascii() and letter.isprintable() else '?'
                   for letter in name[:_MAX_NAME])


def finite(value: float | None) -> float:
    """Return ``value``, or NaN if there is none or it is infinite."""
    return value if value is not None and math.isfinite(value) else math.nan
