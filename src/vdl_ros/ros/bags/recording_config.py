"""Settings of the recorder."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['RecordConfig']


@dataclass(frozen=True)
class RecordConfig:
    """Settings of a recorder."""

    output: str = setting('', 'Folder of the bag; it must not exist.')
    topics: str = setting('*', 'Topics to record: patterns as of a shell, separated by commas.')
    compression: str = setting(
        'none', 'Compression of the bag\'s chunks.', choices=('none', 'lz4', 'zstd'))
    max_memory: int = setting(
        256, 'Messages that wait for the disk may take this much; beyond it they are dropped '
        'and counted.', minimum=1, maximum=65_536, unit='MiB')
