"""
The scalars of a run on ``/statistics``: what the learner writes for TensorBoard.

One message per second and scalar: ``measurement_source_name`` is the learner's full name,
``metrics_source`` is ``scalar_<tag>``, as ``scalar_charts/SPS``, ``unit`` is ``scalar``; the only
point is the value. ``scalar_agent_steps`` comes first: the values after it are of these steps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rclpy.node import Node
from statistics_msgs.msg import MetricsMessage, StatisticDataPoint, StatisticDataType

from vdl_ros.ros import qos
from vdl_ros.ros.statistics.topic_statistics import MAX_POINTS, printable

__all__ = ['RunScalars', 'Scalar', 'is_scalar', 'read_scalar']

_PERIOD_S = 1.0
_UNIT = 'scalar'
_PREFIX = 'scalar_'
# Tags of other reports on this topic.
_REPORTED = ('time/', 'topics/')
_LONGEST_TAG = 80
_VALUE = StatisticDataType.STATISTICS_DATA_TYPE_AVERAGE


class RunScalars:
    """Publishes the newest scalars each second."""

    def __init__(self, node: Node, scalars: Callable[[], Mapping[str, float]]) -> None:
        """Start to publish for ``node``; ``scalars`` returns them by tag, {} before the first."""
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
                    metrics_source=f'{_PREFIX}{tag}', unit=_UNIT, window_start=now,
                    window_stop=now,
                    statistics=[StatisticDataPoint(data_type=_VALUE, data=float(value))]))


@dataclass(frozen=True)
class Scalar:
    """
    One value of a run.

    Attributes:
        node: the learner.
        tag: as in TensorBoard, or ``agent_steps``.
        value: finite.
    """

    node: str
    tag: str
    value: float


def is_scalar(message: MetricsMessage) -> bool:
    """Return whether a message is a run's scalar by its name, well-formed or not."""
    return str(message.metrics_source).startswith(_PREFIX)


def read_scalar(message: MetricsMessage) -> Scalar | None:
    """Return the content of ``message``; None for another metric, if malformed or not finite."""
    if not is_scalar(message) or message.unit != _UNIT:
        return None
    points = [float(point.data) for point in itertools.islice(message.statistics, MAX_POINTS)
              if point.data_type == _VALUE]
    node = printable(message.measurement_source_name)
    tag = printable(message.metrics_source.removeprefix(_PREFIX))
    if not node or not 0 < len(tag) <= _LONGEST_TAG:
        return None
    if len(points) != 1 or not math.isfinite(points[0]):
        return None
    return Scalar(node, tag, points[0])
