"""Settings of the browser view of a training."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['TrainingViewerConfig']


@dataclass(frozen=True)
class TrainingViewerConfig:
    """The node ``training_viewer``."""

    view_host: str = setting(
        '127.0.0.1', 'Address of the view. Who reaches it can watch with the token that is '
        'printed.')
    view_port: int = setting(8081, 'Port of the view; 0: any free one.', minimum=0, maximum=65535)
