"""Which topics of a bag become rows: those of the arm, or of the contract of a robot."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.joints import JOINTS
from vdl_ros.bags.messages import MessageError, decode, is_stamped, stamp_of, values_by_name
from vdl_ros.bags.reader import BagReader
from vdl_ros.common.images import EncodingError, ImageError, pixels_of
from vdl_ros.common.quoting import shown
from vdl_ros.robots.contract import (
    COMPRESSED_IMAGE,
    IMAGE,
    TRAJECTORY,
    ActionPart,
    Contract,
    ContractError,
    Feature,
)
from vdl_ros.robots.readings import ReadingError, read_feature, read_part

_IMAGES = (IMAGE, COMPRESSED_IMAGE)


@dataclass(frozen=True)
class BagTopics:
    """Topics by their last names.

    Attributes:
        types: ``package/msg/Name`` of each.
        states: function of each topic of the robot's state; it returns numbers by name.
        read_command: returns its numbers, in the order of ``parts`` of an action.
        rows: topic whose messages become rows: the images, or of a robot without a camera the
            first of ``states``.
        by_stamp: messages belong together by their stamps; else by when they were recorded.
    """

    types: Mapping[str, str]
    states: Mapping[str, Callable[[Any], dict[str, float]]]
    command: str
    read_command: Callable[[Any], tuple[float, ...]]
    rows: str
    names: tuple[str, ...]
    parts: tuple[ActionPart, ...]
    robot: str
    by_stamp: bool = True

    @property
    def motors(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.parts)

    @property
    def has_camera(self) -> bool:
        return self.types[self.rows] in _IMAGES

    def without_images(self, but: Collection[str] = ()) -> 'BagTopics':
        """Return the topics of which each message of the first state is a row."""
        return replace(
            self, rows=next(iter(self.states)),
            types={name: kind for name, kind in self.types.items()
                   if kind not in _IMAGES or name in but})


def _joints(message: Any) -> dict[str, float]:
    return values_by_name(message.name, message.position)


def _motors(message: Any) -> tuple[float, ...]:
    value = tuple(float(getattr(message, motor)) for motor in JOINTS)
    if any(abs(each) > 1 for each in value):
        raise MessageError('a motor is commanded something other than -1, 0, 1')
    return value


#: The OWI-535 with its camera and all its motors.
ARM = BagTopics(
    {'camera/image_raw': IMAGE, 'arm/joint_states': 'sensor_msgs/msg/JointState',
     'arm/motors_sent': 'vdl_ros/msg/MotorCommand'},
    {'arm/joint_states': _joints}, 'arm/motors_sent', _motors, 'camera/image_raw', JOINTS,
    tuple(ActionPart(name=name, field=name, unit='', levels=(-1.0, 0.0, 1.0)) for name in JOINTS),
    'owi535')


def of_contract(contract: Contract) -> BagTopics:
    """Return the topics of a robot: features are the state, parts of the action the command.

    ContractError: its commands are positions, of which actions cannot be made.
    """
    if contract.actions.has_changes:
        raise ContractError(f'{contract.name}.yaml: actions: change_of is not allowed for data of '
                            'recordings: their positions are no actions')
    types, states = {}, {}
    for key, topic in contract.topics.items():
        name = topic.topic.strip('/')
        types[name] = topic.type
        states[name] = partial(
            _features, [each for each in contract.features if each.source == key])
    command = (contract.actions.echo or contract.actions.topic).strip('/')
    types[command] = contract.actions.type
    rows = next(iter(states))
    if contract.images:
        rows = contract.images[0].topic.strip('/')
        types |= {image.topic.strip('/'): image.type for image in contract.images}
    parts = (*contract.actions.parts, *contract.actions.recorded)
    return BagTopics(
        types, states, command, partial(_parts, parts), rows,
        tuple(feature.name for feature in contract.features),
        parts, contract.name,
        # Commands that are trajectories begin when they arrive, and have no stamp.
        contract.actions.type != TRAJECTORY and all(map(is_stamped, types.values()))
        and all(each.stamped for each in (*contract.topics.values(), *contract.images)))


def _features(features: list[Feature], message: Any) -> dict[str, float]:
    try:
        return {feature.name: read_feature(feature, message) for feature in features}
    except (AttributeError, ReadingError) as error:
        raise MessageError(' '.join(str(error).split())) from None


def _parts(parts: Sequence[ActionPart], message: Any) -> tuple[float, ...]:
    found = []
    for part in parts:
        try:
            found.append(read_part(part, message))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise MessageError(' '.join(str(error).split())) from None
    return tuple(found)


@dataclass(frozen=True)
class Picture:
    """An image: width, height, and RGB, uint8 [height, width, 3], or None if not asked for."""

    size: tuple[int, int]
    pixels: NDArray[np.uint8] | None


#: A picture; positions by joint; commands by motor.
Value = Picture | dict[str, float] | tuple[float, ...]


@dataclass(frozen=True)
class Entry:
    """A message: the last names of its topic, its own stamp and when it was recorded, ns.

    Without a stamp, or in a bag whose messages do not all have one, ``stamp_ns`` is ``logged_ns``.
    ``own_ns`` is the stamp in either bag, None without one.
    """

    topic: str
    stamp_ns: int
    logged_ns: int
    value: Value
    own_ns: int | None


class ArmBag:
    """A bag of one robot and its camera; it can be read more than once.

    Args:
        path: the bag's folder, or one ``.mcap`` file.
        namespace: of the topics, where a bag holds several robots.

    Attributes:
        faults: lines about files of the bag, as of a BagReader; known after reading.
        refused: how many messages could not be used, by reason.
    """

    def __init__(self, path: Path, namespace: str = '', topics: BagTopics = ARM) -> None:
        self.path, self._namespace, self.topics = path, namespace.strip('/'), topics
        self.refused = Counter[str]()
        self._reader = BagReader(path)
        self.faults = self._reader.faults

    def read(self, *, pixels: bool) -> Iterator[Entry]:
        """Yield the messages of the topics that are exported, in the order of the recording.

        Without ``pixels`` of images only the size. ValueError: no bag, or topics of two robots.
        """
        self.refused = Counter()
        names: dict[str, str] = {}
        for message in self._reader:
            if topic := self._topic(message.topic, message.type, names):
                try:
                    yield self._entry(topic, message.stamp_ns, message.data, pixels)
                except MessageError as error:
                    self.refused[f'{topic}: {error}'] += 1
        self.faults = self._reader.faults

    def _entry(self, topic: str, logged_ns: int, data: bytes, pixels: bool) -> Entry:
        topics = self.topics
        message = decode(data, topics.types[topic])
        value: Value
        if topics.types[topic] in _IMAGES:
            value = _picture(message, pixels)
        elif topic in topics.states:
            value = topics.states[topic](message)
        else:
            value = topics.read_command(message)
        own_ns = stamp_of(message) if is_stamped(topics.types[topic]) else None
        stamp_ns = logged_ns if own_ns is None or not topics.by_stamp else own_ns
        return Entry(topic, stamp_ns, logged_ns, value, own_ns)

    def _topic(self, name: str, kind: str, names: dict[str, str]) -> str:
        """Return the last names of a topic that is exported, '' of another."""
        for topic, expected in self.topics.types.items():
            # Some writers leave out the first slash.
            if not f'/{name}'.endswith(f'/{topic}') or kind != expected:
                continue
            if self._namespace and name.lstrip('/') != f'{self._namespace}/{topic}':
                continue
            if names.setdefault(topic, name) != name:
                raise ValueError(f'{self.path}: {shown(names[topic])} and {shown(name)}: '
                                 'choose one with --namespace')
            return topic
        return ''


def _picture(message: Any, pixels: bool) -> Picture:
    # Decoded each time the bag is read: a whole header does not say that the rest is there.
    try:
        found = pixels_of(message)
    except EncodingError as error:
        raise ValueError(str(error)) from error
    except ImageError as error:
        raise MessageError('an image that is damaged, too large, or has a wrong number of '
                           'bytes') from error
    return Picture((found.shape[1], found.shape[0]), found if pixels else None)
