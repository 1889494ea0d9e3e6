"""Settings that every node has."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['ProcessConfig']


@dataclass(frozen=True)
class ProcessConfig:
    """Settings of every node's process."""

    executor: str = setting(
        'events', 'events needs less processor time; single is the standard one.',
        choices=('events', 'single'))
    launch_id: str = setting('', 'Set by launch files, the same for all restarts of a node.')
