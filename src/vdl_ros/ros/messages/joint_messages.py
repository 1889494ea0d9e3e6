"""Conversion of joint states, trajectories and markers from and to messages."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from builtin_interfaces.msg import Duration, Time
from geometry_msgs.msg import Point, Pose, Quaternion, TransformStamped
from numpy.typing import ArrayLike, NDArray
from sensor_msgs.msg import JointState
from std_msgs.msg import ColorRGBA
from tf2_msgs.msg import TFMessage
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint
from visualization_msgs.msg import Marker, MarkerArray

from vdl_ros.arm.geometry import ArmGeometry, Joint, Positions
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.common.quoting import shown
from vdl_ros.msg import ArmPose, EmergencyStopState

Array = NDArray[np.float64]


def seconds(stamp: Time | Duration) -> float:
    return float(stamp.sec + stamp.nanosec * 1e-9)


def time_of(nanoseconds: int) -> Time:
    return Time(sec=nanoseconds // 10**9, nanosec=nanoseconds % 10**9)


def positions_of(message: JointState | ArmPose) -> Positions:
    """Return the joints' positions, float64 [5], rad, NaN for missing ones; raises ValueError.

    Joints that the arm does not have are ignored.
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


def pose_message(pose: Array) -> Pose:
    """Return a message of a pose, float64 [7], m and a quaternion wxyz."""
    x, y, z, qw, qx, qy, qz = pose.tolist()
    return Pose(position=Point(x=x, y=y, z=z), orientation=Quaternion(w=qw, x=qx, y=qy, z=qz))


def pose_of(message: Pose) -> Array:
    """Return the pose in a message, float64 [7], m and a quaternion wxyz; ValueError: none."""
    place, turn = message.position, message.orientation
    pose = np.array([place.x, place.y, place.z, turn.w, turn.x, turn.y, turn.z])
    if not np.isfinite(pose).all() or not 0.5 < np.linalg.norm(pose[3:]) < 2.0:
        raise ValueError(f'pose: {pose.tolist()} is not a place and a unit quaternion')
    return pose


