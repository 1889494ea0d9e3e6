"""Settings of the recorder."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['RecordConfig']


@dataclass(frozen=True)
class RecordConfig:
    """Settings of the node ``recorder``."""

    output: str = setting('', 'Folder of the bag; it must not exist.')
    topics: str = setting(
        '*', 'Topics to record: shell patterns, separated by commas. Compressed images only by a '
        'pattern that ends with compressed.')
    robot: str = setting(
        '', 'Record the topics of a robot instead of topics: the name of its contract in this '
        'package, or its file, FOLDER/NAME.yaml.')
    compression: str = setting(
        'none', 'Compression of the bag\'s chunks.', choices=('none', 'lz4', 'zstd'))
    max_memory: int = setting(
        256, 'Memory for messages that wait for the disk; beyond it they are dropped and '
        'counted.', minimum=1, maximum=65_536, unit='MiB')
