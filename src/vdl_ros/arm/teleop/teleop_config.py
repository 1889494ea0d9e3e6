"""Settings of the keyboard control."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['TeleopConfig']


@dataclass(frozen=True)
class TeleopConfig:
    """The node ``teleop``."""

    first_timeout: float = setting(
        0.55, 'Time a key counts as held after a tap; longer than the delay before repeats.',
        minimum=0.05, maximum=2.0, unit='s')
    repeat_timeout: float = setting(
        0.15, 'Time a key counts as held after each repeat.',
        minimum=0.02, maximum=1.0, unit='s')
    held_timeout: float = setting(
        5.0, 'Time keys count as held after the last press or repeat of one, on a terminal that '
        'reports releases; longer than the delay before repeats.',
        minimum=0.5, maximum=60.0, unit='s')
    rate: float = setting(
        20.0, 'Rate of commands while a motor is on.', minimum=4.0, maximum=100.0, unit='Hz')
