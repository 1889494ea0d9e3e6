"""Settings of the trajectory controller."""

from __future__ import annotations

import dataclasses

from vdl_ros.common.settings import SettingError, setting

__all__ = ['ControllerConfig']


@dataclasses.dataclass(frozen=True)
class ControllerConfig:
    """Settings of the trajectory controller for on/off motors."""

    start_band: float = setting(
        0.030, 'A motor starts if its predicted distance exceeds this.', minimum=0.001,
        maximum=1.0, unit='rad')
    stop_band: float = setting(
        0.008, 'A motor stops if its predicted distance is below this.', minimum=0.0, maximum=1.0,
        unit='rad')
    goal_tolerance: float = setting(
        0.040, 'Largest measured distance of any joint at the end.', minimum=0.001, maximum=1.0,
        unit='rad')
    path_tolerance: float = setting(
        0.12, 'The trajectory waits for a joint that lags by more than this.', minimum=0.001,
        maximum=3.0, unit='rad')
    response_time: float = setting(
        0.06, 'Time from a command to its effect.', minimum=0.0, maximum=2.0, unit='s')
    stale_after: float = setting(
        0.3, 'Motors are off while the newest measurement is older.', minimum=0.01, maximum=10.0,
        unit='s')
    goal_timeout: float = setting(
        3.0, 'A trajectory is aborted after this without progress.', minimum=0.1, maximum=60.0,
        unit='s')
    viewer_timeout: float = setting(
        0.0, 'Motors are off after this without a message on arm/viewer_alive; 0: none needed. '
        'arm.launch.py sets 1 s with a viewer.', minimum=0.0, maximum=60.0, unit='s')

    def __post_init__(self) -> None:
        """
        Check the order of the bands.

        Raises:
            SettingError: bands in the wrong order; the message names them.
        """
        for less, more in (('stop_band', 'start_band'), ('start_band', 'goal_tolerance'),
                           ('start_band', 'path_tolerance')):
            if getattr(self, less) >= getattr(self, more):
                raise SettingError(
                    f'{less}: {getattr(self, less):g} is not allowed: less than {more}, '
                    f'{getattr(self, more):g}')
