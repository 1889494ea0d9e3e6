"""Frames to train and evaluate pose networks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vdl_ros.arm.geometry import ArmGeometry, GeometryConfig, GeometryError
from vdl_ros.pose.frames import INFO, Frames, is_data_set

#: Height and width of the pictures, pixels.
SIZE = 128
_ROLL = 'camera_roll'


class PoseDataset:
    """Frames of one or more data sets, with random access.

    Args:
        paths: data sets, or folders of them.

    Attributes:
        targets: in the order of ``networks.OUTPUTS``, float32 [frames, 6].
        joints: all five joints, float64 [frames, 5], rad.
        focal: focal length in heights of the image, float64 [frames].
        roll: of the camera, float64 [frames], rad.

    Raises:
        ValueError: no frame, or a damaged data set.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        folders = [folder for path in paths for folder in _data_sets(path)]
        sets = []
        for folder in folders:
            found = Frames(folder)
            height, width = found.images.shape[1:3]
            if (height, width) != (SIZE, SIZE):
                raise ValueError(f'{folder}: images of {width}x{height} instead of '
                                 f'{SIZE}x{SIZE} pixels')
            if not len(found):
                raise ValueError(f'{folder}: no frame is there')
            sets.append(found)
        self._images = [each.images for each in sets]
        self._ends = np.cumsum([len(each) for each in sets])
        self._origins = [(folder, each.origin) for folder, each in zip(folders, sets, strict=True)]
        camera = np.concatenate([each.camera for each in sets])
        self.joints = np.concatenate([each.joints for each in sets])
        self.targets = torch.from_numpy(
            np.concatenate([camera, self.joints[:, :3]], 1).astype(np.float32))
        self.focal = np.concatenate([each.focal for each in sets])
        self.roll = np.nan_to_num(np.concatenate([
            each.look[:, each.names.index(_ROLL)] if _ROLL in each.names
            else np.zeros(len(each)) for each in sets]))

    def __len__(self) -> int:
        return len(self.targets)

    def pictures(self, indices: Sequence[int] | Tensor) -> Tensor:
        """Return the pictures of some frames, uint8 [frames, height, width, 3]."""
        chosen = np.asarray(indices)
        out = np.empty((len(chosen), *self._images[0].shape[1:]), np.uint8)
        numbers = np.searchsorted(self._ends, chosen, side='right')
        for number in np.unique(numbers):
            begin = self._ends[number] - len(self._images[number])
            rows = numbers == number
            out[rows] = self._images[number][chosen[rows] - begin]
        return torch.from_numpy(out)

    def arms(self) -> list[tuple[slice, ArmGeometry]]:
        """Return the frames of each data set, and the arm that it shows.

        ValueError: the description of one is not on this host.
        """
        return [(slice(end - len(images), end), _arm(*origin)) for end, images, origin in zip(
            self._ends, self._images, self._origins, strict=True)]

    def report(self) -> str:
        return f'{len(self):,} frames of {len(self._images)} data set(s)'


def _arm(folder: Path, origin: Mapping[str, Any]) -> ArmGeometry:
    try:
        return GeometryConfig(
            str(origin.get('urdf', '')), str(origin.get('xacro_args', ''))).load()
    except (OSError, GeometryError) as error:
        raise ValueError(f'{folder}: its arm: {error}') from None


def _data_sets(path: Path) -> list[Path]:
    """Return the folders of the data sets at a path."""
    found = [each for each in (path, *sorted(path.glob('[!.]*'))) if is_data_set(each)]
    if not found:
        raise ValueError(f'{path}: no data set is there: a folder with {INFO}')
    return found
