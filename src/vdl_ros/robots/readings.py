"""What a contract's messages say: features of measurements, numbers of commands; no ROS."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vdl_ros.robots.contract import ActionPart, Feature


class Reading(NamedTuple):
    """The latest message of a topic.

    Attributes:
        values: features by name.
        stamp: its own, s.
        lag: time from its stamp to its arrival, s.
        arrived: of the robot's clock, s.
        arrived_wall: of the monotonic clock, s.
        frame: what the robot sees, of a topic of images, uint8 [H, W, C].
    """

    values: dict[str, float]
    stamp: float
    lag: float
    arrived: float
    arrived_wall: float
    frame: NDArray[np.uint8] | None = None

    def age(self, now: float) -> float:
        return self.lag + max(0.0, now - self.arrived)


class ReadingError(ValueError):
    """A message that cannot be used; the text is one line without numbers."""


def follow(message: Any, path: str) -> Any:
    """Return what is at a dotted path of a message."""
    for name in path.split('.'):
        message = getattr(message, name)
    return message


def read_feature(feature: Feature, message: Any) -> float:
    """Return a feature, NaN if it is optional and missing; ReadingError: it is not finite."""
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
    number = feature.scale * float(value)
    if not math.isfinite(number) and not feature.optional:
        raise ReadingError(f'{feature.name} is missing or not finite')
    return number if math.isfinite(number) else math.nan


def named(message: Any) -> tuple[list[str], Any]:
    """Return names that a message has, and what has a number for each; LookupError: none has.

    Of a ``JointTrajectory`` it is the first point.
    """
    if hasattr(message, 'joint_names'):
        return message.joint_names, message.points[0]
    return message.name, message


def read_part(part: ActionPart, message: Any) -> float:
    """Return a number of a command; AttributeError, LookupError, ValueError: it has none."""
    if part.key:
        names, message = named(message)
        return part.scale * float(follow(message, part.field)[list(names).index(part.key)])
    value = follow(message, part.field)
    return part.scale * float(value if part.index < 0 else value[part.index])


def _angle(quaternion: Any, which: str) -> float:
    x, y, z, w = (float(getattr(quaternion, axis)) for axis in 'xyzw')
    length = math.hypot(x, y, z, w)
    if not 1e-6 < length < 1e6:
        return math.nan
    x, y, z, w = (each / length for each in (x, y, z, w))
    if which == 'yaw':
        return math.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
    if which == 'roll':
        return math.atan2(2.0 * (w * x + y * z), 1.0 - 2.0 * (x * x + y * y))
    return math.asin(min(1.0, max(-1.0, 2.0 * (w * y - z * x))))
