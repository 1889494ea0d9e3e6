"""The arm's state as Markdown for the side panel."""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from vdl_ros.arm.geometry import Positions
from vdl_ros.arm.joints import JOINTS
from vdl_ros.common.quoting import shown

# Maximum age of positions that count as current, s.
STALE_S = 1.0
# Lines reserved for notes, so that buttons below do not move while a user presses them.
_NOTES = 3


@dataclasses.dataclass
class ArmStatus:
    """Latest values of the topics; ``measured_at`` is the time of joint states, s, monotonic."""

    motors: Mapping[str, int] | None = None
    lamp: bool = False
    emergency: bool = False
    stopped_by: str = ''
    trajectory: str = ''
    reason: str = ''
    progress: float = 0.0
    measured_at: float = -math.inf
    #: A vdl_ros/TargetStatus.
    target: Any = None
    #: What a training on this arm does, and how far the tool is from its target, m; NaN: unknown.
    training: str = ''
    away: float = math.nan
    nears: str = 'the finger tips are'


def state_text(status: ArmStatus, positions: Positions, confident: bool | None, now: float) -> str:
    """Return the state as Markdown.

    ``positions`` are float64 [5], rad, NaN where unknown; ``confident``: whether a recent
    estimate of the camera is; None: there is none.
    """
    fresh = now - status.measured_at <= STALE_S
    lines = ['| joint | angle | motor |', '|:--|--:|:--|']
    for index, joint in enumerate(JOINTS):
        known = not math.isnan(positions[index])
        angle = f'{math.degrees(positions[index]):.1f}°' if known else '?'
        direction = (status.motors or {}).get(joint, 0)
        motor = '?' if status.motors is None else ('off', '**forward**', '**backward**')[direction]
        lines.append(f'| {joint} | {angle} | {motor} |')
    notes = []
    if status.emergency:
        by = f' by {plain(status.stopped_by)}' if status.stopped_by else ''
        notes.append(f'**Emergency stop{by}: all motors are off.**')
    if status.motors is None:
        notes.append('No arm is connected.')
    if not fresh:
        notes.append('No joint measurements.')
    if confident is not None:
        notes.append('The camera sees the arm.' if confident
                     else 'The pose estimate is uncertain.')
    if status.trajectory == 'running':
        notes.append(f'Trajectory: {100.0 * status.progress:.0f} %.')
    elif status.trajectory == 'aborted':
        notes.append(f'Trajectory aborted: {plain(status.reason)}.')
    if status.training:
        away = '' if math.isnan(status.away) else (
            f', {status.nears} {100.0 * status.away:.1f} cm from the target')
        notes.append(f'Training: **{plain(status.training)}**{away}.')
    elif status.target is not None:
        notes.append(_target_text(status.target))
    notes += ['&nbsp;'] * (_NOTES - len(notes))
    return '\n'.join(lines) + ''.join(f'\n\n{each}' for each in notes)


def _target_text(target: Any) -> str:
    if target.reason:
        return f'Target: {plain(target.reason)}.'
    if target.state == 'idle':
        return 'Drag the target: the arm follows.'
    parts = [f'Target: {100.0 * target.distance:.1f} cm']
    if not math.isnan(target.reaction_time):
        parts.append(f'reaction {target.reaction_time:.2f} s')
    if target.success:
        parts.append(f'**reached after {target.time_to_target:.1f} s**')
    return ', '.join(parts) + '.'


def plain(text: str, limit: int = 80) -> str:
    """Return text that Markdown shows as it is, without links and images, cut at ``limit``."""
    return re.sub(r'([!-,./;-@\[-`{-~])', r'\\\1', shown(text, limit))
