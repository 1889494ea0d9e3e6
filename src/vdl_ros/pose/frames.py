"""Data sets of labelled frames: memory-mapped NumPy arrays in a folder.

``images.npy``, ``joints.npy``, ``camera.npy``, ``focal.npy`` and ``look.npy`` have a row for each
frame; ``frames.json`` has the version, the image size, the names of the columns of
``look``, and what the frames are from.
"""

import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.joints import JOINTS
from vdl_ros.common.files import lock_folder, write_text
from vdl_ros.common.schema import read_json

#: What a capture randomises besides the poses of arm and camera.
DOMAINS = ('basic', 'brightness', 'color', 'light', 'camera', 'texture', 'random')
#: Numbers of the splits, as parts of the seed.
SPLITS = {'train': 1, 'test': 2, 'validation': 3}
INFO = 'frames.json'
_MAGIC, _HEADER = b'\x93NUMPY\x01\x00', 128
_COMMIT_S = 1.0


def is_data_set(path: Path) -> bool:
    return (path / INFO).is_file()


def _layout(height: int, width: int, looks: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return type and shape of a row of each array."""
    return {'images': ('|u1', (height, width, 3)), 'joints': ('<f8', (len(JOINTS),)),
            'camera': ('<f8', (3,)), 'focal': ('<f8', ()), 'look': ('<f8', (looks,))}


class FramesInfo(msgspec.Struct):
    """The content of ``frames.json``; ``look`` names the columns of the array."""

    version: Annotated[int, msgspec.Meta(ge=1, le=1)]
    height: Annotated[int, msgspec.Meta(ge=1, le=4096)]
    width: Annotated[int, msgspec.Meta(ge=1, le=4096)]
    look: list[str]
    origin: dict[str, Any]


def read_info(folder: Path) -> FramesInfo:
    return read_json(folder / INFO, FramesInfo)


def _array(path: Path, kind: str, row: tuple[int, ...]) -> NDArray[Any]:
    try:
        # NumPy maps no empty array.
        found: NDArray[Any] = np.asanyarray(
            np.load(path, 'r' if path.stat().st_size > _HEADER else None))
    except OSError as error:
        raise ValueError(f'{path}: {error.strerror}') from None
    except Exception:  # whatever a damaged header raises
        raise ValueError(f'{path}: damaged, or not an array of NumPy') from None
    if (found.dtype != kind or found.ndim != 1 + len(row) or found.shape[1:] != row
            or not found.flags.c_contiguous):
        raise ValueError(f'{path}: {found.dtype} {found.shape} is not allowed: {np.dtype(kind)} '
                         f'(n, {", ".join(map(str, row))})')
    return found


class Frames:
    """The arrays of one data set, memory-mapped.

    Attributes:
        images: RGB, uint8 [frames, height, width, 3].
        joints: float64 [frames, 5], rad.
        camera: distance (m), elevation, azimuth (rad), float64 [frames, 3].
        focal: focal length in heights of the image, float64 [frames].
        look: what was randomised, float64 [frames, names], NaN where it was not.
        names: of the columns of ``look``.
        origin: the settings of the capture.

    Raises:
        ValueError: a file is missing, damaged, or of another version.
    """

    images: NDArray[np.uint8]
    joints: NDArray[np.float64]
    camera: NDArray[np.float64]
    focal: NDArray[np.float64]
    look: NDArray[np.float64]

    def __init__(self, folder: Path) -> None:
        info = read_info(folder)
        self.names, self.origin = info.look, info.origin
        arrays = {name: _array(folder / f'{name}.npy', *each) for name, each in _layout(
            info.height, info.width, len(self.names)).items()}
        self._count = min(map(len, arrays.values()))
        for name, rows in arrays.items():
            setattr(self, name, rows[:self._count])
        if not all(np.isfinite(each).all() for each in (self.joints, self.camera, self.focal)):
            raise ValueError(f'{folder}: labels are not finite')

    def __len__(self) -> int:
        return self._count


class FrameWriter:
    """Appends frames to a data set, which may have been begun before.

    The header of each array counts its rows; what was written after it was is overwritten.

    Args:
        size: height and width of the images.
        look: names of what is randomised.
        origin: values that must be equal to continue.

    Attributes:
        frames: in the data set, those from before included.

    Raises:
        ValueError: the folder holds something else, was begun with other values, or is in use.
    """

    def __init__(self, folder: Path, size: tuple[int, int], look: Sequence[str],
                 origin: Mapping[str, Any]) -> None:
        self.frames, self._look = 0, tuple(look)
        self._layout = _layout(*size, len(look))
        info = FramesInfo(1, *size, list(look), dict(origin))
        if is_data_set(folder):
            self._lock = lock_folder(folder)
            _compare(folder, read_info(folder), info)
            found = [_array(folder / f'{name}.npy', *each) for name, each in self._layout.items()]
            if any(getattr(each, 'offset', _HEADER) != _HEADER for each in found):
                raise ValueError(f'{folder} was not captured; name another folder')
            self.frames = min(map(len, found))
        elif folder.exists():
            raise ValueError(f'{folder} exists and is no data set of frames; name another folder')
        else:
            # The folder is whole when it gets its name.
            new = folder.with_name(f'.{folder.name}.new')
            self._lock = lock_folder(new)
            for name, (kind, row) in self._layout.items():
                (new / f'{name}.npy').write_bytes(_header(kind, (0, *row)))
            text = msgspec.json.format(msgspec.json.encode(info)).decode()
            write_text(new / INFO, f'{text}\n')
            new.rename(folder)
        self._files = {name: (folder / f'{name}.npy').open('r+b') for name in self._layout}
        for name, (kind, row) in self._layout.items():
            self._files[name].truncate(_HEADER + self.frames * np.dtype((kind, row)).itemsize)
            self._files[name].seek(0, 2)
        self._committed = time.monotonic()

    def write(self, image: NDArray[np.uint8], joints: Sequence[float] | NDArray[np.float64],
              camera: Sequence[float], focal: float, look: Mapping[str, float]) -> None:
        """Append a frame, see :class:`Frames`; after an OSError all but the last second stay."""
        rows = (image, joints, camera, focal, [look.get(name, np.nan) for name in self._look])
        for (name, (kind, row)), value in zip(self._layout.items(), rows, strict=True):
            self._files[name].write(np.asarray(value, kind).reshape(row).tobytes())
        self.frames += 1
        if time.monotonic() - self._committed > _COMMIT_S:
            self.commit()

    def commit(self) -> None:
        for file in self._files.values():
            file.flush()
        for name, (kind, row) in self._layout.items():
            self._files[name].seek(0)
            self._files[name].write(_header(kind, (self.frames, *row)))
            self._files[name].seek(0, 2)
        self._committed = time.monotonic()

    def close(self) -> None:
        self.commit()
        for file in self._files.values():
            file.close()
        self._lock.close()


def _compare(folder: Path, begun: FramesInfo, given: FramesInfo) -> None:
    old, new = ({**each.origin, 'height': each.height, 'width': each.width, 'look': each.look}
                for each in (begun, given))
    for name, value in new.items():
        if old.get(name) != value:
            raise ValueError(f'{name}: {value!r} is not allowed: the capture in {folder} was '
                             f'begun with {old.get(name)!r}; name another folder')


def _header(kind: str, shape: tuple[int, ...]) -> bytes:
    """Return the header of an array, of a length that does not depend on the shape."""
    text = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}"
    length = _HEADER - len(_MAGIC) - 2
    return _MAGIC + struct.pack('<H', length) + text.ljust(length - 1).encode() + b'\n'
