"""Which topics of a bag become rows: those of the arm, or of the contract of a robot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.bags.messages import MessageError, is_stamped, values_by_name
from vdl_ros.robots.contract import ActionPart, Contract, Feature
from vdl_ros.robots.reading import ReadingError, follow, read_feature

__all__ = ['ARM', 'BagTopics', 'of_contract']

IMAGE, COMPRESSED_IMAGE = 'sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage'
_IMAGES = (IMAGE, COMPRESSED_IMAGE)


@dataclass(frozen=True)
class BagTopics:
    """
    Topics by their last names.

    Attributes:
        types: ``package/msg/Name`` of each.
        states: function of each topic of the robot's state; it returns numbers by name.
        command: topic of the commands.
        read_command: returns its numbers, in the order of ``motors``.
        rows: topic whose messages become rows: the images, or of a robot without a camera the
            first of ``states``.
        names: of the numbers of the state.
        motors: names of those of a command.
        robot: its name.
        by_stamp: messages belong together by their stamps; else by when they were recorded.
    """

    types: Mapping[str, str]
    states: Mapping[str, Callable[[Any], dict[str, float]]]
    command: str
    read_command: Callable[[Any], tuple[float, ...]]
    rows: str
    names: tuple[str, ...]
    motors: tuple[str, ...]
    robot: str
    by_stamp: bool = True

    @property
    def has_camera(self) -> bool:
        """Return whether rows have images."""
        return self.types[self.rows] in _IMAGES

    def without_images(self) -> BagTopics:
        """Return the topics of which each message of the first state is a row."""
        return replace(
            self, rows=next(iter(self.states)),
            types={name: kind for name, kind in self.types.items() if kind not in _IMAGES})


def _joints(message: Any) -> dict[str, float]:
    return values_by_name(message.name, message.position)


def _motors(message: Any) -> tuple[float, ...]:
    value = tuple(float(getattr(message, motor)) for motor in JOINTS)
    if any(abs(each) > 1 for each in value):
        raise MessageError('a motor is commanded something other than -1, 0, 1')
    return value


#: The OWI-535 with its camera and all its motors, and captured frames.
ARM = BagTopics(
    {'camera/image_raw': IMAGE, 'arm/joint_states': 'sensor_msgs/msg/JointState',
     'arm/motors_sent': 'vdl_ros/msg/MotorCommand', 'capture/scene': 'vdl_ros/msg/CaptureScene'},
    {'arm/joint_states': _joints}, 'arm/motors_sent', _motors, 'camera/image_raw', JOINTS, JOINTS,
    'owi535')


def of_contract(contract: Contract) -> BagTopics:
    """Return the topics of a robot: features are the state, parts of the action the command."""
    types, states = {}, {}
    for key, topic in contract.topics.items():
        name = topic.topic.strip('/')
        types[name] = topic.type
        states[name] = partial(
            _features, [each for each in contract.features if each.source == key])
    command = (contract.actions.echo or contract.actions.topic).strip('/')
    types[command] = contract.actions.type
    rows = next(iter(states))
    if contract.camera:
        rows = contract.camera.strip('/')
        types[rows] = COMPRESSED_IMAGE if rows.endswith('/compressed') else IMAGE
    parts = (*contract.actions.parts, *contract.actions.recorded)
    return BagTopics(
        types, states, command, partial(_parts, parts), rows,
        tuple(feature.name for feature in contract.features),
        tuple(part.name for part in parts), contract.name,
        all(map(is_stamped, types.values())))


def _features(features: list[Feature], message: Any) -> dict[str, float]:
    try:
        return {feature.name: read_feature(feature, message) for feature in features}
    except (AttributeError, ReadingError) as error:
        raise MessageError(' '.join(str(error).split())) from None


def _parts(parts: Sequence[ActionPart], message: Any) -> tuple[float, ...]:
    found = []
    for part in parts:
        try:
            value = follow(message, part.field)
            found.append(float(value if part.index < 0 else value[part.index]))
        except (AttributeError, IndexError, TypeError) as error:
            raise MessageError(' '.join(str(error).split())) from None
    return tuple(found)
