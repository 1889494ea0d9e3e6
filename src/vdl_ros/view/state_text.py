"""The arm's state as Markdown for the side panel."""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from vdl_ros.arm.geometry import Positions
from vdl_ros.arm.joints import JOINTS
from vdl_ros.common.quoting import shown

# Greatest age of what counts as current, s; older values are shown as unknown.
STALE_S = 1.0
# Lines reserved for notes, so that buttons below do not move while a user presses them.
_NOTES = 3
_MOTORS = {0: 'off', 1: '**forward**', -1: '**backward**'}
_UNKNOWN = np.full(3, math.nan)


@dataclasses.dataclass
class ArmStatus:
    """Latest values of the topics; times of motors and joint states are monotonic, s."""

    motors: Mapping[str, int] = dataclasses.field(default_factory=dict)
    sent_at: float = -math.inf
    lamp: bool = False
    emergency: bool = False
    stopped_by: str = ''
    stopped_at: str = ''
    trajectory: str = ''
    reason: str = ''
    progress: float = 0.0
    measured_at: float = -math.inf
    #: A vdl_ros/TargetStatus.
    target: Any = None
    #: Places in ``base_link``, float64 [3], m; NaN: unknown.
    tips: Positions = dataclasses.field(default_factory=_UNKNOWN.copy)
    goal: Positions = dataclasses.field(default_factory=_UNKNOWN.copy)
    #: What a training on this arm does, and how far the tool is from its target, m; NaN: unknown.
    training: str = ''
    away: float = math.nan
    nears: str = 'the finger tips are'


def state_text(status: ArmStatus, positions: Positions, confident: bool | None, now: float) -> str:
    """Return the state as Markdown.

    ``positions`` are float64 [5], rad, NaN where unknown; ``confident``: whether a recent
    estimate of the camera is; None: there is none.
    """
    measured, connected = (now - at <= STALE_S for at in (status.measured_at, status.sent_at))
    # Cells of a table have no space between them.
    lines = ['| joint | angle | &emsp;motor |', '|:--|--:|:--|']
    for index, joint in enumerate(JOINTS):
        angle = _number(math.degrees(positions[index]) if measured else math.nan, 1, '°')
        motor = _MOTORS[status.motors.get(joint, 0)] if connected else '?'
        lines.append(f'| {joint} | {angle} | &emsp;{motor} |')
    # Both rows are always there, so that nothing below moves.
    lines += ['', '| m | x | y | z |', '|:--|--:|--:|--:|']
    lines += [f'| {name} | {" | ".join(f"&emsp;{_number(each, 3)}" for each in place)} |'
              for name, place in (('finger tips', status.tips if measured else _UNKNOWN),
                                  ('target', status.goal))]
    notes = []
    if status.emergency:
        by = f' by {plain(status.stopped_by)}' if status.stopped_by else ''
        since = f' since {status.stopped_at}' if status.stopped_at else ''
        notes.append(f'**Emergency stop{by}{since}: all motors are off.**')
    if not connected:
        notes.append('The arm is silent.' if status.motors else 'No arm is connected.')
    if not measured:
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
    elif status.target is not None and connected:
        notes.append('Targets are refused: the emergency stop is engaged.' if status.emergency
                     else _target_text(status.target))
    notes += ['&nbsp;'] * (_NOTES - len(notes))
    return '\n'.join(lines) + ''.join(f'\n\n{each}' for each in notes)


def _number(value: float, digits: int, unit: str = '') -> str:
    # Not -0.0.
    return '?' if math.isnan(value) else f'{round(value, digits) + 0.0:.{digits}f}{unit}'


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
