"""Figures of topics and of actors' time for a run's events, from what is said on /statistics."""

from __future__ import annotations

import math
from collections import deque

from rclpy.node import Node
from statistics_msgs.msg import MetricsMessage

from vdl_ros.common.thread_timer import ACTING
from vdl_ros.ros import qos
from vdl_ros.ros.statistics.statistics_reader import Figures, Window, combine, full_name, read
from vdl_ros.ros.statistics.thread_time_statistics import Share, is_time, mean_shares, read_share

__all__ = ['TopicScalars', 'scalars']

# More than a run's nodes say between two reports of it.
_MOST_WINDOWS = 10_000


class TopicScalars:
    """
    Listens on behalf of a node, to the node's own statistics as well.

    The executor's thread hears, :meth:`take` belongs to another.
    """

    def __init__(self, node: Node, *topics: str) -> None:
        """Listen to what is said of ``topics``, relative names in the node's own namespace."""
        own = node.get_fully_qualified_name()
        self._names = {full_name(own, topic): topic for topic in topics}
        self._namespace = own.rpartition('/')[0]
        self._windows: deque[Window] = deque(maxlen=_MOST_WINDOWS)
        self._shares: deque[Share] = deque(maxlen=_MOST_WINDOWS)
        node.create_subscription(
            MetricsMessage, '/statistics', self._hear, qos.TOPICS['/statistics'])

    def _hear(self, message: MetricsMessage) -> None:
        if is_time(message):
            share = read_share(message)
            if (share is not None and share.thread == ACTING
                    and share.node.rpartition('/')[0] == self._namespace):
                self._shares.append(share)
            return
        window = read(message)
        if window is not None and window.topic in self._names:
            self._windows.append(window)

    def take(self) -> dict[str, float]:
        """Return the figures of what was heard since the last call, by tag; see docs/runs.md."""
        subscribers: dict[tuple[str, str], list[Window]] = {}
        for _ in range(len(self._windows)):
            window = self._windows.popleft()
            subscribers.setdefault((self._names[window.topic], window.node), []).append(window)
        found: dict[str, float] = {}
        for topic in self._names.values():
            heard = [windows for (name, _), windows in subscribers.items() if name == topic]
            found |= scalars(topic, heard)
        shares = mean_shares(self._shares.popleft() for _ in range(len(self._shares)))
        return found | {f'time/{ACTING}/{phase}': share
                        for phase, share in shares.get(ACTING, {}).items()}


def scalars(topic: str, subscribers: list[list[Window]]) -> dict[str, float]:
    """
    Return the figures of one topic over its subscribers' windows, without what is not known.

    ``rate_hz`` is the mean over the subscribers, ``lost`` their sum; ages are over all messages
    of all of them.
    """
    each = [combine(windows) for windows in subscribers]
    together: Figures = combine([window for windows in subscribers for window in windows])
    rates = [figures.rate_hz for figures in each if not math.isnan(figures.rate_hz)]
    losses = [figures.lost for figures in each if figures.lost is not None]
    found = {
        'age_mean_ms': together.age_mean_ms, 'age_max_ms': together.age_max_ms,
        'rate_hz': sum(rates) / len(rates) if rates else math.nan,
        'lost': float(sum(losses)) if losses else math.nan}
    return {f'topics/{topic}/{name}': value for name, value in found.items()
            if not math.isnan(value)}
