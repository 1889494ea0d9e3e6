"""What a user can say about the view in the browser."""

from __future__ import annotations

import dataclasses

from vdl_ros.common.settings import setting

__all__ = ['ViewConfig']


@dataclasses.dataclass(frozen=True)
class ViewConfig:
    """The node ``viewer``."""

    host: str = setting(
        '127.0.0.1', 'Address at which the view is served. Whoever can reach it can move the arm.')
    port: int = setting(
        8080, 'Port at which the view is served; 0: any that is free.', minimum=0, maximum=65535)
    view_rate: float = setting(
        20.0, 'How often the arm is drawn anew.', minimum=1.0, maximum=60.0, unit='Hz')
    picture_rate: float = setting(
        10.0, 'How often the picture of the camera is sent to the browsers.', minimum=0.1,
        maximum=60.0, unit='Hz')
