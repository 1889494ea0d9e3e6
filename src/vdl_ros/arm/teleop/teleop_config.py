"""Settings of the keyboard control."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['TeleopConfig']


@dataclass(frozen=True)
class TeleopConfig:
    """The node ``teleop``."""

    first_timeout: float = setting(
        0.55, 'A key that was hit is held for so long; more than the delay before it repeats.',
        minimum=0.05, maximum=2.0, unit='s')
    repeat_timeout: float = setting(
        0.15, 'A key that repeats is held for so long after each time.',
        minimum=0.02, maximum=1.0, unit='s')
    rate: float = setting(
        20.0, 'How often a command is sent while a motor is on.', minimum=4.0, maximum=100.0,
        unit='Hz')
