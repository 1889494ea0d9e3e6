"""Settings of the trajectory controller."""

from __future__ import annotations

import dataclasses

from vdl_ros.common.settings import SettingError, setting

__all__ = ['ControllerConfig']


@dataclasses.dataclass(frozen=True)
class ControllerConfig:
    """The trajectory controller: motors that are on or off follow joint positions."""

    start_band: float = setting(
        0.030, 'A motor is switched on when its joint will be farther from its target than this.',
        minimum=0.001, maximum=1.0, unit='rad')
    stop_band: float = setting(
        0.008, 'A motor is switched off when its joint will come to rest nearer than this.',
        minimum=0.0, maximum=1.0, unit='rad')
    goal_tolerance: float = setting(
        0.040, 'At the end every joint must be measured nearer to its target than this.',
        minimum=0.001, maximum=1.0, unit='rad')
    path_tolerance: float = setting(
        0.12, 'The trajectory waits while a joint is farther behind than this.',
        minimum=0.001, maximum=3.0, unit='rad')
    response_time: float = setting(
        0.06, 'Time from a command until the motor does it: cable, start and coasting.',
        minimum=0.0, maximum=2.0, unit='s')
    stale_after: float = setting(
        0.3, 'Motors are off while the newest measurement is older than this.', minimum=0.01,
        maximum=10.0, unit='s')
    goal_timeout: float = setting(
        3.0, 'A trajectory is given up when nothing has come nearer for this long.',
        minimum=0.1, maximum=60.0, unit='s')

    def __post_init__(self) -> None:
        """
        Check what depends on each other.

        Raises:
            SettingError: bands in the wrong order; the message names them.
        """
        for less, more in (('stop_band', 'start_band'), ('start_band', 'goal_tolerance'),
                           ('start_band', 'path_tolerance')):
            if getattr(self, less) >= getattr(self, more):
                raise SettingError(
                    f'{less}: {getattr(self, less):g} is not allowed: less than {more}, '
                    f'{getattr(self, more):g}')
