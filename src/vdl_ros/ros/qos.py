"""
Quality of service by name: one profile for each kind of topic, the same on both sides.

Every publisher of this package takes its profile from :data:`TOPICS`, every subscription by
:func:`subscription` or from there, so a pair that does not match cannot be written;
``test/ros/test_qos.py`` checks every pair all the same.
"""

from __future__ import annotations

from rclpy.qos import (
    DurabilityPolicy,
    HistoryPolicy,
    LivelinessPolicy,
    QoSProfile,
    ReliabilityPolicy,
)

__all__ = ['COMMAND', 'LATCHED_ALL', 'LATCHED', 'LATEST', 'REPORT', 'SENSOR', 'STOP', 'STREAM',
           'COMMAND_ECHO', 'TOPICS', 'subscription']


def _profile(
    depth: int, reliability: ReliabilityPolicy, durability: DurabilityPolicy,
) -> QoSProfile:
    return QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=depth,
                      reliability=reliability, durability=durability,
                      liveliness=LivelinessPolicy.AUTOMATIC)


# Trajectories and what answers them. Credit bounds what is under way
# (rl/acting/flow_control.py); the depth only has to hold all of it, for as many actors as one
# learner is likely to have.
STREAM = _profile(256, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)

# State that a late joiner needs at once: weights, robot_description.
LATCHED = _profile(1, ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL)

# Small reports that a listener wants complete: episodes, statistics, diagnostics.
REPORT = _profile(100, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)

# What the motors were told, the lamp among it: who joins late must know the last word at once, and
# who listens wants each of them.
COMMAND_ECHO = _profile(20, ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL)

# Images and joint states. Offered reliably, since tools that ask for no less would not hear them.
SENSOR = _profile(5, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)

# How this package listens to them: the newest counts, a lost one is not sent again.
LATEST = _profile(1, ReliabilityPolicy.BEST_EFFORT, DurabilityPolicy.VOLATILE)

# What the arm shall do now: none may be lost, an old one is worth nothing.
COMMAND = _profile(1, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)

# The emergency stop: each of several publishers keeps its last word. Who listens must hold the
# words of all of them until it looks, or the last to come would hide the one that says stop.
STOP = _profile(1, ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL)
LATCHED_ALL = _profile(32, ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL)

TOPICS = {
    'trajectories': STREAM,
    'policy': LATCHED,
    'observations': STREAM,
    'actions': STREAM,
    'episodes': REPORT,
    'arm/motors': COMMAND,
    'arm/motors_sent': COMMAND_ECHO,
    'arm/emergency_stop': STOP,
    'arm/joint_trajectory': COMMAND,
    'arm/trajectory_status': LATCHED,
    'arm/joint_states': SENSOR,
    'arm/pose': SENSOR,
    'arm/target': LATCHED,
    'capture/scene': STREAM,
    'capture/pose': STREAM,
    'camera/image_raw': SENSOR,
    'camera/camera_info': SENSOR,
    'robot_description': LATCHED,
    '/tf': REPORT,
    '/tf_static': LATCHED,
    '/clock': SENSOR,
    '/statistics': REPORT,
    '/diagnostics': REPORT,
}


def subscription(topic: str) -> QoSProfile:
    """Return the profile with which this package listens to ``topic``."""
    profile = TOPICS[topic]
    # By identity: profiles that are equal may mean different things.
    for offered, listening in ((SENSOR, LATEST), (STOP, LATCHED_ALL)):
        if profile is offered:
            return listening
    return profile
