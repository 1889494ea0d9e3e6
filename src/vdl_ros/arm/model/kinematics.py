"""Forward kinematics and Jacobian of the arm, vectorized over poses."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vdl_ros.arm.model.geometry import ArmGeometry, Joint
from vdl_ros.arm.model.joints import JOINTS

__all__ = ['Kinematics']

Array = NDArray[np.float64]


class Kinematics:
    """
    Computes poses and Jacobians of the arm's frames.

    Positions are float64 [..., 5], rad, in the order of ``joints.JOINTS``; poses are float64
    [..., 4, 4] in ``base_link``, m: they transform points from the frame to the base.
    """

    def __init__(self, geometry: ArmGeometry):
        """Use this geometry."""
        self._geometry = geometry
        self._by_child = {joint.child: joint for joint in geometry.joints.values()}

    def pose(self, positions: ArrayLike, frame: str = 'tool0') -> Array:
        """
        Return the pose of ``frame``, float64 [..., 4, 4].

        Raises:
            KeyError: there is no such frame.
            ValueError: ``positions`` has not five columns.
        """
        q = _checked(positions)
        result = np.broadcast_to(np.eye(4), (*q.shape[:-1], 4, 4))
        for joint in self._chain(frame):
            result = result @ joint.origin
            if joint.type != 'fixed':
                result = result @ _motion(joint, self._value(joint, q))
        return np.array(result)

    def poses(self, positions: ArrayLike) -> dict[str, Array]:
        """Return the pose of every frame by name, each float64 [..., 4, 4]."""
        q = _checked(positions)
        found: dict[str, Array] = {
            self._geometry.root: np.array(np.broadcast_to(np.eye(4), (*q.shape[:-1], 4, 4)))}
        for joint in self._geometry.joints.values():
            pose = found[joint.parent] @ joint.origin
            if joint.type != 'fixed':
                pose = pose @ _motion(joint, self._value(joint, q))
            found[joint.child] = pose
        return found

    def jacobian(self, positions: ArrayLike, frame: str = 'tool0') -> Array:
        """
        Return the Jacobian of ``frame``, float64 [..., 6, 5].

        Rows are the velocity of the frame's origin (m/s) and its angular velocity (rad/s), in
        ``base_link``, for one rad/s of each joint.

        Raises:
            KeyError: there is no such frame.
            ValueError: ``positions`` has not five columns.
        """
        q = _checked(positions)
        shape = q.shape[:-1]
        moving: list[tuple[Joint, Array, Array]] = []
        pose: Array = np.broadcast_to(np.eye(4), (*shape, 4, 4))
        for joint in self._chain(frame):
            pose = pose @ joint.origin
            if joint.type != 'fixed':
                moving.append((joint, pose[..., :3, 3], pose[..., :3, :3] @ joint.axis))
                pose = pose @ _motion(joint, self._value(joint, q))
        tip = pose[..., :3, 3]
        result = np.zeros((*shape, 6, len(JOINTS)))
        for joint, origin, axis in moving:
            column = JOINTS.index(joint.mimic or joint.name)
            if joint.type == 'revolute':
                result[..., :3, column] += joint.multiplier * np.cross(axis, tip - origin)
                result[..., 3:, column] += joint.multiplier * axis
            else:
                result[..., :3, column] += joint.multiplier * axis
        return result

    def _chain(self, frame: str) -> list[Joint]:
        """Return the joints from the root to ``frame``."""
        chain: list[Joint] = []
        link = frame
        while link != self._geometry.root:
            if link not in self._by_child:
                raise KeyError(
                    f'{frame}: no such frame; there are {", ".join(self._geometry.links)}')
            chain.append(self._by_child[link])
            link = chain[-1].parent
        return chain[::-1]

    def _value(self, joint: Joint, q: Array) -> Array:
        """Return a joint's position, mimicking included, float64 [...]."""
        if not joint.mimic:
            return q[..., JOINTS.index(joint.name)]
        return q[..., JOINTS.index(joint.mimic)] * joint.multiplier + joint.offset


def _checked(positions: ArrayLike) -> Array:
    """Return positions as float64 [..., 5]."""
    q = np.asarray(positions, np.float64)
    if q.ndim == 0 or q.shape[-1] != len(JOINTS):
        raise ValueError(f'positions: shape {q.shape} has not {len(JOINTS)} columns')
    return q


def _motion(joint: Joint, value: Array) -> Array:
    """Return the motion of a joint's child at ``value``, float64 [..., 4, 4]."""
    pose = np.zeros((*value.shape, 4, 4))
    pose[..., 3, 3] = 1.0
    if joint.type == 'prismatic':
        pose[..., :3, :3] = np.eye(3)
        pose[..., :3, 3] = value[..., None] * joint.axis
        return pose
    x, y, z = joint.axis
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    sine = np.sin(value)[..., None, None]
    cosine = np.cos(value)[..., None, None]
    # Rodrigues' formula.
    pose[..., :3, :3] = np.eye(3) + sine * cross + (1.0 - cosine) * (cross @ cross)
    return pose
