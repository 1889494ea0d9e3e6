"""What is known of the arm, as the few lines of Markdown in the side panel."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Protocol

from vdl_ros.arm.model.geometry import Positions
from vdl_ros.arm.model.joints import JOINTS

__all__ = ['Estimate', 'ArmStatus', 'state_text']

# Positions that are older are not where the arm is now, s.
STALE_S = 1.0
# Room for so many notes is kept, so that buttons below do not move while somebody presses them.
_NOTES = 3


@dataclasses.dataclass
class ArmStatus:
    """What the topics have told; ``measured_at`` is when joints were measured, s, monotonic."""

    motors: Mapping[str, int] | None = None
    lamp: bool = False
    emergency: bool = False
    trajectory: str = ''
    reason: str = ''
    progress: float = 0.0
    measured_at: float = -math.inf


class Estimate(Protocol):
    """A pose as read off a picture."""

    confident: bool


def state_text(
    told: ArmStatus, positions: Positions, estimate: Estimate | None, now: float,
) -> str:
    """
    Return the lines.

    Args:
        told: by the topics.
        positions: float64 [5], rad, NaN where nothing is known.
        estimate: of the camera, if there is a recent one.
        now: monotonic, s.
    """
    fresh = now - told.measured_at <= STALE_S
    lines = ['| joint | angle | motor |', '|:--|--:|:--|']
    for index, joint in enumerate(JOINTS):
        known = not math.isnan(positions[index])
        angle = f'{math.degrees(positions[index]):.1f}°' if known else '?'
        way = (told.motors or {}).get(joint, 0)
        motor = '?' if told.motors is None else ('off', '**forward**', '**backward**')[way]
        lines.append(f'| {joint} | {angle} | {motor} |')
    notes = []
    if told.emergency:
        notes.append('**Emergency stop: all motors are off.**')
    if told.motors is None:
        notes.append('No arm is heard.')
    if not fresh:
        notes.append('Nobody measures the joints.')
    if estimate is not None:
        notes.append('The camera sees the arm.' if estimate.confident
                     else 'The camera is not sure where the arm is.')
    if told.trajectory == 'running':
        notes.append(f'Trajectory: {100.0 * told.progress:.0f} %.')
    elif told.trajectory == 'aborted':
        notes.append(f'Trajectory given up: {told.reason}.')
    notes += ['&nbsp;'] * (_NOTES - len(notes))
    return '\n'.join(lines) + ''.join(f'\n\n{each}' for each in notes)
