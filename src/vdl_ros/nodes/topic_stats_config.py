"""Settings of the node ``topic_stats``."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['TopicStatsConfig']


@dataclass(frozen=True)
class TopicStatsConfig:
    """Settings of the table."""

    topics: str = setting(
        '*', 'Topics to show: patterns as of a shell, separated by commas; one that does not '
        'begin with / is meant in every namespace.')
    period: float = setting(
        2.0, 'Time from one table to the next, which the figures are taken over.',
        minimum=0.1, maximum=3600.0, unit='s')
    once: bool = setting(False, 'Print one table, a period after the first report, and end.')
    wait: float = setting(
        10.0, 'With once, time to wait for the first report.', minimum=0.1, maximum=1e6,
        unit='s')
