"""Reads features from messages, whose form is known and whose content is not; no ROS."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from vdl_ros.robots.contract import Feature

__all__ = ['Reading', 'ReadingError', 'follow', 'read_feature']


class Reading(NamedTuple):
    """
    The latest message of a topic.

    Attributes:
        values: features by name.
        stamp: its own, s.
        lag: time from its stamp to its arrival, s.
        arrived: of the robot's clock, s.
        arrived_wall: of the monotonic clock, s.
    """

    values: dict[str, float]
    stamp: float
    lag: float
    arrived: float
    arrived_wall: float


class ReadingError(ValueError):
    """A message that cannot be used; the text is one line without numbers."""


def follow(message: Any, path: str) -> Any:
    """Return what is at a dotted path of a message."""
    for name in path.split('.'):
        message = getattr(message, name)
    return message


def read_feature(feature: Feature, message: Any) -> float:
    """
    Return a feature, NaN if it is optional and missing.

    Raises:
        ReadingError: the message does not have it as a finite number.
    """
    value = follow(message, feature.field)
    if feature.convert:
        value = _angle(value, feature.convert)
    elif feature.key:
        names = list(message.name)
        if len(names) != len(value) or names.count(feature.key) > 1:
            raise ReadingError(f'{feature.field}: not one value for each name')
        value = value[names.index(feature.key)] if feature.key in names else math.nan
    elif feature.index >= 0:
        value = value[feature.index] if feature.index < len(value) else math.nan
    number = float(value)
    if not math.isfinite(number) and not feature.optional:
        raise ReadingError(f'{feature.name} is missing or not finite')
    return number if math.isfinite(number) else math.nan


def _angle(quaternion: Any, which: str) -> float:
    """Return an angle of a rotation, rad; the quaternion need not have the length 1."""
    x, y, z, w = (float(getattr(quaternion, axis)) for axis in 'xyzw')
    length = math.sqrt(x * x + y * y + z * z + w * w)
    if not 1e-6 < length < 1e6:
        return math.nan
    x, y, z, w = (each / length for each in (x, y, z, w))
    if which == 'yaw':
        return math.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
    if which == 'roll':
        return math.atan2(2.0 * (w * x + y * z), 1.0 - 2.0 * (x * x + y * y))
    return math.asin(min(1.0, max(-1.0, 2.0 * (w * y - z * x))))
