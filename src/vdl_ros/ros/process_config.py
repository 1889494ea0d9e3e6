"""Settings that every node has."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['ProcessConfig']


@dataclass(frozen=True)
class ProcessConfig:
    """Settings of every node's process."""

    executor: str = setting(
        'events', 'Executor: events is cheaper, single is the plain one of rclpy.',
        choices=('events', 'single'))
    launch_id: str = setting(
        '', 'Set by launch files: names one launch, so that a node which is started again knows.')
