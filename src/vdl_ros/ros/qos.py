"""Every topic of this package: its message, its quality of service, what a user overrides."""

import copy
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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

# How signs of life are heard: one that is lost must not be sent again when nobody lives.
ALIVE = LATEST

# Commands: none may be lost, an older one is obsolete.
COMMAND = _profile(1, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)

# Commands to the motors. Nodes that command them and give way to a person queue the commands of
# all publishers, or their own next one would hide the person's.
MOTORS = COMMAND
MOTORS_OF_ALL = _profile(32, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)

# The emergency stop: each of several publishers latches its last message. A subscriber has to
# queue the messages of all publishers, or the last to arrive would hide one that says stop.
LATCHED_OF_ALL = _profile(32, ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL)

# The states of all actors.
STATE_OF_ALL = _profile(256, ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL)


@dataclass(frozen=True)
class Topic:
    """A topic: its type as ``package/Name``, and its profiles; subscribed as offered by default.

    ``overridable``: parameters of a node may change depth and reliability.
    """

    type: str
    offered: QoSProfile
    subscribed: QoSProfile | None = None
    overridable: bool = False

    @property
    def message(self) -> Any:
        """Return the class of the messages; its package is imported only now."""
        package, name = self.type.split('/')
        return getattr(importlib.import_module(f'{package}.msg'), name)


def _sensor(kind: str) -> Topic:
    return Topic(kind, SENSOR, LATEST, overridable=True)


TABLE = {
    'trajectories': Topic('vdl_ros/Trajectory', STREAM),
    'policy': Topic('vdl_ros/Policy', LATCHED),
    'policy/image_raw': _sensor('sensor_msgs/Image'),
    'evaluated_policy': Topic('vdl_ros/Policy', LATCHED),
    'evaluations': Topic('vdl_ros/Evaluation', REPORT),
    'learner_busy': Topic('vdl_ros/LearnerBusy', REPORT),
    'actor_state': Topic('std_msgs/String', LATCHED, STATE_OF_ALL),
    'observations': Topic('vdl_ros/Observation', STREAM),
    'actions': Topic('vdl_ros/Action', STREAM),
    'decisions': Topic('vdl_ros/Observation', REPORT),
    'play/observation': Topic('std_msgs/String', COMMAND),
    'play/action': Topic('std_msgs/String', COMMAND),
    'episodes': Topic('vdl_ros/Episode', REPORT, overridable=True),
    'incidents': Topic('std_msgs/String', REPORT),
    'arm/motors': Topic('vdl_ros/MotorCommand', MOTORS, MOTORS_OF_ALL),
    'arm/motors_sent': Topic('vdl_ros/MotorCommand', COMMAND_ECHO),
    'arm/emergency_stop': Topic('vdl_ros/EmergencyStop', LATCHED, LATCHED_OF_ALL),
    'arm/emergency_stop_release': Topic('vdl_ros/EmergencyStopRelease', LATCHED, LATCHED_OF_ALL),
    'arm/emergency_stop_state': Topic('vdl_ros/EmergencyStopState', LATCHED),
    'arm/emergency_stop_marker': Topic('visualization_msgs/Marker', LATCHED),
    'arm/joint_trajectory': Topic('trajectory_msgs/JointTrajectory', COMMAND),
    'arm/trajectory_status': Topic('vdl_ros/JointTrajectoryStatus', LATCHED),
    'arm/viewer_alive': Topic('std_msgs/Empty', COMMAND, ALIVE),
    'arm/joint_states': _sensor('sensor_msgs/JointState'),
    'arm/pose': _sensor('vdl_ros/ArmPose'),
    # Of ros2_control's controllers, for the SO-101.
    'joint_states': _sensor('sensor_msgs/JointState'),
    'forward_position_controller/commands': Topic('std_msgs/Float64MultiArray', COMMAND),
    'joint_trajectory_controller/joint_trajectory': Topic(
        'trajectory_msgs/JointTrajectory', COMMAND),
    'arm/trajectory_markers': Topic('visualization_msgs/MarkerArray', LATCHED),
    # Not latched: a policy that starts later would move an arm without notice.
    'arm/target': Topic('geometry_msgs/PointStamped', COMMAND),
    'arm/target_status': Topic('vdl_ros/TargetStatus', LATCHED),
    'cube/pose': _sensor('geometry_msgs/PoseStamped'),
    'camera/image_raw': _sensor('sensor_msgs/Image'),
    'camera/image_raw/compressed': _sensor('sensor_msgs/CompressedImage'),
    'camera/image_attacked': _sensor('sensor_msgs/Image'),
    'camera/camera_info': _sensor('sensor_msgs/CameraInfo'),
    'record_episodes/state': Topic('std_msgs/String', LATCHED),
    'robot/status': Topic('std_msgs/String', LATCHED),
    'robot/target': Topic('geometry_msgs/PointStamped', LATCHED),
    'robot_description': Topic('std_msgs/String', LATCHED),
    '/tf': Topic('tf2_msgs/TFMessage', REPORT, overridable=True),
    '/tf_static': Topic('tf2_msgs/TFMessage', LATCHED),
    '/clock': Topic('rosgraph_msgs/Clock', SENSOR, LATEST),
    '/statistics': Topic('statistics_msgs/MetricsMessage', REPORT),
    '/diagnostics': Topic('diagnostic_msgs/DiagnosticArray', REPORT),
}
#: The profiles that publishers offer.
TOPICS = {name: each.offered for name, each in TABLE.items()}


