"""Decode the CDR messages of a bag without ROS, by the library ``rosbags``.

Its decoder checks every length against the bytes that are there. The layouts are those of this
package, not those that a bag claims.
"""

import functools
import struct
from collections.abc import Iterable
from typing import Any

from rosbags.serde import SerdeError
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

#: As in ``msg/``, which is not installed where there is no ROS.
_DEFINITIONS = {
    'vdl_ros/msg/Observation': """
        std_msgs/Header header
        string actor_id
        uint64 start_id
        uint64 step
        string learner_id
        vdl_ros/Tensor[] tensors
        """,
    'vdl_ros/msg/Tensor': """
        string name
        string dtype
        uint32[] shape
        uint8[] data
        """,
    'vdl_ros/msg/MotorCommand': """
        std_msgs/Header header
        string sender
        int8 base
        int8 shoulder
        int8 elbow
        int8 wrist
        int8 gripper
        int8 lamp
        """,
}


class MessageError(ValueError):
    """A message that cannot be used; the text holds no numbers, so that equal ones count up."""


def decode(data: memoryview | bytes, type_name: str) -> Any:
    """Return a message with the fields of its type; arrays are views of ``data``.

    The type is one of ROS 2 Jazzy, or one that this package records. MessageError: the message is
    truncated or malformed.
    """
    store, view = _typestore(), memoryview(data)
    layout = store.get_msgdef(type_name)
    read = {b'\0\0': layout.deserialize_cdr_be, b'\0\1': layout.deserialize_cdr_le}.get(
        bytes(view[:2]))
    try:
        if read is not None:
            # Not by deserialize_cdr: it rejects the unused bytes that Fast DDS leaves at the end.
            return read(view[4:], 0, layout.cls, store)[0]
    except (SerdeError, ValueError, struct.error):
        pass
    raise MessageError('truncated or malformed')


def is_stamped(type_name: str) -> bool:
    """Return whether messages of a type have a header; MessageError: it is unknown here."""
    try:
        return any(name == 'header' for name, _ in _typestore().fielddefs[type_name][1])
    except KeyError:
        raise MessageError(f'messages of type {type_name} cannot be decoded: those of ROS 2 '
                           'Jazzy, and MotorCommand of this package') from None


def stamp_of(message: Any) -> int:
    """Return the stamp in a message's header, ns."""
    stamp = message.header.stamp
    return int(stamp.sec) * 10**9 + int(stamp.nanosec)


def values_by_name(names: list[str], values: Iterable[float]) -> dict[str, float]:
    try:
        return dict(zip(names, map(float, values), strict=True))
    except ValueError:
        raise MessageError('names and values differ in number') from None


@functools.cache
def _typestore() -> Typestore:
    store = get_typestore(Stores.ROS2_JAZZY)
    for name, definition in _DEFINITIONS.items():
        store.register(get_types_from_msg(definition, name))
    return store
