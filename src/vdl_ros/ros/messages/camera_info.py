"""``sensor_msgs/CameraInfo`` from an intrinsic matrix or a calibration file."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from builtin_interfaces.msg import Time
from numpy.typing import ArrayLike, NDArray
from sensor_msgs.msg import CameraInfo

from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import SettingError
from vdl_ros.ros.messages.images import CAMERA_FRAME

__all__ = ['load_calibration', 'pinhole', 'stamped', 'uncalibrated']

#: Allowed numbers of coefficients by distortion model.
_MODELS = {'plumb_bob': (4, 5), 'rational_polynomial': (8, 12, 14), 'equidistant': (4,)}


def pinhole(matrix: ArrayLike, width: int, height: int) -> CameraInfo:
    """
    Return the message of a camera without distortion.

    Args:
        matrix: intrinsic, float64 [3, 3], pixels.
        width: of the image, pixels.
        height: of the image, pixels.
    """
    k = np.asarray(matrix, np.float64)
    p = np.hstack([k, np.zeros((3, 1))])
    return _info(width, height, 'plumb_bob', np.zeros(5), k, np.eye(3), p)


def uncalibrated(width: int, height: int) -> CameraInfo:
    """Return the message of an uncalibrated camera: K is zero, as the message defines."""
    return CameraInfo(width=width, height=height)


def stamped(info: CameraInfo, stamp: Time, frame_id: str = CAMERA_FRAME) -> CameraInfo:
    """Return a copy with the header of an image taken at ``stamp``."""
    message = copy.copy(info)
    message.header = type(info.header)(stamp=stamp, frame_id=frame_id)
    return message


def load_calibration(path: str) -> CameraInfo:
    """
    Return the message of a calibration file, YAML as ``camera_calibration`` writes it.

    Raises:
        SettingError: no such file, invalid YAML, or an invalid entry; the message names it.
    """
    try:
        entries = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise SettingError(f'calibration: {path}: {" ".join(str(error).split())}') from error
    if not isinstance(entries, dict):
        raise SettingError(f'calibration: {path}: not a mapping')
    try:
        return _calibration(entries)
    except SettingError as error:
        raise SettingError(f'calibration: {path}: {error}') from None


def _calibration(entries: Mapping[str, Any]) -> CameraInfo:
    width, height = (_size(entries, name) for name in ('image_width', 'image_height'))
    model = entries.get('distortion_model')
    if model not in _MODELS:
        raise SettingError(f'distortion_model: {model!r} is not allowed: {", ".join(_MODELS)}')
    d = _numbers(entries, 'distortion_coefficients', _MODELS[model])
    k = _numbers(entries, 'camera_matrix', (9,)).reshape(3, 3)
    r = _numbers(entries, 'rectification_matrix', (9,)).reshape(3, 3)
    p = _numbers(entries, 'projection_matrix', (12,)).reshape(3, 4)
    for name, matrix in (('camera_matrix', k), ('projection_matrix', p)):
        if matrix[0, 0] <= 0.0 or matrix[1, 1] <= 0.0:
            raise SettingError(f'{name}: focal lengths {matrix[0, 0]:g}, {matrix[1, 1]:g} are '
                               'not allowed: more than 0')
        if matrix[1, 0] or list(matrix[2, :3]) != [0.0, 0.0, 1.0]:
            raise SettingError(f'{name}: not of the form fx s cx, 0 fy cy, 0 0 1')
    if np.abs(r @ r.T - np.eye(3)).max() > 1e-3 or np.linalg.det(r) < 0.0:
        raise SettingError('rectification_matrix: not a rotation')
    return _info(width, height, model, d, k, r, p)


def _size(entries: Mapping[str, Any], name: str) -> int:
    value = entries.get(name)
    if type(value) is not int or not 0 < value < 2**16:
        raise SettingError(f'{name}: {value!r} is not allowed: a whole number from 1 to 65535')
    return value


def _numbers(
    entries: Mapping[str, Any], name: str, counts: tuple[int, ...],
) -> NDArray[np.float64]:
    """Return the finite numbers in ``data`` of an entry, as many as one of ``counts``."""
    entry = entries.get(name)
    data = entry.get('data') if isinstance(entry, dict) else None
    wanted = f'data: a list of {" or ".join(map(str, counts))} finite numbers'
    if not isinstance(data, list) or len(data) not in counts:
        raise SettingError(f'{name}: {quoted(entry, 60)} is not allowed: {wanted}')
    good = [isinstance(value, (int, float)) and not isinstance(value, bool) for value in data]
    if not all(good) or not np.isfinite(np.array(data, np.float64)).all():
        raise SettingError(f'{name}: {quoted(data, 60)} is not allowed: {wanted}')
    return np.array(data, np.float64)


def _info(
    width: int, height: int, model: str, d: NDArray[np.float64], k: NDArray[np.float64],
    r: NDArray[np.float64], p: NDArray[np.float64],
) -> CameraInfo:
    return CameraInfo(width=width, height=height, distortion_model=model, d=d.tolist(),
                      k=k.ravel(), r=r.ravel(), p=p.ravel())
