"""PyTorch data set of captured frames, read from bags.

Messages with equal stamps in their headers form a frame.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from vdl_ros.arm.joints import JOINTS
from vdl_ros.bags.indexed_file import IndexedFile, MessagePlace, find_files
from vdl_ros.bags.messages import (
    ImageFormat,
    MessageError,
    decode,
    image_format,
    stamp_of,
    values_by_name,
)

__all__ = ['DataError', 'PoseDataset', 'keep_batch']


@dataclass(frozen=True)
class _Scene:
    """Camera distance (m), elevation and azimuth (rad), and what was randomised."""

    camera: tuple[float, float, float]
    parameters: dict[str, float]
    domain: str


def _read_scene(message: Any) -> _Scene:
    return _Scene(
        (message.camera_distance, message.camera_elevation, message.camera_azimuth),
        values_by_name(message.name, message.value), message.domain)


# Type of each topic, and what is kept of a message: no view of its data, which a chunk holds.
_READERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    'camera/image_raw': ('sensor_msgs/msg/Image', image_format),
    'camera/camera_info': ('sensor_msgs/msg/CameraInfo', lambda message: float(message.k[4])),
    'arm/joint_states': ('sensor_msgs/msg/JointState',
                         lambda message: values_by_name(message.name, message.position)),
    'capture/scene': ('vdl_ros/msg/CaptureScene', _read_scene),
}


class DataError(ValueError):
    """Bags without a frame that can be used; the message names the file and the reason."""


@dataclass
class _Rows:
    """Frames so far: where their images are, and their labels."""

    places: list[tuple[int, ...]] = field(default_factory=list)
    targets: list[list[float]] = field(default_factory=list)
    joints: list[list[float]] = field(default_factory=list)
    focal: list[float] = field(default_factory=list)
    parameters: list[dict[str, float]] = field(default_factory=list)
    domains: list[str] = field(default_factory=list)


class PoseDataset(Dataset[tuple[Tensor, Tensor]]):
    """Frames of one or more bags, with random access.

    Item i is a picture, uint8 [height, width, 3], and six values, float32 [6], in the order of
    ``outputs.OUTPUTS``.

    Args:
        bags: folders of bags, folders of such folders, or files.
        height: of the pictures, pixels; others are skipped.

    Attributes:
        targets: of all frames, float32 [frames, 6].
        joints: likewise all five joints, float64 [frames, 5], rad.
        focal: focal length in heights of the picture, float64 [frames].
        parameters: randomised values by name, float64 [frames], NaN where not randomised.
        domains: of each frame.
        skipped: number of frames or messages that were left out, by reason.
        compressed: whether reading a frame unpacks a chunk.

    Raises:
        DataError: a bag has no frame that can be used, and why.
        BagError: a file is no bag, or is empty.
    """

    def __init__(
        self, bags: Sequence[Path], *, height: int = 128, width: int = 128,
    ):
        self.height, self.width = height, width
        self.skipped: Counter[str] = Counter()
        self._files: list[IndexedFile] = []
        rows = _Rows()
        for path in [file for bag in bags for file in find_files(bag)]:
            before, skipped = len(rows.places), self.skipped.copy()
            self._files.append(IndexedFile(path))
            self._join(self._files[-1], rows)
            if len(rows.places) == before:
                why = (self.skipped - skipped).most_common(1)
                raise DataError(f'{path}: no frame can be used'
                                + (f': {why[0][0]} ({why[0][1]} times)' if why else ''))
        if not rows.places:
            raise DataError('no bag is given')
        self.compressed = any(file.compressed for file in self._files)
        self._places = np.array(rows.places, np.int64)
        self.targets = torch.tensor(rows.targets, dtype=torch.float32)
        self.joints = np.array(rows.joints)
        self.focal = np.array(rows.focal)
        self.domains = np.array(rows.domains)
        names = sorted({name for each in rows.parameters for name in each})
        self.parameters: dict[str, NDArray[np.float64]] = {
            name: np.array([each.get(name, np.nan) for each in rows.parameters])
            for name in names}

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self._places)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return one frame."""
        return self.pictures([index])[0], self.targets[index]

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Return a batch at once for a DataLoader: pictures, targets and the indices."""
        chosen = torch.as_tensor(indices)
        return self.pictures(indices), self.targets[chosen], chosen

    def pictures(self, indices: Sequence[int]) -> Tensor:
        """Return the pictures of some frames, uint8 [frames, height, width, 3]."""
        out = np.empty((len(indices), self.height * self.width * 3), np.uint8)
        # In the order of the file: each chunk is unpacked once.
        order = np.lexsort(self._places[np.asarray(indices)].T[::-1])
        for row in order:
            file, *place = self._places[indices[row]].tolist()
            data = self._files[file].read(MessagePlace(*place))
            out[row] = decode(data, _READERS['camera/image_raw'][0]).data
        return torch.from_numpy(out).view(-1, self.height, self.width, 3)

    def report(self) -> str:
        """Return one line: the number of frames, and of what was left out."""
        text = f'{len(self):,} frames of {len(self._files)} file(s)'
        if self.skipped:
            text += '; left out: ' + ', '.join(
                f'{count} x {reason}' for reason, count in sorted(self.skipped.items()))
        return text

    def _join(self, file: IndexedFile, rows: _Rows) -> None:
        """Add the frames of one file."""
        if file.cut_off:
            self.skipped['end of a file that is cut off'] += 1
        if file.damaged:
            self.skipped['chunk with a wrong checksum'] += file.damaged
        topics = _topics(file)
        found: dict[str, dict[int, tuple[Any, MessagePlace]]] = {name: {} for name in _READERS}
        for place in file.messages:
            name = topics.get(place.channel)
            if name is None:
                continue
            type_name, read = _READERS[name]
            try:
                message = decode(file.read(place), type_name)
                found[name][stamp_of(message)] = read(message), place
            except MessageError as error:
                self.skipped[f'{name}: {error}'] += 1
        number = len(self._files) - 1
        for stamp, (image, place) in found['camera/image_raw'].items():
            others = {name: found[name][stamp][0] for name in found if stamp in found[name]}
            reason = self._reason(image, others)
            if reason:
                self.skipped[reason] += 1
                continue
            joints, scene = others['arm/joint_states'], others['capture/scene']
            rows.places.append((number, *place))
            rows.targets.append(
                [*scene.camera, joints['base'], joints['shoulder'], joints['elbow']])
            rows.joints.append([joints[name] for name in JOINTS])
            rows.focal.append(others['camera/camera_info'] / self.height)
            rows.parameters.append(scene.parameters)
            rows.domains.append(scene.domain)

    def _reason(self, image: ImageFormat, others: dict[str, Any]) -> str:
        """Return why a frame cannot be used, or nothing."""
        if image.encoding != 'rgb8':
            return f'picture of encoding {image.encoding!r} instead of rgb8'
        if (image.width, image.height) != (self.width, self.height):
            return (f'picture of {image.width}x{image.height} instead of '
                    f'{self.width}x{self.height} pixels')
        if image.step != 3 * image.width or image.length != image.step * image.height:
            return 'picture with more or fewer bytes than pixels'
        for name in _READERS:
            if name not in others:
                return f'picture without {name}'
        joints = others['arm/joint_states']
        for name in JOINTS:
            if not np.isfinite(joints.get(name, np.nan)):
                return f'arm/joint_states without {name}'
        if not np.isfinite(others['capture/scene'].camera).all():
            return 'capture/scene without a camera'
        if not others['camera/camera_info'] > 0.0:
            return 'camera/camera_info without a focal length'
        return ''


def keep_batch(batch: Any) -> Any:
    """Return a batch unchanged: the ``collate_fn`` of a DataLoader of a ``PoseDataset``."""
    return batch


def _topics(file: IndexedFile) -> dict[int, str]:
    """Return the topic of each channel that is used, without its namespace.

    Raises:
        DataError: a topic is missing, has another type, or occurs in two namespaces.
    """
    channels: dict[int, str] = {}
    for name, (kind, _) in _READERS.items():
        fitting = {number: found for number, found in file.topics.items()
                   if f'/{found[0].lstrip("/")}'.endswith('/' + name)}
        topics = {found[0] for found in fitting.values()}
        if not topics:
            raise DataError(f'{file.path}: no topic {name}' + (
                '' if name == 'camera/image_raw' else ': labels are missing'))
        if len(topics) > 1:
            raise DataError(f'{file.path}: {name} occurs twice: {", ".join(sorted(topics))}')
        for number, (_, type_name) in fitting.items():
            if type_name != kind:
                raise DataError(f'{file.path}: {name} is {type_name}, not {kind}')
            channels[number] = name
    return channels
