"""The arm as the pose network sees it, drawn on the camera's picture."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageDraw

from vdl_ros.arm.geometry import ArmGeometry, Positions
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.camera.camera_config import CameraConfig

#: Vertical field of view that the networks assume, rad.
FIELD_OF_VIEW = CameraConfig.field_of_view
_LINE, _CERTAIN, _UNSURE = 4, (0, 160, 255), (150, 150, 150)


def to_pixels(
    points: NDArray[np.float64], target: NDArray[np.float64], placement: ArrayLike, width: int,
    height: int,
) -> NDArray[np.float64]:
    """Return where a camera sees points, float64 [N, 2], pixels from the left and from the top.

    Args:
        points: float64 [N, 3], m.
        target: at which the camera looks, float64 [3], m.
        placement: distance (m), elevation and azimuth (rad) of the camera about the target.
    """
    distance, elevation, azimuth = np.asarray(placement, np.float64)
    back = np.array([math.cos(elevation) * math.cos(azimuth),
                     math.cos(elevation) * math.sin(azimuth), math.sin(elevation)])
    right = np.array([-math.sin(azimuth), math.cos(azimuth), 0.0])
    seen = (points - target - distance * back) @ np.stack([right, np.cross(right, back), -back]).T
    focal = height / 2.0 / math.tan(FIELD_OF_VIEW / 2.0)
    # What is behind the camera would come from in front of it.
    depth = np.maximum(seen[:, 2:], 1e-3)
    middle = np.array([width - 1, height - 1]) / 2.0
    pixels: NDArray[np.float64] = focal * seen[:, :2] / depth + middle
    return pixels


def draw_arm(
    pixels: NDArray[np.uint8], geometry: ArmGeometry, positions: Positions, placement: ArrayLike,
    confident: bool,
) -> NDArray[np.uint8]:
    """Return the picture, RGB, uint8 [H, W, 3], with a line along the arm.

    Args:
        positions: of the joints, float64 [5], rad; NaN: not estimated, where the line ends.
        placement: as of :func:`to_pixels`, about ``camera_target``.
        confident: the estimate; another one is grey.
    """
    frames = [geometry.joints[joint].child for joint in JOINTS[:-1]] + ['tool0']
    known = int(np.isfinite(positions[:-1]).cumprod().sum())
    frames = frames[:known + 1]
    poses = Kinematics(geometry).poses(np.nan_to_num(positions), [*frames, 'camera_target'])
    height, width = pixels.shape[:2]
    found = to_pixels(np.array([poses[frame][:3, 3] for frame in frames]),
                      poses['camera_target'][:3, 3], placement, width, height)
    if not np.isfinite(found).all():
        return pixels
    corners = [(float(x), float(y)) for x, y in found.clip(-1e4, 1e4)]
    image = Image.fromarray(pixels)
    pen, colour = ImageDraw.Draw(image), _CERTAIN if confident else _UNSURE
    pen.line(corners, fill=colour, width=max(1, _LINE * height // 480))
    radius = _LINE * height // 320
    for x, y in corners:
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), outline=colour)
    return np.asarray(image)
