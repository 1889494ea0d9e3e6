"""Conversion of joint states, trajectories and markers from and to messages."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from builtin_interfaces.msg import Duration, Time
from geometry_msgs.msg import Point
from sensor_msgs.msg import JointState
from std_msgs.msg import ColorRGBA
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint
from visualization_msgs.msg import Marker, MarkerArray

from vdl_ros.arm.model.geometry import Positions
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.msg import ArmPose, EmergencyStopState

__all__ = ['markers', 'positions_of', 'seconds', 'stop_marker', 'trajectory_message',
           'trajectory_times']


def seconds(stamp: Time | Duration) -> float:
    """Return a stamp or duration in seconds."""
    return float(stamp.sec + stamp.nanosec * 1e-9)


def positions_of(message: JointState | ArmPose) -> Positions:
    """
    Return the joints' positions, float64 [5], rad, NaN for missing ones.

    Joints that the arm does not have are ignored.

    Raises:
        ValueError: not one position for each name, a repeated name, or a position that is not
            finite.
    """
    names = list(message.name)
    if len(names) != len(message.position):
        raise ValueError(f'positions: {len(names)} names but {len(message.position)} positions')
    found = np.full(len(JOINTS), math.nan)
    for name, value in zip(names, message.position, strict=True):
        if name not in JOINTS:
            continue
        index = JOINTS.index(name)
        if not math.isnan(found[index]):
            raise ValueError(f'positions: {name} is named twice')
        if not math.isfinite(value):
            raise ValueError(f'positions: {name}: {value} is not a finite number')
        found[index] = value
    return found


def trajectory_times(message: JointTrajectory) -> list[float]:
    """Return the times of a trajectory's points from its start, s."""
    return [seconds(point.time_from_start) for point in message.points]


def trajectory_message(
    names: Sequence[str], points: Sequence[Sequence[float]], times: Sequence[float],
) -> JointTrajectory:
    """
    Return a trajectory that starts when it is received.

    Args:
        names: joints, in the order of the columns.
        points: N points, rad.
        times: N times from the start, s.
    """
    message = JointTrajectory(joint_names=list(names))
    for point, time in zip(points, times, strict=True):
        nanoseconds = round(time * 1e9)
        message.points.append(JointTrajectoryPoint(
            positions=[float(value) for value in point],
            time_from_start=Duration(sec=nanoseconds // 10**9, nanosec=nanoseconds % 10**9)))
    return message


def markers(path: Positions, stamp: Time) -> MarkerArray:
    """
    Return markers of the path of ``tool0`` and its end for rviz.

    Args:
        path: float64 [N, 3], m, in ``base_link``; without rows the markers are deleted.
        stamp: of the markers.
    """
    if not len(path):
        return MarkerArray(markers=[Marker(action=Marker.DELETEALL)])
    points = [Point(x=float(x), y=float(y), z=float(z)) for x, y, z in path]
    line = Marker(ns='target', id=0, type=Marker.LINE_STRIP, points=points,
                  color=ColorRGBA(r=0.1, g=0.6, b=0.9, a=0.8))
    line.scale.x = 0.003
    end = Marker(ns='target', id=1, type=Marker.SPHERE,
                 color=ColorRGBA(r=0.9, g=0.2, b=0.1, a=0.8))
    end.scale.x = end.scale.y = end.scale.z = 0.015
    end.pose.position = points[-1]
    for marker in (line, end):
        marker.header.frame_id, marker.header.stamp = 'base_link', stamp
        marker.pose.orientation.w = 1.0
    return MarkerArray(markers=[line, end])


def stop_marker(state: EmergencyStopState) -> Marker:
    """Return the text above the arm for rviz while the emergency stop is engaged, or none."""
    if not state.engaged:
        return Marker(ns='emergency_stop', action=Marker.DELETE)
    by = f' by {state.sender}' if state.sender else ''
    marker = Marker(ns='emergency_stop', type=Marker.TEXT_VIEW_FACING, text=f'EMERGENCY STOP{by}',
                    color=ColorRGBA(r=0.9, g=0.1, b=0.1, a=1.0))
    # Without a stamp rviz uses the latest frame.
    marker.header.frame_id = 'base_link'
    marker.pose.position.z, marker.pose.orientation.w, marker.scale.z = 0.5, 1.0, 0.03
    return marker
