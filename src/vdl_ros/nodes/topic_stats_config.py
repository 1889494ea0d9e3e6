"""Settings of the node ``topic_stats``."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['TopicStatsConfig']


@dataclass(frozen=True)
class TopicStatsConfig:
    """Settings of the node."""

    topics: str = setting(
        '*', 'Shell patterns, separated by commas; one without a leading / matches in every '
        'namespace.')
    period: float = setting(
        2.0, 'Period of the table, and of its figures.', minimum=0.1, maximum=3600.0, unit='s')
    once: bool = setting(False, 'Print one table and exit.')
    wait: float = setting(
        10.0, 'Longest wait for the first report, with once.', minimum=0.1, maximum=1e6, unit='s')
