"""
Quality of service by name: one profile for each kind of topic, the same on both sides.

Every publisher and subscription of this package takes its profile from :data:`TOPICS`, so a pair
that does not match cannot be written; ``test/ros/test_qos.py`` checks every pair all the same.
"""

from __future__ import annotations

from rclpy.qos import (
    DurabilityPolicy,
    HistoryPolicy,
    LivelinessPolicy,
    QoSProfile,
    ReliabilityPolicy,
)

__all__ = ['LATCHED', 'REPORT', 'SENSOR', 'STREAM', 'TOPICS']


def _profile(
    depth: int, reliability: ReliabilityPolicy, durability: DurabilityPolicy,
) -> QoSProfile:
    return QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=depth,
                      reliability=reliability, durability=durability,
                      liveliness=LivelinessPolicy.AUTOMATIC)


# Trajectories and what answers them. Credit bounds what is under way (rl/flow.py); the depth
# only has to hold all of it, for as many actors as one learner is likely to have.
STREAM = _profile(256, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)

# State that a late joiner needs at once: weights, robot_description.
LATCHED = _profile(1, ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL)

# Small reports that a listener wants complete: episodes, statistics, diagnostics.
REPORT = _profile(100, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)

# Images and joint states: the newest counts, a lost one is not sent again.
SENSOR = _profile(5, ReliabilityPolicy.BEST_EFFORT, DurabilityPolicy.VOLATILE)

TOPICS = {
    'trajectories': STREAM,
    'policy': LATCHED,
    'observations': STREAM,
    'actions': STREAM,
    'episodes': REPORT,
    '/statistics': REPORT,
    '/diagnostics': REPORT,
}
