"""Frames to train and evaluate pose networks, of data sets and of bags.

A bag of labelled frames, messages with equal stamps, is converted to a data set once.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vdl_ros.arm.joints import JOINTS
from vdl_ros.bags.messages import MessageError, decode, stamp_of, values_by_name
from vdl_ros.bags.reader import BagReader
from vdl_ros.common.files import new_folder
from vdl_ros.pose.frames import INFO, Frames, FrameWriter, is_data_set, read_info

#: Height and width of the pictures, pixels.
SIZE = 128
_ROLL = 'camera_roll'
# Frames of a bag of which some messages have not come yet.
_MAX_PENDING = 500


class PoseDataset:
    """Frames of one or more data sets, with random access.

    Args:
        paths: data sets, bags of labelled frames, folders of either, or ``.mcap`` files; a bag
            is converted unless it was, into the folder ``frames`` beside its files.

    Attributes:
        targets: in the order of ``networks.OUTPUTS``, float32 [frames, 6].
        joints: all five joints, float64 [frames, 5], rad.
        focal: focal length in heights of the image, float64 [frames].
        roll: of the camera, float64 [frames], rad.
        left_out: number of frames or messages of bags that cannot be used, by reason.

    Raises:
        ValueError: no frame that can be used, or a damaged data set or bag.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        folders = [folder for path in paths for folder in _data_sets(path)]
        sets = []
        self.left_out: Counter[str] = Counter()
        for folder in folders:
            found = Frames(folder)
            height, width = found.images.shape[1:3]
            if (height, width) != (SIZE, SIZE):
                raise ValueError(f'{folder}: images of {width}x{height} instead of '
                                 f'{SIZE}x{SIZE} pixels')
            if not len(found):
                raise ValueError(f'{folder}: no frame is there')
            self.left_out.update(found.left_out)
            sets.append(found)
        self._images = [each.images for each in sets]
        self._ends = np.cumsum([len(each) for each in sets])
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

    def report(self) -> str:
        text = f'{len(self):,} frames of {len(self._images)} data set(s)'
        if self.left_out:
            text += '; left out: ' + ', '.join(
                f'{count} x {reason}' for reason, count in sorted(self.left_out.items()))
        return text


def _data_sets(path: Path) -> list[Path]:
    """Return the folders of the data sets at a path; bags are converted."""
    if path.is_file():
        return [_converted(path)]
    for folders in ([path], sorted(path.glob('[!.]*'))):
        if found := [each if is_data_set(each) else _converted(each) for each in folders
                     if is_data_set(each) or any(each.glob('*.mcap'))]:
            return found
    raise ValueError(f'{path}: no data set and no bag is there: a folder with {INFO} or with '
                     '.mcap files, or such a file')


def _converted(bag: Path) -> Path:
    """Return the data set of a bag, which is made unless it is there."""
    files = [bag] if bag.is_file() else sorted(bag.glob('*.mcap'))
    folder = bag.with_suffix('.frames') if bag.is_file() else bag / 'frames'
    origin = {'bag': {each.name: each.stat().st_size for each in files}}
    if is_data_set(folder):
        if read_info(folder).origin.get('bag', origin['bag']) == origin['bag']:
            return folder
        shutil.rmtree(folder)
    with new_folder(folder) as new:
        new.rmdir()  # the writer makes it
        writer = FrameWriter(new, (SIZE, SIZE), (_ROLL,), origin)
        left_out = _convert(bag, writer)
        writer.close()
        info = read_info(new)
        info.left_out = dict(left_out)
        info.write(new)
    return folder


def _convert(bag: Path, writer: FrameWriter) -> Counter[str]:
    """Write the frames of a bag, messages of equal stamps; return what was left out."""
    readers: dict[str, tuple[str, Callable[[Any], Any]]] = {
        'camera/image_raw': ('sensor_msgs/msg/Image', _pixels),
        'camera/camera_info': ('sensor_msgs/msg/CameraInfo', _focal),
        'arm/joint_states': ('sensor_msgs/msg/JointState', _joints),
        'capture/scene': ('vdl_ros/msg/CaptureScene', _scene)}
    left_out: Counter[str] = Counter()
    names: dict[str, str] = {}
    pending: dict[int, dict[str, Any]] = {}

    def drop(parts: Mapping[str, Any]) -> None:
        if 'camera/image_raw' in parts:
            missing = next(name for name in readers if name not in parts)
            left_out[f'picture without {missing}'] += 1

    reader = BagReader(bag)
    for message in reader:
        topic = next((each for each in readers if f'/{message.topic}'.endswith(f'/{each}')), '')
        if not topic:
            continue
        kind, read = readers[topic]
        if message.type != kind:
            raise ValueError(f'{bag}: {topic} is {message.type}, not {kind}')
        if names.setdefault(topic, message.topic) != message.topic:
            raise ValueError(f'{bag}: {topic} occurs twice: {names[topic]}, {message.topic}')
        try:
            found = decode(message.data, kind)
            stamp = stamp_of(found)
            parts = pending.setdefault(stamp, {})
            parts[topic] = read(found)
        except MessageError as error:
            left_out[f'{topic}: {error}'] += 1
            continue
        if len(parts) == len(readers):
            image, focal, joints, (camera, roll) = (parts[each] for each in readers)
            writer.write(image, joints, camera, focal, roll)
            del pending[stamp]
        elif len(pending) > _MAX_PENDING:
            drop(pending.pop(next(iter(pending))))
    for parts in pending.values():
        drop(parts)
    left_out.update(reader.faults)
    if not writer.frames:
        for missing in readers:
            if missing not in names:
                raise ValueError(f'{bag}: no topic {missing}; a bag with labels has '
                                 f'{", ".join(readers)}')
        why = '; '.join(f'{reason} ({count} times)' for reason, count in left_out.most_common(1))
        raise ValueError(f'{bag}: no frame can be used: {why}')
    return left_out


def _pixels(message: Any) -> NDArray[np.uint8]:
    if message.encoding != 'rgb8':
        raise MessageError(f'encoding {message.encoding[:40]!r} instead of rgb8')
    if (message.height, message.width) != (SIZE, SIZE):
        raise MessageError(f'{message.width}x{message.height} instead of {SIZE}x{SIZE} pixels')
    if message.step != 3 * SIZE or len(message.data) != 3 * SIZE * SIZE:
        raise MessageError('more or fewer bytes than pixels')
    return np.asarray(message.data, np.uint8)


def _focal(message: Any) -> float:
    if not 0.0 < message.k[4] < np.inf:
        raise MessageError('no focal length')
    return float(message.k[4]) / SIZE


def _joints(message: Any) -> list[float]:
    found = values_by_name(message.name, message.position)
    for name in JOINTS:
        if not np.isfinite(found.get(name, np.nan)):
            raise MessageError(f'no position of {name}')
    return [found[name] for name in JOINTS]


def _scene(message: Any) -> tuple[tuple[float, ...], dict[str, float]]:
    camera = message.camera_distance, message.camera_elevation, message.camera_azimuth
    if not np.isfinite(camera).all():
        raise MessageError('no camera')
    return camera, values_by_name(message.name, message.value)