def subscription(topic: str) -> QoSProfile:
    return TABLE[topic].subscribed or TABLE[topic].offered


def pub(node: Node, topic: str, *, name: str = '') -> Publisher:
    """Return a publisher of a topic of :data:`TABLE`, or of its like with another ``name``."""
    found = TABLE[topic]
    return node.create_publisher(
        found.message, name or topic, copy.copy(found.offered), **_overriding(found))


def sub(
    node: Node, topic: str, callback: Callable[[Any], None], profile: QoSProfile | None = None, *,
    name: str = '',
) -> Subscription:
    """Return a subscription to a topic of :data:`TABLE`, or to its like with another ``name``.

    ``profile`` is for a subscriber that needs more, or less, messages than others.
    """
    found = TABLE[topic]
    return node.create_subscription(
        found.message, name or topic, callback, copy.copy(profile or subscription(topic)),
        **_overriding(found))


def _overriding(topic: Topic) -> dict[str, Any]:
    # rclpy writes what is overridden into the profile: callers pass a copy.
    return {'qos_overriding_options': QoSOverridingOptions(
        [QoSPolicyKind.DEPTH, QoSPolicyKind.RELIABILITY])} if topic.overridable else {}


_PREFIX = 'qos_overrides.'
_ENDS = ('publisher', 'subscription')
_POLICIES = {each.name: each for each in (
    Setting('depth', int, 1, '', minimum=1, maximum=1000),
    Setting('reliability', str, 'reliable', '', choices=('reliable', 'best_effort')))}


def check(node: Node, overrides: Mapping[str, object]) -> None:
    """Check parameters that override quality of service; the node need not have the topic."""
    allowed = sorted(
        node.resolve_topic_name(name) for name, each in TABLE.items() if each.overridable)
    for name, value in overrides.items():
        if not name.startswith(_PREFIX):
            continue
        topic, end, policy = (['', '', *name.removeprefix(_PREFIX).rsplit('.', 2)])[-3:]
        above, _, last = topic.rpartition('/')
        # That of an agent of a world is AGENT/episodes.
        is_known = topic in allowed or (
            last == 'episodes' and f'{above.rpartition("/")[0]}/{last}' in allowed)
        if not is_known or end not in _ENDS or policy not in _POLICIES:
            raise SettingError(
                f'{quoted(name)} is not allowed: {_PREFIX}TOPIC.END.POLICY with END '
                f'{" or ".join(_ENDS)}, POLICY {" or ".join(_POLICIES)}, and TOPIC one of '
                f'{", ".join(allowed)}')
        try:
            _POLICIES[policy].check(value)
        except SettingError as error:
            raise SettingError(f'{name.removesuffix(policy)}{error}') from None
