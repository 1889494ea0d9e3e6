"""The contract of a robot: which topics are its observation and its action, and how it is reset.

``contract_file.py`` reads it from ``config/robots/NAME.yaml``; docs/robots.md describes the file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ['ActionPart', 'Actions', 'CONVERSIONS', 'Confirmation', 'Contract', 'ContractError',
           'Feature', 'FunctionCall', 'LateAction', 'Limit', 'Reading', 'ReadingError', 'Reset',
           'ServiceReset', 'StopTopic', 'Topic', 'TrajectoryReset', 'UNITS', 'follow',
           'read_feature']


#: Units of features and actions; '' has none.
UNITS = ('', 'm', 'm/s', 'm/s^2', 'rad', 'rad/s', 'rad/s^2', 'N', 'N m', 's', 'Hz', 'kg', 'A',
         'V', 'W', 'K', 'Pa', 'T')
#: What can be computed from a field that is a quaternion, rad.
CONVERSIONS = ('roll', 'pitch', 'yaw')


class ContractError(ValueError):
    """A contract that cannot be used; the message is one line with file, key and value."""


@dataclass(frozen=True)
class Topic:
    """A topic that the robot is measured by.

    Attributes:
        type: ``package/msg/Name``.
        timeout: the robot is lost when its latest measurement is older, s.
        stamped: whether ages count from the stamps in the headers; else from the arrival.
    """

    key: str
    topic: str
    type: str
    timeout: float
    stamped: bool


@dataclass(frozen=True)
class Feature:
    """A number of the robot's state.

    Attributes:
        key: entry of the message's ``name`` that chooses one of the numbers of ``field``.
        index: chooses one of the numbers of ``field`` by its place; -1: ``field`` is one number.
        convert: one of ``CONVERSIONS``, of a quaternion; '': none.
        unit: one of ``UNITS``.
        low, high: what becomes -1 and 1 in the observation.
        optional: whether it may be missing in a message, and is then NaN.
    """

    name: str
    source: str
    field: str
    unit: str
    low: float
    high: float
    key: str = ''
    index: int = -1
    convert: str = ''
    optional: bool = False


@dataclass(frozen=True)
class ActionPart:
    """One number of the action: one of ``levels``, else any from ``low`` to ``high``.

    Attributes:
        index: place in ``field``, if that holds several numbers; else -1.
    """

    name: str
    field: str
    unit: str
    levels: tuple[float, ...]
    low: float
    high: float
    neutral: float
    index: int = -1


@dataclass(frozen=True)
class Actions:
    """The message that moves the robot.

    Attributes:
        type: ``package/msg/Name``.
        parts: all with levels, or none.
        sender: field that names the sender; '': none. Commands of others are then known, and the
            environment gives way to them.
        echo: topic of the same type where the robot repeats what it does; '': none.
        recorded: numbers of the message for data sets, which no policy commands.
    """

    topic: str
    type: str
    parts: tuple[ActionPart, ...]
    sender: str = ''
    echo: str = ''
    recorded: tuple[ActionPart, ...] = ()

    @property
    def neutral(self) -> tuple[float, ...]:
        """Return the action by which nothing moves."""
        return tuple(part.neutral for part in self.parts)

    @property
    def is_discrete(self) -> bool:
        """Return whether the parts have levels."""
        return bool(self.parts[0].levels)


@dataclass(frozen=True)
class LateAction:
    """What becomes of a robot whose agent has not acted when the next step begins.

    Attributes:
        hold: keep the last action; else the neutral one.
        limit: the longest time from an observation to its action, s. Then the neutral action is
            sent, the action is not, and the episode is lost.
    """

    hold: bool
    limit: float


@dataclass(frozen=True)
class StopTopic:
    """A topic whose ``field`` (bool) is true while nothing may move."""

    topic: str
    type: str
    field: str
    latched: bool


@dataclass(frozen=True)
class ServiceReset:
    """A service that resets the robot.

    Attributes:
        type: ``package/srv/Name``.
        request: values by dotted path; ``{'uniform': [low, high]}`` is drawn for each reset.
        success: field of the response that is true if it was reset; '': none.
        timeout: of a call, s.
    """

    name: str
    type: str
    request: dict[str, Any]
    success: str
    timeout: float


@dataclass(frozen=True)
class TrajectoryReset:
    """A trajectory (``trajectory_msgs/JointTrajectory``) that brings the robot to its start.

    Attributes:
        positions: by joint, each also the name of a feature, rad or m.
        seconds: for the way, s.
        timeout: until they are there, s.
    """

    topic: str
    positions: dict[str, float]
    seconds: float
    tolerance: float
    timeout: float


@dataclass(frozen=True)
class Confirmation:
    """A person resets the robot and confirms it; ``text`` says what has to be done."""

    text: str


Reset = ServiceReset | TrajectoryReset | Confirmation | None


@dataclass(frozen=True)
class FunctionCall:
    """A Python function or class of this host, ``module:name``, with its arguments."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Limit:
    """The episode ends when a feature is not within ``low`` to ``high``."""

    feature: str
    low: float
    high: float


@dataclass(frozen=True)
class Contract:
    """A robot as an environment.

    Attributes:
        name: that of the file; the environment is ``robot/NAME``.
        rate: steps per second of its clock, Hz.
        simulated_clock: its clock is ``/clock``; else the monotonic one of this host.
        topics: by key.
        features: of the state, in the order of the observation.
        task: a class with goal, observation and reward; or None, and then the next three.
        reward: a function ``(before, after, **arguments) -> float``.
        success, failure: functions ``(after, **arguments) -> bool`` that end an episode.
        limit_penalty: subtracted from the reward of a step that breaks one.
        episode_steps: steps after which an episode is truncated.
        camera: topic of images (``sensor_msgs/Image``, or ``CompressedImage`` if its name ends
            with ``/compressed``) that are recorded and exported beside the rest, and not
            observed; '': none.
        namespace: of the robots' topics; ``{}`` is the number of the robot, from 0.
    """

    name: str
    path: str
    rate: float
    simulated_clock: bool
    topics: dict[str, Topic]
    features: tuple[Feature, ...]
    actions: Actions
    late: LateAction
    stops: tuple[StopTopic, ...]
    reset: Reset
    task: FunctionCall | None
    reward: FunctionCall | None
    success: FunctionCall | None
    failure: FunctionCall | None
    limits: tuple[Limit, ...]
    limit_penalty: float
    episode_steps: int
    camera: str
    namespace: str
    copies: int

    @property
    def env_id(self) -> str:
        """Return the id of its environment."""
        return f'robot/{self.name}'

    @property
    def recorded(self) -> list[str]:
        """Return the topics of a recording, as the contract names them."""
        names = [*(topic.topic for topic in self.topics.values()), self.actions.topic,
                 self.actions.echo, *(stop.topic for stop in self.stops), self.camera,
                 '/clock' if self.simulated_clock else '']
        return list(dict.fromkeys(filter(None, names)))

    def topics_of(self, copy: int) -> str:
        """Return the namespace of one robot, '' for none."""
        return self.namespace.format(copy)


class Reading(NamedTuple):
    """The latest message of a topic.

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
    """Return a feature, NaN if it is optional and missing.

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
