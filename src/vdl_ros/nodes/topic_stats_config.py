"""Settings of the node ``topic_stats``."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['TopicStatsConfig']


@dataclass(frozen=True)
class TopicStatsConfig:
    """Settings of the node."""

    topics: str = setting(
        '*', 'Topics to show: shell patterns, separated by commas; one without a leading / '
        'matches in every namespace.')
    period: float = setting(
        2.0, 'Period of the table, and of the figures in it.',
        minimum=0.1, maximum=3600.0, unit='s')
    once: bool = setting(False, 'Print one table, a period after the first report, and exit.')
    wait: float = setting(
        10.0, 'With once, maximum time to wait for the first report.', minimum=0.1, maximum=1e6,
        unit='s')
