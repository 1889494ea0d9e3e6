"""ROS parameter files: YAML with ``ros__parameters`` below the names of nodes.

``/**`` stands for every node, ``*`` for one part of a name, ``**`` for any number of parts. See
https://docs.ros.org, "Using ROS 2 launch", for the format.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.node import Node

from vdl_ros.common.files import absolute_paths
from vdl_ros.common.plain_yaml import YamlError, read_yaml
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import Scalar, SettingError, current_name, settings_of, suggestion
from vdl_ros.ros import qos

#: The name that stands for every node.
EVERY_NODE = '/**'
_KEY = 'ros__parameters'
_WILDCARDS = {'/**': r'(/\w+)*', '*': r'\w+'}
# Parameters that every node of rclpy has.
_ROS_NAMES = ('use_sim_time', 'start_type_description_service')
_ROS_PREFIX = 'qos_overrides.'


def is_ros_parameter(name: str) -> bool:
    """Return whether a parameter is one of rclpy's own, and not a setting of this package."""
    return name in _ROS_NAMES or name.startswith(_ROS_PREFIX)


def read_parameter_file(path: Path) -> dict[str, dict[str, object]]:
    """Return the parameters in a file by the names of nodes, which begin with ``/``."""
    try:
        return dict(_sections(read_yaml(path), ''))
    except (YamlError, SettingError) as error:
        raise SettingError(f'params_file: {path}: {error}') from None


def of_node(sections: Mapping[str, Mapping[str, object]], node: str) -> dict[str, object]:
    """Return the parameters of one node by its full name, such as ``/left/arm_driver``."""
    found: dict[str, object] = {}
    # What is for one node overrides what is for several.
    for pattern in sorted(sections, key=lambda each: '*' not in each):
        expression = ''.join(_WILDCARDS.get(each, re.escape(each))
                             for each in re.split(r'(/\*\*|\*)', pattern))
        if re.fullmatch(expression, node):
            found |= sections[pattern]
    return found


def _sections(content: object, name: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield names of nodes with their parameters; namespaces may be nested."""
    if not isinstance(content, dict) or not content:
        raise SettingError(
            f'{quoted(name) + ": " if name else ""}not of the form NODE: {_KEY}: NAME: VALUE')
    for key, value in content.items():
        if key == _KEY:
            yield name or EVERY_NODE, dict(_parameters(value, ''))
        else:
            yield from _sections(value, f'{name}/{str(key).strip("/")}')


def _parameters(value: object, prefix: str) -> Iterator[tuple[str, object]]:
    if not isinstance(value, dict):
        raise SettingError(f'{_KEY}: {quoted(value)} is not a mapping from names to values')
    for key, each in value.items():
        if isinstance(each, dict):
            yield from _parameters(each, f'{prefix}{key}.')
        else:
            yield current_name(f'{prefix}{key}'), each


def given(node: Node, *classes: type) -> dict[str, Scalar]:
    """Return the checked parameters that the user set for ``node``; paths become absolute.

    rclpy ignores parameters that are not declared, and rejects 1 for a float; here the first is
    an error and the second is accepted.
    """
    qos.check(node, {name: each.value for name, each in node._parameter_overrides.items()})
    known = settings_of(*classes)
    found: dict[str, Scalar] = {}
    # rclpy has no public access to overrides before their declaration.
    for name, parameter in node._parameter_overrides.items():
        if is_ros_parameter(name):
            continue
        name = current_name(name)
        if name not in known:
            raise SettingError(f'{name}: no such parameter of {node.get_name()}'
                               f'{suggestion(name, known)}')
        found[name] = known[name].check(parameter.value)
    return absolute_paths(found)


def declare(node: Node, values: Mapping[str, object], *classes: type) -> None:
    """Declare settings as read-only parameters with these values, or with their defaults."""
    # Those of rclpy are for publishers and subscriptions that follow.
    for name in [name for name in node._parameter_overrides if not is_ros_parameter(name)]:
        del node._parameter_overrides[name]
    for name, setting in settings_of(*classes).items():
        descriptor = ParameterDescriptor(
            description=setting.doc, additional_constraints=setting.allowed, read_only=True)
        low, high = setting.minimum, setting.maximum
        if setting.type is int and low is not None and high is not None:
            descriptor.integer_range = [IntegerRange(from_value=int(low), to_value=int(high))]
        if setting.type is float and low is not None and high is not None:
            descriptor.floating_point_range = [FloatingPointRange(from_value=low, to_value=high)]
        node.declare_parameter(name, values.get(name, setting.default), descriptor)
