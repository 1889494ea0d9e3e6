"""
Keypoints of the arm and their positions in the picture: an auxiliary target in training.

They are computed from the labels and are not used by the estimator.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.model.geometry import ArmGeometry
from vdl_ros.arm.model.kinematics import Kinematics
from vdl_ros.pose.data.dataset import PoseDataset

__all__ = ['MIRRORED', 'POINTS', 'project_points']

Array = NDArray[np.float64]

#: Frame and place in it, m; places need not lie on a part's surface. Left ones before right ones.
POINTS: tuple[tuple[str, tuple[float, float, float]], ...] = (
    ('base_link', (0.06, 0.07, 0.03)), ('base_link', (0.06, -0.07, 0.03)),
    ('base_link', (-0.10, 0.07, 0.03)), ('base_link', (-0.10, -0.07, 0.03)),
    ('upper_arm', (0.0, 0.03, 0.0)), ('upper_arm', (0.0, -0.03, 0.0)),
    ('forearm', (0.0, 0.03, 0.0)), ('forearm', (0.0, -0.03, 0.0)),
    ('hand', (0.0, 0.03, 0.0)), ('hand', (0.0, -0.03, 0.0)),
    ('turntable', (0.04, 0.0, 0.02)), ('tool0', (0.0, 0.0, 0.0)))
#: Index of each point's counterpart in a flipped picture.
MIRRORED = (1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 10, 11)

_DEPTH = 0.25  # m; brings depths to the scale of the other numbers


def project_points(data: PoseDataset, geometry: ArmGeometry) -> NDArray[np.float32]:
    """
    Return the positions of the points in every frame, float32 [frames, points, 3].

    Column and row are in half heights of the picture from its middle, right and down; the third
    is the depth beyond ``camera_target``, in quarters of a metre.
    """
    kinematics = Kinematics(geometry)
    poses = kinematics.poses(data.joints)
    in_base = np.stack([
        (poses[frame] @ [*place, 1.0])[..., :3] for frame, place in POINTS], axis=1)
    target = geometry_target(kinematics)
    distance, elevation, azimuth = data.targets[:, :3].double().numpy().T
    seen = _in_camera(in_base - target, elevation, azimuth)
    seen[..., 2] += distance[:, None]
    scale = 2.0 * data.focal[:, None] / np.maximum(seen[..., 2], 0.05)
    roll = _parameter(data, 'camera_roll')[:, None]
    across, down = seen[..., 0] * scale, seen[..., 1] * scale
    # The picture turns against the roll of the camera.
    return np.stack([
        across * np.cos(roll) + down * np.sin(roll),
        down * np.cos(roll) - across * np.sin(roll),
        (seen[..., 2] - distance[:, None]) / _DEPTH], axis=-1).astype(np.float32)


def geometry_target(kinematics: Kinematics) -> Array:
    """Return the point that cameras look at, float64 [3], m."""
    return kinematics.pose(np.zeros(5), 'camera_target')[:3, 3]


def _in_camera(points: Array, elevation: Array, azimuth: Array) -> Array:
    """
    Return points about the target in the axes of the camera: right, down, away.

    Args:
        points: float64 [frames, points, 3], m.
        elevation: float64 [frames], rad.
        azimuth: float64 [frames], rad.
    """
    zero = np.zeros_like(azimuth)
    away = -np.stack([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth),
                      np.sin(elevation)], -1)
    right = np.stack([-np.sin(azimuth), np.cos(azimuth), zero], -1)
    axes = np.stack([right, np.cross(away, right), away], -1)
    return np.asarray(points @ axes)


def _parameter(data: PoseDataset, name: str) -> Array:
    """Return a randomised value for each frame, 0 where it was not randomised."""
    return np.nan_to_num(data.parameters.get(name, np.zeros(len(data))))
