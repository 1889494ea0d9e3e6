"""TensorBoard scalars of a run's topics and of its actors' time, from ``/statistics``."""

from __future__ import annotations

import math
from collections import deque

from rclpy.node import Node
from statistics_msgs.msg import MetricsMessage

from vdl_ros.common.thread_timer import ACTING
from vdl_ros.ros import qos
from vdl_ros.ros.statistics.thread_time_statistics import (
    Share,
    is_thread_time,
    mean_shares,
    read_share,
)
from vdl_ros.ros.statistics.topic_statistics import Window, absolute_name, combine, read_window

__all__ = ['TopicScalars', 'scalars']

# More than the nodes of a run publish between two of its reports.
_MAX_WINDOWS = 10_000


class TopicScalars:
    """
    Collects statistics for a node, those that the node publishes itself included.

    The executor's thread collects; :meth:`take` may be called from another one.
    """

    def __init__(self, node: Node, *topics: str) -> None:
        """Collect statistics of ``topics``, relative names in the node's namespace."""
        node_name = node.get_fully_qualified_name()
        self._names = {absolute_name(node_name, topic): topic for topic in topics}
        self._namespace = node_name.rpartition('/')[0]
        self._windows: deque[Window] = deque(maxlen=_MAX_WINDOWS)
        self._shares: deque[Share] = deque(maxlen=_MAX_WINDOWS)
        node.create_subscription(
            MetricsMessage, '/statistics', self._on_statistics, qos.TOPICS['/statistics'])

    def _on_statistics(self, message: MetricsMessage) -> None:
        if is_thread_time(message):
            share = read_share(message)
            if (share is not None and share.thread == ACTING
                    and share.node.rpartition('/')[0] == self._namespace):
                self._shares.append(share)
            return
        window = read_window(message)
        if window is not None and window.topic in self._names:
            self._windows.append(window)

    def take(self) -> dict[str, float]:
        """Return the scalars since the last call, by tag; see docs/runs.md."""
        subscribers: dict[str, dict[str, list[Window]]] = {
            topic: {} for topic in self._names.values()}
        for _ in range(len(self._windows)):
            window = self._windows.popleft()
            subscribers[self._names[window.topic]].setdefault(window.node, []).append(window)
        found: dict[str, float] = {}
        for topic, windows in subscribers.items():
            found |= scalars(topic, list(windows.values()))
        shares = mean_shares(self._shares.popleft() for _ in range(len(self._shares)))
        return found | {f'time/{ACTING}/{phase}': share
                        for phase, share in shares.get(ACTING, {}).items()}


def scalars(topic: str, subscribers: list[list[Window]]) -> dict[str, float]:
    """
    Return the scalars of one topic over the windows of each subscriber; unknown ones are left out.

    ``rate_hz`` is the mean over the subscribers, ``lost`` their sum; ages are over all messages
    of all subscribers.
    """
    each = [combine(windows) for windows in subscribers]
    together = combine([window for windows in subscribers for window in windows])
    rates = [figures.rate_hz for figures in each if not math.isnan(figures.rate_hz)]
    losses = [figures.lost for figures in each if figures.lost is not None]
    found = {
        'age_mean_ms': together.age_mean_ms, 'age_max_ms': together.age_max_ms,
        'rate_hz': sum(rates) / len(rates) if rates else math.nan,
        'lost': float(sum(losses)) if losses else math.nan}
    return {f'topics/{topic}/{name}': value for name, value in found.items()
            if not math.isnan(value)}
