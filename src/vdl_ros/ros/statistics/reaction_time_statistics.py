"""
Reaction time of an actor in environments on their own clock, on ``/statistics``.

One message per second with actions for each of the parts in ``common/reaction_time.py``, and one
for their sum: ``measurement_source_name`` is the node's full name, ``metrics_source`` is
``reaction_time`` or ``reaction_time_<part>``, ``unit`` is ``ms``, the points are those of topic
statistics. ``late_actions``, in ``actions``, has one point: the sample count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray
from rclpy.node import Node
from statistics_msgs.msg import MetricsMessage, StatisticDataPoint, StatisticDataType

from vdl_ros.common.reaction_time import PARTS, ReactionTime
from vdl_ros.ros import qos
from vdl_ros.ros.statistics.topic_statistics import statistic_points

__all__ = ['ReactionTimeStatistics', 'is_reaction_time']

_PERIOD_S = 1.0
_SUM, _LATE = 'reaction_time', 'late_actions'
_METRICS = (_SUM, *(f'{_SUM}_{part}' for part in PARTS), _LATE)


class ReactionTimeStatistics:
    """Publishes a node's reaction times each second; nothing while there are none."""

    def __init__(self, node: Node) -> None:
        """Start to publish for ``node``."""
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
    return message.metrics_source in _METRICS
