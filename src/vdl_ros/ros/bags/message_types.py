"""Topics and types by names that come from the graph or from a bag; they may be anything."""

from __future__ import annotations

import importlib
import re

from ament_index_python.resources import get_resource
from rclpy.exceptions import InvalidTopicNameException
from rclpy.validate_full_topic_name import validate_full_topic_name

from vdl_ros.bags.reader import BagError
from vdl_ros.common.quoting import quoted

__all__ = ['check_topic', 'check_type', 'message_class']

# As rosidl allows them: no dot, which would name a module inside another one, and no path.
_FORM = re.compile(r'([a-z][a-z0-9_]{0,254})/msg/([A-Z][A-Za-z0-9]{0,254})')


def check_topic(name: str) -> None:
    """
    Check a full topic name: DDS does not, and rclpy raises an error for each use of a bad one.

    Raises:
        BagError: not a topic name of ROS.
    """
    try:
        validate_full_topic_name(name)
    except InvalidTopicNameException:
        raise BagError('not a topic name of ROS') from None


def check_type(type_name: str) -> tuple[str, str]:
    """
    Return package and name of ``pkg/msg/Name``; nothing is imported.

    Raises:
        BagError: not a name of that form, or the ament index has no such message.
    """
    found = _FORM.fullmatch(type_name)
    if found is None:
        raise BagError(f'{quoted(type_name)}: not a message type: package/msg/Name')
    package, name = found.groups()
    try:
        interfaces, _ = get_resource('rosidl_interfaces', package)
    except (LookupError, OSError):
        interfaces = ''
    if f'msg/{name}.msg' not in interfaces.splitlines():
        raise BagError(f'{quoted(type_name)}: no such message is installed here')
    return package, name


def message_class(type_name: str) -> type:
    """
    Return the Python class of ``pkg/msg/Name``; only an installed message's module is imported.

    Raises:
        BagError: it is not installed here.
    """
    package, name = check_type(type_name)
    try:
        found: type = getattr(importlib.import_module(f'{package}.msg'), name)
    except (AttributeError, ImportError, ValueError):
        raise BagError(f'{quoted(type_name)}: its Python class is not installed here') from None
    return found