def trajectory_message(
    names: Sequence[str], points: Sequence[Sequence[float]], times: Sequence[float],
) -> JointTrajectory:
    """Return a trajectory, rad [N, names], that starts when it is received; times are in s."""
    message = JointTrajectory(joint_names=list(names))
    for point, time in zip(points, times, strict=True):
        nanoseconds = round(time * 1e9)
        message.points.append(JointTrajectoryPoint(
            positions=[float(value) for value in point],
            time_from_start=Duration(sec=nanoseconds // 10**9, nanosec=nanoseconds % 10**9)))
    return message


def markers(path: Positions, stamp: Time) -> MarkerArray:
    """Return markers of a path of ``tool0``, float64 [N, 3], m, for rviz; none if it is empty."""
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



class FrameError(ValueError):
    """A frame that no transform connects; the message is one line."""


class ArmFrames:
    """The transforms of one arm, each from its parent link; frame names get ``prefix``."""

    def __init__(self, geometry: ArmGeometry, prefix: str = '') -> None:
        self._kinematics = Kinematics(geometry)
        self._prefix, self._root = prefix, geometry.root
        joints = list(geometry.joints.values())
        self._fixed = [joint for joint in joints if joint.type == 'fixed']
        self._moving = [joint for joint in joints if joint.type != 'fixed']

    def fixed(self, stamp: Time) -> list[TransformStamped]:
        """Return the constant transforms; with a prefix also the link to the first arm's base."""
        found = [self._message(joint, joint.origin, stamp) for joint in self._fixed]
        if self._prefix:
            base = self._message(self._fixed[0], np.eye(4), stamp)
            base.header.frame_id, base.child_frame_id = self._root, self._prefix + self._root
            found.append(base)
        return found

    def moving(self, positions: Positions, stamp: Time) -> list[TransformStamped]:
        """Return the transforms of joints, float64 [5], rad, whose position is not NaN."""
        poses = self._kinematics.poses(np.nan_to_num(positions))
        return [self._message(
            joint, np.linalg.solve(poses[joint.parent], poses[joint.child]), stamp)
            for joint in self._moving
            if not np.isnan(positions[JOINTS.index(joint.mimic or joint.name)])]

    def _message(self, joint: Joint, pose: NDArray[Any], stamp: Time) -> TransformStamped:
        message = TransformStamped(child_frame_id=self._prefix + joint.child)
        message.header.frame_id, message.header.stamp = self._prefix + joint.parent, stamp
        move, turn = message.transform.translation, message.transform.rotation
        move.x, move.y, move.z = (float(value) for value in pose[:3, 3])
        turn.x, turn.y, turn.z, turn.w = quaternion(pose[:3, :3])
        return message


def quaternion(rotation: Array) -> tuple[float, float, float, float]:
    """Return x, y, z, w of a rotation matrix, float64 [3, 3], with w at least 0.

    Starts from the largest of the four to avoid division by nearly 0 (Shepperd 1978).
    """
    m = rotation
    squares = np.array([1 + m[0, 0] - m[1, 1] - m[2, 2], 1 - m[0, 0] + m[1, 1] - m[2, 2],
                        1 - m[0, 0] - m[1, 1] + m[2, 2], 1 + m[0, 0] + m[1, 1] + m[2, 2]])
    # Four times the products of every two of x, y, z, w.
    xy, xz, yz = m[1, 0] + m[0, 1], m[0, 2] + m[2, 0], m[2, 1] + m[1, 2]
    xw, yw, zw = m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]
    rows = np.array([[squares[0], xy, xz, xw], [xy, squares[1], yz, yw],
                     [xz, yz, squares[2], zw], [xw, yw, zw, squares[3]]])
    row = rows[int(np.argmax(squares))]
    row = row / np.linalg.norm(row)
    x, y, z, w = (row if row[3] >= 0.0 else -row).tolist()
    return x, y, z, w


class FrameTree:
    """The newest transform of every frame to its parent, from ``/tf`` and ``/tf_static``."""

    def __init__(self) -> None:
        self._transforms: dict[str, TransformStamped] = {}

    def add(self, message: TFMessage) -> None:
        self._transforms |= {each.child_frame_id: each for each in message.transforms}

    def point(self, place: ArrayLike, frame: str, target: str) -> Array:
        """Return a point of ``frame`` in ``target``, float64 [3], m; raises FrameError."""
        own, wanted = self._ancestors(frame), self._ancestors(target)
        common = next((name for name in own if name in wanted), None)
        if common is None:
            raise FrameError(f'no transform from {shown(frame)!r} to {target!r} on /tf')
        inside = own[common] @ np.append(np.asarray(place, np.float64), 1.0)
        try:
            return np.asarray(np.linalg.solve(wanted[common], inside)[:3])
        except np.linalg.LinAlgError:
            raise FrameError(f'no transform from {shown(frame)!r} to {target!r}: a rotation on '
                             '/tf is none') from None

    def _ancestors(self, frame: str) -> dict[str, Array]:
        """Return the pose of ``frame`` in itself and in each frame above it, the nearest first."""
        found, name = {frame: np.eye(4)}, frame
        while name in self._transforms:
            transform = self._transforms[name]
            parent, pose = transform.header.frame_id, _matrix(transform)
            if pose is None or parent in found:  # no rotation, or a loop
                break
            found[parent] = pose @ found[name]
            name = parent
        return found


def _matrix(message: TransformStamped) -> Array | None:
    """Return a transform as float64 [4, 4]; None for one that cannot be."""
    move, turn = message.transform.translation, message.transform.rotation
    q = np.array([turn.x, turn.y, turn.z, turn.w])
    result = np.eye(4)
    result[:3, 3] = move.x, move.y, move.z
    length = float(np.linalg.norm(q))
    if not (np.isfinite(result).all() and 0.0 < length < np.inf):
        return None
    x, y, z, w = q / length
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    result[:3, :3] = np.eye(3) + 2.0 * (w * cross + cross @ cross)
    return result
