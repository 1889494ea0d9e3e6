"""Quality of service profiles by topic, for publishers and subscriptions.

Publishers of this package take their profile from :data:`TOPICS`, subscriptions from
:func:`subscription` or :data:`TOPICS`, so the two sides are compatible;
``test/ros/test_qos.py`` checks every pair.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import (
    DurabilityPolicy,
    HistoryPolicy,
    LivelinessPolicy,
    QoSPolicyKind,
    QoSProfile,
    ReliabilityPolicy,
)
from rclpy.qos_overriding_options import QoSOverridingOptions
from rclpy.subscription import Subscription

from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import Setting, SettingError

__all__ = ['ACTION_FEEDBACK', 'COMMAND', 'COMMAND_ECHO', 'HEARTBEAT', 'LATCHED', 'LATCHED_ALL',
           'LATEST', 'MOTORS', 'MOTORS_OF_ALL', 'OVERRIDABLE', 'REPORT', 'SENSOR', 'STOP',
           'STREAM', 'TOPICS', 'check', 'create_publisher', 'create_subscription', 'subscription']


def _profile(
    depth: int, reliability: ReliabilityPolicy, durability: DurabilityPolicy,
) -> QoSProfile:
    return QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=depth,
                      reliability=reliability, durability=durability,
                      liveliness=LivelinessPolicy.AUTOMATIC)


# Trajectories, observations and actions. Credit bounds the messages in flight
# (rl/acting/flow_control.py); the depth has to hold those of all actors of one learner.
STREAM = _profile(256, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)

# State that a late subscriber needs at once: weights, robot_description.
LATCHED = _profile(1, ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL)

# Small reports of which none may be lost: episodes, statistics, diagnostics.
REPORT = _profile(100, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)

# Commands as sent to the motors and the lamp: a late subscriber needs the last one, the others
# each of them.
COMMAND_ECHO = _profile(20, ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL)

# Images and joint states. Reliable, because some tools subscribe reliably only.
SENSOR = _profile(5, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)

# How this package subscribes to them: only the newest counts, lost ones are not sent again.
LATEST = _profile(1, ReliabilityPolicy.BEST_EFFORT, DurabilityPolicy.VOLATILE)

# Commands to the arm: none may be lost, an older one is obsolete.
COMMAND = _profile(1, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)

# Commands to the motors. Nodes that command them and give way to a person queue the commands of
# all publishers, or their own next one would hide the person's.
MOTORS = _profile(1, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)
MOTORS_OF_ALL = _profile(32, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)

# A sign of life: only the newest counts.
HEARTBEAT = _profile(1, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)

# Feedback of an action.
ACTION_FEEDBACK = _profile(10, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)

# The emergency stop: each of several publishers latches its last message. A subscriber has to
# queue the messages of all publishers, or the last to arrive would hide one that says stop.
STOP = _profile(1, ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL)
LATCHED_ALL = _profile(32, ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL)

TOPICS = {
    'trajectories': STREAM,
    'policy': LATCHED,
    'policy/image_raw': SENSOR,
    'evaluated_policy': LATCHED,
    'evaluations': REPORT,
    'learner_busy': REPORT,
    'observations': STREAM,
    'actions': STREAM,
    'episodes': REPORT,
    'arm/motors': MOTORS,
    'arm/motors_sent': COMMAND_ECHO,
    'arm/emergency_stop': STOP,
    'arm/emergency_stop_state': LATCHED,
    'arm/emergency_stop_marker': LATCHED,
    'arm/joint_trajectory': COMMAND,
    'arm/trajectory_status': LATCHED,
    # As rcl_action has it.
    'arm/follow_joint_trajectory/_action/feedback': ACTION_FEEDBACK,
    'arm/viewer_alive': HEARTBEAT,
    'arm/joint_states': SENSOR,
    'arm/pose': SENSOR,
    'arm/trajectory_markers': LATCHED,
    # Not latched: a policy that starts later would move an arm without notice.
    'arm/target': COMMAND,
    'arm/target_status': LATCHED,
    'camera/image_raw': SENSOR,
    'camera/image_raw/compressed': SENSOR,
    'camera/image_attacked': SENSOR,
    'camera/camera_info': SENSOR,
    'record_episodes/state': LATCHED,
    'robot_description': LATCHED,
    '/tf': REPORT,
    '/tf_static': LATCHED,
    '/clock': SENSOR,
    '/statistics': REPORT,
    '/diagnostics': REPORT,
}


def subscription(topic: str) -> QoSProfile:
    """Return the profile with which this package subscribes to ``topic``."""
    profile = TOPICS[topic]
    # By identity: equal profiles may have different purposes.
    for offered, subscribed in (
            (SENSOR, LATEST), (STOP, LATCHED_ALL), (MOTORS, MOTORS_OF_ALL)):
        if profile is offered:
            return subscribed
    return profile


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
        kind, topic, copy.copy(TOPICS[topic]), qos_overriding_options=_options())


def create_subscription(
    node: Node, kind: type, topic: str, callback: Callable[[Any], None],
) -> Subscription:
    """Return a subscription with the profile of ``topic``, as overridden by parameters."""
    return node.create_subscription(
        kind, topic, callback, copy.copy(subscription(topic)),
        qos_overriding_options=_options())


def check(node: Node, overrides: Mapping[str, object]) -> None:
    """Check the parameters of a node that override quality of service.

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
