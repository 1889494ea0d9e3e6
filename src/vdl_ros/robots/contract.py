"""The contract of a robot: which topics are its observation and its action, and how it is reset.

``contract_files.py`` reads it from ``config/robots/NAME.yaml``; docs/robots.md describes the file.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from vdl_ros.common.observation_spaces import SMALLEST_IMAGE
from vdl_ros.common.quoting import quoted
from vdl_ros.common.schema import choice, matching
from vdl_ros.common.settings import suggestion

#: What can be computed from a field that is a quaternion, rad.
CONVERSIONS = ('roll', 'pitch', 'yaw')
#: Types of messages that are images.
IMAGE, COMPRESSED_IMAGE = 'sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage'
#: Of commands: a message has one point, which is reached in one step.
TRAJECTORY = 'trajectory_msgs/msg/JointTrajectory'

#: Of robots and their topics, a regular expression.
NAME = '[A-Za-z][A-Za-z0-9_]*'
# Of a file beside a contract, or in a folder there.
_BESIDE = '([A-Za-z0-9_-][A-Za-z0-9_.-]*/)*[A-Za-z0-9_-][A-Za-z0-9_.-]*'
_PATH = f'/?{NAME}(/{NAME})*'
_FIELD = r'[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*'
_Text = Annotated[str, matching('(?s:.+)', 'text')]
_TopicName = Annotated[str, matching(_PATH, 'the name of a topic')]
_OtherTopic = Annotated[str, matching(f'({_PATH})?', "the name of a topic, or ''")]
_Message = Annotated[str, matching('[a-z][a-z0-9_]*/msg/[A-Z][A-Za-z0-9]*', 'package/msg/Name')]
_Field = Annotated[str, matching(_FIELD, 'a dotted path such as pose.position.x')]
_Unit = Annotated[str, matching('.{0,32}', 'a text of up to 32 characters')]
_Index = Annotated[int, Meta(ge=-1, le=1_000_000)]
# Finite: NaN is not above a limit.
_Number = Annotated[float, Meta(ge=-1e9, le=1e9)]
_Scale = Annotated[float, Meta(ge=1e-6, le=1e6)]
_Seconds = Annotated[float, Meta(ge=0.001, le=3600.0)]
_Pixel = Annotated[int, Meta(ge=0, le=16_384)]
_Length = Annotated[int, Meta(ge=1, le=16_384)]
_Side = Annotated[int, Meta(ge=SMALLEST_IMAGE, le=1024)]
# Of all images: fewer than pixels on a side, so that networks know which are which.
_MAX_CHANNELS = SMALLEST_IMAGE - 1
# Of the range of a part, by which an action of float32 may be wrong.
_ROUNDED = 1e-7


class ContractError(ValueError):
    """A contract that cannot be used; the message is one line with file, key and value."""


def _refusal(place: str, value: object, allowed: str) -> ValueError:
    return ValueError(f'{place}: {quoted(value)} is not allowed: {allowed}')


class _Section(Struct, forbid_unknown_fields=True, kw_only=True):
    """A mapping of the file; other keys are refused."""


class _Range(_Section, kw_only=True):
    low: _Number
    high: _Number

    def __post_init__(self) -> None:
        if self.low >= self.high:
            raise _refusal('high', self.high, f'a number above low, {self.low:g}')


class Topic(_Section, kw_only=True):
    """A topic that the robot is measured by; without ``stamped``, ages count from the arrival."""

    topic: _TopicName
    type: _Message
    timeout: _Seconds
    stamped: bool = True


class ImageTopic(Topic, kw_only=True):
    """A topic of images; the robot is measured by those with a ``size``, others are recorded only.

    An observation has the frames at the latest ``stack`` ticks, of the part ``crop`` (x, y, width,
    height) of each image, in width and height ``size``; pixels. Those that are not ``observed``
    are for task and success only.
    """

    name: Annotated[str, matching(NAME, 'a name such as camera')]
    type: Annotated[str, choice(IMAGE, COMPRESSED_IMAGE)] = IMAGE
    timeout: _Seconds = 0.5
    size: tuple[_Side, _Side] | None = None
    crop: tuple[_Pixel, _Pixel, _Length, _Length] | None = None
    stack: Annotated[int, Meta(ge=1, le=16)] = 1
    grayscale: bool = False
    observed: bool = True

    @property
    def channels(self) -> int:
        """Channels of one frame."""
        return 1 if self.grayscale else 3


class Feature(_Range, kw_only=True):
    """A number of the robot's state: ``scale`` times what the message has."""

    name: _Text
    source: str = field(name='from')
    field: _Field
    unit: _Unit
    key: str = ''
    index: _Index = -1
    convert: Annotated[str, choice('', *CONVERSIONS)] = ''
    scale: _Scale = 1.0
    optional: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.key) + (self.index >= 0) + bool(self.convert) > 1:
            raise _refusal('key', self.key, 'only one of key, index and convert')


