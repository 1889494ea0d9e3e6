"""Settings of the recorder."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['RecordConfig']


@dataclass(frozen=True)
class RecordConfig:
    """Settings of the node ``recorder``."""

    output: str = setting('', 'Folder of the bag, which must not exist.')
    topics: str = setting(
        '*', 'Shell patterns, separated by commas. Compressed images need one that ends with '
        'compressed.')
    robot: str = setting(
        '', 'Record the topics of a contract instead: its name in this package, or '
        'FOLDER/NAME.yaml.')
    compression: str = setting(
        'none', "Compression of the bag's chunks.", choices=('none', 'lz4', 'zstd'))
    max_memory: int = setting(
        256, 'Memory for messages that wait for the disk; further ones are dropped and counted.',
        minimum=1, maximum=65_536, unit='MiB')
