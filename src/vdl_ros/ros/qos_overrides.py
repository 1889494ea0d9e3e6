"""
Publishers and subscriptions whose quality of service a user may override by parameters.

``qos_overrides.TOPIC.publisher.depth``, ``.subscription.reliability`` and so on, with the absolute
name of the topic, as in every ROS node. Only topics of :data:`OVERRIDABLE`: depth and reliability
of commands, stops, policies and trajectories are part of how they work.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSPolicyKind
from rclpy.qos_overriding_options import QoSOverridingOptions
from rclpy.subscription import Subscription

from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import Setting, SettingError
from vdl_ros.ros import qos

__all__ = ['OVERRIDABLE', 'check', 'create_publisher', 'create_subscription']

OVERRIDABLE = ('arm/joint_states', 'arm/pose', 'camera/image_raw', 'camera/camera_info',
               'camera/image_raw/compressed', 'camera/image_attacked', 'policy/image_raw',
               'episodes', '/tf')
_PREFIX = 'qos_overrides.'
_ENDS = ('publisher', 'subscription')
_POLICIES = {each.name: each for each in (
    Setting('depth', int, 1, '', minimum=1, maximum=1000),
    Setting('reliability', str, 'reliable', '', choices=('reliable', 'best_effort')))}


def create_publisher(node: Node, kind: type, topic: str) -> Publisher:
    """Return a publisher with the profile of ``topic``, as overridden by the node's parameters."""
    # A copy, because rclpy writes what is overridden into the profile.
    return node.create_publisher(
        kind, topic, copy.copy(qos.TOPICS[topic]), qos_overriding_options=_options())


def create_subscription(
    node: Node, kind: type, topic: str, callback: Callable[[Any], None],
) -> Subscription:
    """Return a subscription with the profile of ``topic``, as overridden by parameters."""
    return node.create_subscription(
        kind, topic, callback, copy.copy(qos.subscription(topic)),
        qos_overriding_options=_options())


def check(node: Node, overrides: Mapping[str, object]) -> None:
    """
    Check the parameters of a node that override quality of service.

    A parameter file may be for several nodes, so the node need not have the topic.

    Raises:
        SettingError: a topic that cannot be overridden, which rclpy would ignore, or a value that
            is not allowed.
    """
    allowed = {node.resolve_topic_name(topic): topic for topic in OVERRIDABLE}
    for name, value in overrides.items():
        if not name.startswith(_PREFIX):
            continue
        topic, end, policy = (['', '', *name.removeprefix(_PREFIX).rsplit('.', 2)])[-3:]
        if topic not in allowed or end not in _ENDS or policy not in _POLICIES:
            raise SettingError(
                f'{quoted(name)} is not allowed: {_PREFIX}TOPIC.END.POLICY with END '
                f'{" or ".join(_ENDS)}, POLICY {" or ".join(_POLICIES)}, and TOPIC one of '
                f'{", ".join(sorted(allowed))}')
        try:
            _POLICIES[policy].check(value)
        except SettingError as error:
            raise SettingError(f'{name.removesuffix(policy)}{error}') from None


def _options() -> QoSOverridingOptions:
    return QoSOverridingOptions([QoSPolicyKind.DEPTH, QoSPolicyKind.RELIABILITY])