class ActionPart(_Section, kw_only=True):
    """One number of the action: one of ``levels``, else any from ``low`` to ``high``.

    The message has it divided by ``scale``. With ``change_of``, a feature, it is a change, and
    the message has the position that results. With ``position_of`` it is this position, ``step``
    further in a step at most; the neutral action is to stay, and NaN stands for it.
    """

    name: _Text
    field: _Field
    unit: _Unit
    levels: tuple[_Number, ...] = ()
    low: _Number = math.nan
    high: _Number = math.nan
    neutral: _Number = 0.0
    key: str = ''
    index: _Index = -1
    scale: _Scale = 1.0
    change_of: str = ''
    position_of: str = ''
    step: Annotated[float, Meta(ge=0.0, le=1e9)] = 0.0

    def __post_init__(self) -> None:
        if self.key and self.index >= 0:
            raise _refusal('index', self.index, 'only one of key and index')
        if self.change_of and self.position_of:
            raise _refusal('position_of', self.position_of, 'only one of change_of and it')
        if self.feature and self.neutral:
            raise _refusal('neutral', self.neutral, '0, with change_of or position_of')
        if bool(self.position_of) != bool(self.step):
            raise _refusal('step', self.step, 'above 0 with position_of, and only then')
        levels = self.levels
        if levels:
            if len({*levels}) < max(2, len(levels)):
                raise _refusal('levels', levels, 'at least two different numbers')
            self.low, self.high = min(levels), max(levels)
        elif math.isnan(self.low + self.high):
            raise ValueError('levels: missing, or low and high')
        elif self.low >= self.high:
            raise _refusal('high', self.high, f'a number above low, {self.low:g}')
        if self.position_of:
            if levels:
                raise _refusal('levels', levels, 'low and high, with position_of')
            self.neutral = math.nan
        elif self.neutral not in levels if levels else not self.low <= self.neutral <= self.high:
            raise _refusal('neutral', self.neutral, f'one of {list(levels)}' if levels else
                           f'from {self.low:g} to {self.high:g}')

    @property
    def feature(self) -> str:
        """The feature whose position is sent; '': the action itself is sent."""
        return self.change_of or self.position_of

    def nearest(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the numbers of the nearest levels."""
        # Of numbers far outside all levels would be as near.
        within = np.clip(values, self.low, self.high)[..., None]
        found: NDArray[np.intp] = np.abs(within - np.array(self.levels)).argmin(axis=-1)
        return found


class Actions(_Section, kw_only=True):
    """The message that moves the robot."""

    topic: _TopicName
    type: _Message
    parts: Annotated[tuple[ActionPart, ...], Meta(min_length=1)]
    sender: Annotated[str, matching(f'({_FIELD})?', "a field, or ''")] = ''
    echo: _OtherTopic = ''
    recorded: tuple[ActionPart, ...] = ()

    def __post_init__(self) -> None:
        for name in ('parts', 'recorded'):
            if len({bool(part.levels) for part in getattr(self, name)}) > 1:
                raise ValueError(f'{name}: levels for all of them, or for none')
        if self.sends_positions and (self.sender or self.echo):
            # What another sends would be compared with the neutral action, which is no position.
            raise _refusal('sender', self.sender or self.echo,
                           "'', as echo, with change_of or position_of")

    @property
    def sends_positions(self) -> bool:
        return any(part.feature for part in self.parts)

    @property
    def has_changes(self) -> bool:
        return any(part.change_of for part in self.parts)

    @property
    def neutral(self) -> tuple[float, ...]:
        return tuple(part.neutral for part in self.parts)

    @property
    def is_discrete(self) -> bool:
        return bool(self.parts[0].levels)

    def values(self, chosen: NDArray[Any]) -> NDArray[np.float64]:
        """Return an action of a policy in the units of its parts, float64 [parts].

        ``chosen`` has numbers of levels, or of each part -1 to 1; others are clipped.
        """
        if self.is_discrete:
            return np.array([part.levels[index] for part, index in zip(
                self.parts, np.ravel(chosen).tolist(), strict=True)])
        low, high = np.array([(part.low, part.high) for part in self.parts]).T
        scaled = low + 0.5 * (np.clip(np.ravel(chosen), -1.0, 1.0) + 1.0) * (high - low)
        # The neutral action is exact, although it was rounded.
        is_neutral = np.abs(scaled - self.neutral) < _ROUNDED * (high - low)
        return np.where(is_neutral, self.neutral, scaled)

    def chosen(self, values: NDArray[np.float64]) -> NDArray[Any]:
        """Return the nearest actions, [N, parts], as :meth:`values` takes them, to its results."""
        values = np.atleast_2d(values)
        if self.is_discrete:
            return np.stack([part.nearest(column) for part, column in zip(
                self.parts, values.T, strict=True)], axis=1)
        low, high = np.array([(part.low, part.high) for part in self.parts]).T
        return np.asarray(np.clip(2.0 * (values - low) / (high - low) - 1.0, -1.0, 1.0))


class TakeoverPart(_Section, kw_only=True):
    """A number of a person's message, which times ``scale`` is the part ``name`` of the action.

    Of a part with ``position_of`` it is a change.
    """

    name: _Text
    field: _Field
    index: _Index = -1
    scale: _Number = 1.0


class Takeover(_Section, kw_only=True):
    """A topic by which a person commands the robot; what else its actions have is neutral.

    A message counts while its field ``held`` is not 0, such as a button, or always without one.
    The neutral action is sent ``timeout`` after the last one.
    """

    topic: _TopicName
    type: _Message
    parts: Annotated[tuple[TakeoverPart, ...], Meta(min_length=1)]
    held: Annotated[str, matching(f'({_FIELD})?', "a dotted path such as buttons, or ''")] = ''
    held_index: _Index = -1
    timeout: _Seconds = 0.5


class LateAction(_Section, kw_only=True):
    """What becomes of a robot whose agent has not acted when the next step begins."""

    action: Annotated[str, choice('hold', 'stop')]
    limit: Annotated[float, Meta(ge=0.001, le=60.0)]


class StopTopic(_Section, kw_only=True):
    """A topic whose ``field`` (bool) is true, or that is silent, while nothing may move.

    Without a ``field`` each message is a sign of life. Silence longer than ``timeout`` is a stop;
    0: any time. Unless ``required``, it may be silent before its first message. A ``mark`` is a
    field that changes with each stop, so that one that came and went is seen too.
    """

    topic: _TopicName
    type: _Message
    field: Annotated[str, matching(f'({_FIELD})?', "a dotted path such as data, or ''")] = ''
    mark: Annotated[str, matching(f'({_FIELD})?', "a dotted path such as data, or ''")] = ''
    timeout: Annotated[float, Meta(ge=0.0, le=3600.0)] = 0.0
    required: bool = True
    # Of contracts of before: every profile of a publisher is subscribed to.
    latched: bool = True

    def __post_init__(self) -> None:
        if not (self.field or self.timeout):
            raise ValueError('field: missing, or timeout')


class ServiceReset(_Section, kw_only=True):
    """A service that resets the robot."""

    name: Annotated[str, matching(_PATH, 'the name of a service')]
    type: Annotated[str, matching('[a-z][a-z0-9_]*/srv/[A-Z][A-Za-z0-9]*', 'package/srv/Name')]
    request: dict[str, Any] = {}
    success: str = ''
    timeout: Annotated[float, Meta(ge=0.1, le=3600.0)] = 5.0


class TrajectoryReset(_Section, kw_only=True):
    """A trajectory that brings the robot to its start.

    It is a goal of an ``action`` (``control_msgs/FollowJointTrajectory``), or a message on a
    ``topic`` (``trajectory_msgs/JointTrajectory``), which runs on without its sender.
    """

    action: _OtherTopic = ''
    topic: _OtherTopic = ''
    positions: Annotated[dict[str, _Number], Meta(min_length=1)]
    seconds: Annotated[float, Meta(ge=0.1, le=600.0)]
    tolerance: Annotated[float, Meta(ge=1e-6, le=100.0)]
    timeout: Annotated[float, Meta(ge=0.1, le=3600.0)]

    def __post_init__(self) -> None:
        if bool(self.action) == bool(self.topic):
            raise _refusal('topic', self.topic, 'one of action and topic')


class PolicyReset(_Section, kw_only=True):
    """A policy that brings the robot back: an ONNX file, and the contract of its task.

    Both are beside the contract. The reset ends with the success of that task.
    """

    file: Annotated[str, matching(rf'{_BESIDE}\.onnx', 'a file beside the contract, *.onnx')]
    robot: Annotated[str, matching(_BESIDE, 'the name of a contract beside this one')]
    timeout: Annotated[float, Meta(ge=0.1, le=3600.0)]


#: A text says what a person has to do, and then confirms.
Reset = ServiceReset | TrajectoryReset | PolicyReset | str | None


class _Resets(_Section, kw_only=True):
    service: ServiceReset | None = None
    trajectory: TrajectoryReset | None = None
    policy: PolicyReset | None = None
    confirmation: _Text | None = None
    none: bool = False

    def __post_init__(self) -> None:
        if sum(map(bool, (self.service, self.trajectory, self.policy, self.confirmation,
                          self.none))) != 1:
            raise ValueError('one of service, trajectory, policy, confirmation and none')


_FUNCTION = r'[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*'


class FunctionCall(_Section, kw_only=True):
    """A Python function or class of this host, ``module:name``, with its arguments."""

    function: Annotated[str, matching(_FUNCTION, 'module:name')]
    arguments: dict[str, Any] = {}


class Success(FunctionCall, kw_only=True):
    """What says that an episode has succeeded: a function, or a classifier of an observed image.

    A ``classifier`` is an ONNX file beside the contract, or in a folder there. It has to say so
    at ``times`` ticks in a row, and in each episode it has to deny it first.
    """

    function: Annotated[str, matching(f'({_FUNCTION})?', 'module:name')] = ''
    classifier: Annotated[str, matching(
        rf'({_BESIDE}\.onnx)?', 'a file beside the contract, such as success.onnx')] = ''
    image: Annotated[str, matching(f'({NAME})?', 'the name of an image')] = ''
    times: Annotated[int, Meta(ge=1, le=1000)] = 2

    def __post_init__(self) -> None:
        if bool(self.function) == bool(self.classifier):
            raise ValueError('one of function and classifier')
        if self.classifier and not self.image:
            raise ValueError('image: missing')


class Limit(_Range, kw_only=True):
    """The episode ends when a feature is not within ``low`` to ``high``."""

    feature: str


class Contract(_Section, kw_only=True):
    """A robot as an environment; ``path`` is its file, ``NAME.yaml``."""

    path: str
    rate: Annotated[float, Meta(ge=0.1, le=1000.0)]
    clock: Annotated[str, choice('wall', 'simulated')] = 'wall'
    topics: Annotated[dict[str, Topic], Meta(min_length=1)]
    features: Annotated[tuple[Feature, ...], Meta(min_length=1)]
    actions: Actions
    takeover: Takeover | None = None
    late: LateAction
    stops: tuple[StopTopic, ...] = ()
    resets: _Resets = field(name='reset')
    mirror: tuple[_Text, ...] = ()
    task: FunctionCall | None = None
    reward: FunctionCall | None = None
    success: Success | None = None
    failure: FunctionCall | None = None
    success_reward: Annotated[float, Meta(ge=0.0, le=1e6)] = 0.0
    limits: tuple[Limit, ...] = ()
    limit_penalty: Annotated[float, Meta(ge=0.0, le=1e6)] = 0.0
    episode_steps: Annotated[int, Meta(ge=1, le=1_000_000_000)]
    images: tuple[ImageTopic, ...] = ()
    namespace: Annotated[str, matching(
        r'([A-Za-z][A-Za-z0-9_/]*(\{\})?)?', 'such as robot_{}')] = ''
    copies: Annotated[int, Meta(ge=1, le=4096)] = 1

    def __post_init__(self) -> None:
        names = [feature.name for feature in self.features]
        for index, feature in enumerate(self.features):
            place = f'features[{index}]'
            if feature.source not in self.topics:
                raise _refusal(f'{place}: from', feature.source, 'one of '
                               + ', '.join(map(repr, self.topics)))
            if feature.name in names[:index]:
                raise _refusal(f'{place}: name', feature.name, 'a name that no other feature has')
        self._check_images()
        for index, limit in enumerate(self.limits):
            _check_name(f'limits[{index}]: feature', limit.feature, names)
        for index, each in enumerate(self.actions.parts):
            if each.feature:
                key = 'change_of' if each.change_of else 'position_of'
                place = f'actions: parts[{index}]: {key}'
                _check_name(place, each.feature, [
                    feature.name for feature in self.features if not feature.optional])
                of = self.features[names.index(each.feature)]
                if (of.scale, of.unit) != (each.scale, each.unit):
                    raise _refusal(place, each.feature, 'a feature with the scale and unit of '
                                   f'the part, {each.scale:g} and {each.unit!r}')
        if self.takeover:
            self._check_takeover(self.takeover)
        for joint in self.resets.trajectory.positions if self.resets.trajectory else ():
            _check_name('reset: trajectory: positions', joint, names)
            if (scale := self.features[names.index(joint)].scale) != 1.0:
                raise _refusal('reset: trajectory: positions', joint,
                               f'a feature without scale, which is {scale:g}')
        if self.late.limit * self.rate < 1.0:
            raise _refusal('late: limit', self.late.limit, f'at least {1.0 / self.rate:g}')
        if self.task is not None and self.reward is not None:
            raise ValueError('reward: not beside a task, which has its own')
        if not (self.task or self.reward or self.success_reward):
            raise ValueError('reward: missing: a reward, a task with its own, or success_reward')
        judges = bool(self.success and self.success.function)
        if self.task is not None and (judges or self.failure):
            raise ValueError(f'{"success: function" if judges else "failure"}: not beside a task')
        if self.copies > 1 and '{}' not in self.namespace:
            raise _refusal('copies', self.copies, '1, or a namespace such as robot_{}')

    def _check_takeover(self, takeover: Takeover) -> None:
        neutral = {each.name: each.neutral for each in self.actions.parts}
        for part in takeover.parts:
            _check_name('takeover: parts: name', part.name, [*neutral], 'actions')
            value = neutral[part.name]
            if takeover.type != self.actions.type and value and math.isfinite(value):
                # A stick at rest would command 0.
                raise _refusal('takeover: type', takeover.type, f'{self.actions.type}, as '
                               f'{part.name} has the neutral {value:g}, not 0')

    def _check_images(self) -> None:
        names, first = [*self.topics], next(iter(self.observed_images), None)
        for index, image in enumerate(self.images):
            if image.name in names:
                raise _refusal(f'images[{index}]: name', image.name,
                               'a name that no other image and no topic has')
            names.append(image.name)
            if first and image in self.observed_images and image.size != first.size:
                raise _refusal(f'images[{index}]: size', image.size,
                               f'{first.size}, as of the image {first.name}')
        if self.success is not None and self.success.classifier:
            _check_name('success: image', self.success.image,
                        [each.name for each in self.measured_images], 'images with a size')
        channels = sum(image.stack * image.channels for image in self.observed_images)
        if channels > _MAX_CHANNELS:
            raise _refusal('images: stack', channels, f'at most {_MAX_CHANNELS} channels of all '
                           'together, 3 a frame, 1 with grayscale')

    @property
    def measured_images(self) -> list[ImageTopic]:
        return [image for image in self.images if image.size]

    @property
    def observed_images(self) -> list[ImageTopic]:
        return [image for image in self.measured_images if image.observed]

    def broken_limit(self, values: Mapping[str, float]) -> Limit | None:
        """Return the first limit that features are beyond; NaN is missing, and breaks none."""
        return next((each for each in self.limits if values[each.feature] < each.low
                     or values[each.feature] > each.high), None)

    def image(self, name: str) -> ImageTopic:
        """Return one of the images; '': the first one; or ContractError."""
        found = {each.name: each for each in self.images}
        name = name or next(iter(found), '')
        if name not in found:
            raise ContractError(f'{self.name}.yaml: image {quoted(name)} is not allowed: names of '
                                f'its images: {", ".join(found) or "there are none"}')
        return found[name]

    @property
    def inputs(self) -> dict[str, Topic]:
        """Return what the robot is measured by: topics, then images, by key."""
        return self.topics | {image.name: image for image in self.measured_images}

    @property
    def observed_inputs(self) -> dict[str, Topic]:
        """Return the :attr:`inputs` of which the policy knows."""
        return self.topics | {image.name: image for image in self.observed_images}

    @property
    def classifier(self) -> Path | None:
        """Return the file of the classifier of success."""
        if self.success is None or not self.success.classifier:
            return None
        return Path(self.path).parent / self.success.classifier

    @property
    def name(self) -> str:
        return Path(self.path).stem

    @property
    def env_id(self) -> str:
        return f'robot/{self.name}'

    @property
    def simulated_clock(self) -> bool:
        return self.clock == 'simulated'

    @property
    def reset(self) -> Reset:
        """Return how it is reset; None: it starts where it is."""
        return (self.resets.service or self.resets.trajectory or self.resets.policy
                or self.resets.confirmation)

    def without_reset(self) -> 'Contract':
        """Return this contract, whose episodes begin where the robot is."""
        return replace(self, resets=_Resets(none=True))

    @property
    def recorded(self) -> list[str]:
        """Return the topics of a recording, as the contract names them."""
        names = [*(topic.topic for topic in self.topics.values()), self.actions.topic,
                 self.actions.echo, *(stop.topic for stop in self.stops if stop.field),
                 *(image.topic for image in self.images), '/clock' if self.simulated_clock else '']
        return list(dict.fromkeys(filter(None, names)))

    def full(self, name: str, copy: int) -> str:
        """Return the name of a copy's topic, with the contract's namespace."""
        space = self.namespace.format(copy)
        return name if name.startswith('/') or not space else f'{space}/{name}'


def _check_name(place: str, name: str, known: list[str], kind: str = 'features') -> None:
    if name not in known:
        raise _refusal(place, name, f'names of {kind}: {", ".join(known)}'
                       f'{suggestion(name, known)}')
