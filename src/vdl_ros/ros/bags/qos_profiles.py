"""Convert QoS profiles between rclpy and the form in which rosbag2 stores them in a bag."""

from __future__ import annotations

from typing import Any

from rclpy.qos import (
    DurabilityPolicy,
    HistoryPolicy,
    LivelinessPolicy,
    QoSProfile,
    ReliabilityPolicy,
)

__all__ = ['DEPTH', 'playback_profile', 'to_bag', 'weakest']

#: Messages that wait on a topic that is recorded or played.
DEPTH = 100
_RELIABILITY = {
    ReliabilityPolicy.RELIABLE: 'reliable', ReliabilityPolicy.BEST_EFFORT: 'best_effort'}
_DURABILITY = {
    DurabilityPolicy.TRANSIENT_LOCAL: 'transient_local', DurabilityPolicy.VOLATILE: 'volatile'}
_LIVELINESS = {
    LivelinessPolicy.AUTOMATIC: 'automatic', LivelinessPolicy.MANUAL_BY_TOPIC: 'manual_by_topic'}


def to_bag(profile: QoSProfile) -> dict[str, Any]:
    """Return an offered profile as rosbag2 stores it."""
    def duration(value: Any) -> dict[str, int]:
        whole = int(value.nanoseconds)
        return {'sec': whole // 10**9, 'nsec': whole % 10**9}

    return {
        # Discovery does not report a publisher's history; rosbag2 stores the same.
        'history': 'unknown', 'depth': 0,
        'reliability': _RELIABILITY.get(profile.reliability, 'unknown'),
        'durability': _DURABILITY.get(profile.durability, 'unknown'),
        'deadline': duration(profile.deadline), 'lifespan': duration(profile.lifespan),
        'liveliness': _LIVELINESS.get(profile.liveliness, 'unknown'),
        'liveliness_lease_duration': duration(profile.liveliness_lease_duration),
        'avoid_ros_namespace_conventions': False}


def playback_profile(offered: list[dict[str, Any]]) -> QoSProfile:
    """Return the profile with which to publish a topic of a bag."""
    kinds = [(str(each.get('reliability')), str(each.get('durability'))) for each in offered]
    # By name, or by number as older versions of rosbag2 wrote it.
    return weakest(all(kind not in ('best_effort', '2') for kind, _ in kinds),
                   bool(kinds) and all(kind in ('transient_local', '1') for _, kind in kinds))


def weakest(reliable: bool, latched: bool) -> QoSProfile:
    """Return the profile that matches all publishers, given what every one of them offers."""
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST, depth=DEPTH,
        reliability=(ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT),
        durability=(DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE))
