"""Settings of the keyboard control."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['TeleopConfig']


@dataclass(frozen=True)
class TeleopConfig:
    """The node ``teleop``."""

    first_timeout: float = setting(
        0.55, 'A key counts as held for this after a tap; longer than the delay before repeats.',
        minimum=0.05, maximum=2.0, unit='s')
    repeat_timeout: float = setting(
        0.15, 'A key counts as held for this after a repeat.', minimum=0.02, maximum=1.0, unit='s')
    held_timeout: float = setting(
        5.0, 'Keys count as held for this after the last press or repeat, on terminals that '
        'report releases.', minimum=0.5, maximum=60.0, unit='s')
    rate: float = setting(
        20.0, 'Rate of commands while a motor is on.', minimum=4.0, maximum=100.0, unit='Hz')
