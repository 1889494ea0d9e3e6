"""Forward kinematics and Jacobian of the arm, vectorized over poses."""

from __future__ import annotations

from collections.abc import Collection

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
        self._steps = {name: _step(joint) for name, joint in geometry.joints.items()}

    def pose(self, positions: ArrayLike, frame: str = 'tool0') -> Array:
        """
        Return the pose of ``frame``, float64 [..., 4, 4].

        Raises:
            KeyError: there is no such frame.
            ValueError: ``positions`` has not five columns.
        """
        q = _checked(positions)
        result: Array = np.broadcast_to(np.eye(4), (*q.shape[:-1], 4, 4))
        for joint in self._chain(frame):
            result = result @ self._local(joint, q)
        return np.array(result)

    def poses(
        self, positions: ArrayLike, frames: Collection[str] | None = None,
    ) -> dict[str, Array]:
        """
        Return the poses of frames by name, each float64 [..., 4, 4]; of all frames by default.

        Raises:
            KeyError: there is no such frame.
            ValueError: ``positions`` has not five columns.
        """
        q = _checked(positions)
        found: dict[str, Array] = {
            self._geometry.root: np.array(np.broadcast_to(np.eye(4), (*q.shape[:-1], 4, 4)))}
        for frame in self._geometry.links if frames is None else frames:
            for joint in self._chain(frame):
                if joint.child not in found:
                    found[joint.child] = found[joint.parent] @ self._local(joint, q)
        return found if frames is None else {frame: found[frame] for frame in frames}

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
            pose = pose @ self._local(joint, q)
            if joint.type != 'fixed':
                # A joint leaves its own axis where it is.
                moving.append((joint, pose[..., :3, 3], pose[..., :3, :3] @ joint.axis))
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

    def _local(self, joint: Joint, q: Array) -> Array:
        """Return the pose of a joint's child in its parent, float64 [..., 4, 4] or [4, 4]."""
        if joint.type == 'fixed':
            return joint.origin
        # Mimicking joints follow another one.
        value = q[..., JOINTS.index(joint.mimic or joint.name), None, None]
        value = value * joint.multiplier + joint.offset
        step = self._steps[joint.name]
        if joint.type == 'prismatic':
            return np.asarray(step[0] + value * step[1])
        return np.asarray(step[0] + np.sin(value) * step[1] + np.cos(value) * step[2])


def _checked(positions: ArrayLike) -> Array:
    """Return positions as float64 [..., 5]."""
    q = np.asarray(positions, np.float64)
    if q.ndim == 0 or q.shape[-1] != len(JOINTS):
        raise ValueError(f'positions: shape {q.shape} has not {len(JOINTS)} columns')
    return q


def _step(joint: Joint) -> Array:
    """
    Return float64 [3, 4, 4] of which a joint's pose is a sum, ``origin`` included.

    Revolute: the first, plus sine and cosine of the angle times the others. Prismatic: the first,
    plus the position times the second.
    """
    parts = np.zeros((3, 4, 4))
    if joint.type == 'prismatic':
        parts[0] = np.eye(4)
        parts[1, :3, 3] = joint.axis
    else:
        x, y, z = joint.axis
        cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
        # Rodrigues' formula: 1 + sin K + (1 - cos) K^2.
        parts[0, :3, :3] = np.eye(3) + cross @ cross
        parts[0, 3, 3] = 1.0
        parts[1, :3, :3] = cross
        parts[2, :3, :3] = -cross @ cross
    return np.asarray(joint.origin @ parts)
