"""Settings as ROS parameters: declared from dataclasses with description, range and choices."""

from __future__ import annotations

from collections.abc import Mapping

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.node import Node

from vdl_ros.common.settings import Scalar, Setting, SettingError, settings_of, suggestion
from vdl_ros.ros import qos_overrides
from vdl_ros.ros.parameter_files import is_ros_parameter

__all__ = ['declare', 'given']


def given(node: Node, *classes: type) -> dict[str, Scalar]:
    """
    Return the checked parameters that the user set for ``node``.

    rclpy ignores parameters that are not declared, and rejects 1 for a float; here the first is
    an error and the second is accepted.

    Raises:
        SettingError: an unknown name or an invalid value.
    """
    qos_overrides.check(
        node, {name: each.value for name, each in node._parameter_overrides.items()})
    known = settings_of(*classes)
    found: dict[str, Scalar] = {}
    # rclpy has no public access to overrides before their declaration.
    for name, parameter in node._parameter_overrides.items():
        if is_ros_parameter(name):
            continue
        if name not in known:
            raise SettingError(f'{name}: no such parameter of {node.get_name()}'
                               f'{suggestion(name, known)}')
        found[name] = known[name].check(parameter.value)
    return found


def declare(node: Node, values: Mapping[str, object], *classes: type) -> None:
    """
    Declare every setting of ``classes`` as a read-only parameter.

    Args:
        node: the node.
        values: resolved values; the rest keep their defaults.
        classes: dataclasses of settings.
    """
    # Those of rclpy are for publishers and subscriptions that follow.
    for name in [name for name in node._parameter_overrides if not is_ros_parameter(name)]:
        del node._parameter_overrides[name]
    for name, setting in settings_of(*classes).items():
        node.declare_parameter(
            name, values.get(name, setting.default), _descriptor(setting))


def _descriptor(setting: Setting) -> ParameterDescriptor:
    descriptor = ParameterDescriptor(
        description=setting.doc, additional_constraints=setting.allowed, read_only=True)
    low, high = setting.minimum, setting.maximum
    if setting.type is int and low is not None and high is not None:
        descriptor.integer_range = [IntegerRange(from_value=int(low), to_value=int(high))]
    if setting.type is float and low is not None and high is not None:
        descriptor.floating_point_range = [FloatingPointRange(from_value=low, to_value=high)]
    return descriptor
