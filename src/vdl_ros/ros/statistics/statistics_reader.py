"""
What a message on ``/statistics`` says, checked, and several of them in one.

The other end of ``statistics.py``. Whoever publishes there may be another program, or rclcpp:
whatever does not fit is left out, none of it raises.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from builtin_interfaces.msg import Time
from statistics_msgs.msg import MetricsMessage, StatisticDataType

__all__ = ['AGE', 'LOSS', 'MOST_POINTS', 'PERIOD', 'UNITS', 'Figures', 'Window', 'combine',
           'full_name', 'printable', 'read', 'seconds_between']

AGE, PERIOD, LOSS = 'message_age', 'message_period', 'message_loss'
UNITS = {AGE: 'ms', PERIOD: 'ms', LOSS: 'messages'}

# A name in ROS is no longer.
_LONGEST_NAME = 255
# Five types exist; what comes after so many points is not looked at.
MOST_POINTS = 64
_LARGEST_COUNT = 2**53


@dataclass(frozen=True)
class Window:
    """
    One metric of one subscription over one window of time.

    Attributes:
        node: who measured.
        topic: absolute name of what it listens to; '' if it does not say, as rclcpp.
        metric: AGE, PERIOD or LOSS.
        seconds: the window's length; NaN if it has none.
        count: messages measured in it; with LOSS those lost in it.
        mean: ms; NaN if it is not told, as the two that follow.
        maximum: ms.
        deviation: ms.
    """

    node: str
    topic: str
    metric: str
    seconds: float
    count: int
    mean: float = math.nan
    maximum: float = math.nan
    deviation: float = math.nan


def read(message: MetricsMessage) -> Window | None:
    """Return what ``message`` says; None if it is of another metric or unit, or malformed."""
    metric = message.metrics_source
    if UNITS.get(metric) != message.unit:
        return None
    points = {point.data_type: float(point.data)
              for point in itertools.islice(message.statistics, MOST_POINTS)}
    count = points.get(StatisticDataType.STATISTICS_DATA_TYPE_SAMPLE_COUNT, math.nan)
    if not 0 <= count <= _LARGEST_COUNT:
        return None
    node, _, topic = printable(message.measurement_source_name).partition(':')
    if not node:
        return None
    deviation = _finite(points.get(StatisticDataType.STATISTICS_DATA_TYPE_STDDEV))
    return Window(
        node, full_name(node, topic), metric,
        seconds=seconds_between(message.window_start, message.window_stop), count=int(count),
        mean=_finite(points.get(StatisticDataType.STATISTICS_DATA_TYPE_AVERAGE)),
        maximum=_finite(points.get(StatisticDataType.STATISTICS_DATA_TYPE_MAXIMUM)),
        deviation=deviation if deviation >= 0 else math.nan)


def full_name(node: str, topic: str) -> str:
    """Return the absolute name of ``topic`` as ``node`` means it: in the node's namespace."""
    if not topic or topic.startswith('/'):
        return topic
    if topic.startswith('~'):
        return node + topic[1:]
    return f'{node.rpartition("/")[0]}/{topic}'


def printable(name: str) -> str:
    """Return a name that does no harm to a terminal."""
    return ''.join(letter if letter.isascii() and letter.isprintable() else '?'
                   for letter in name[:_LONGEST_NAME])


def _finite(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else math.nan


def seconds_between(start: Time, stop: Time) -> float:
    """Return the length of a window; NaN if it does not end after its start."""
    length = float(stop.sec - start.sec + (stop.nanosec - start.nanosec) * 1e-9)
    return length if length > 0 else math.nan


@dataclass(frozen=True)
class Figures:
    """
    Several windows of one subscription in one; NaN where nothing was measured.

    Attributes:
        rate_hz: messages a second.
        age_mean_ms: from the header's stamp to the callback, as the two that follow.
        age_std_ms: standard deviation over all messages.
        age_max_ms: of the oldest message.
        samples: messages measured.
        lost: messages lost since the subscription began; None if its node does not know.
    """

    rate_hz: float
    age_mean_ms: float
    age_std_ms: float
    age_max_ms: float
    samples: int
    lost: int | None = None


def combine(windows: Sequence[Window]) -> Figures:
    """Return the figures of all ``windows``; of LOSS the last one counts, it holds the others."""
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
    """Return mean and standard deviation of what all ``windows`` measured together."""
    known = [each for each in windows if not math.isnan(each.mean)]
    count = sum(each.count for each in known)
    if not count:
        return math.nan, math.nan
    mean = sum(each.mean * each.count for each in known) / count
    # Products, not powers: these overflow to infinity, those raise.
    squares = sum(each.count * (each.deviation * each.deviation
                                + (each.mean - mean) * (each.mean - mean)) for each in known)
    return _finite(mean), _finite(math.sqrt(squares / count))
