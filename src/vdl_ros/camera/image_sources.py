"""
Where a camera's pictures come from: a V4L2 device, a video file, a folder of images.

All three are read by PyAV behind one small protocol, :class:`ImageSource`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import av
import numpy as np
from av.container import InputContainer
from numpy.typing import NDArray

from vdl_ros.camera.image_decoding import (
    Scaler,
    Size,
    SourceError,
    Stream,
    open_file,
    reason,
)

__all__ = [
    'DeviceSource', 'FolderSource', 'ImageSource', 'Picture', 'SourceError', 'VideoSource',
    'is_device', 'open_container', 'open_source',
]

SUFFIXES = ('.bmp', '.gif', '.jpeg', '.jpg', '.pgm', '.png', '.ppm', '.tif', '.tiff', '.webp')
# A stamp of the kernel is believed if it says that the picture is no older than this, s.
_OLDEST_S = 1.0


class Picture(NamedTuple):
    """
    One picture.

    ``pixels`` is RGB, uint8 [height, width, 3]; ``moment`` when it was taken, s, monotonic.
    """

    pixels: NDArray[np.uint8]
    moment: float


class ImageSource(Protocol):
    """Gives pictures one after the other: when they come if it is live, else at any time."""

    @property
    def live(self) -> bool:
        """Return whether a picture that is not read in time is lost."""

    @property
    def damaged(self) -> int:
        """Return how many pictures could not be read."""

    def read(self) -> Picture | None:
        """
        Return the next picture; wait for it if the source is live. None: the end was reached.

        Raises:
            OSError, av.FFmpegError: the source is gone.
        """

    def rewind(self) -> None:
        """
        Begin again.

        Raises:
            OSError, SourceError, av.FFmpegError: the source is gone, or no longer one.
        """

    def close(self) -> None:
        """Let go of the device or file."""


def is_device(source: str) -> bool:
    """Return whether a source is a device, which may appear later, rather than a file."""
    return source.startswith('/dev/')


def open_source(
    source: str, size: Size | None = None, rate: float = 30.0,
    notice: Callable[[str], None] = lambda text: None,
) -> ImageSource:
    """
    Open a device, video file or folder.

    Args:
        source: its path.
        size: of the pictures, which are scaled to it; None: as they are.
        rate: that a device is asked for, Hz; it gives what it can.
        notice: told in one line of each file that is left out.

    Raises:
        SourceError: no such file or folder, or no picture in it.
        OSError, av.FFmpegError: no such device, or it cannot be read now.
    """
    if is_device(source):
        return DeviceSource(source, size, rate)
    path = Path(source)
    if path.is_dir():
        return FolderSource(path, size, notice)
    if path.is_file():
        return VideoSource(path, size, notice)
    raise SourceError(f'source: {source!r} is not allowed: no such file or folder; sim, '
                      '/dev/videoN, a video file or a folder of images')


def open_container(device: str, options: dict[str, str]) -> InputContainer:
    """Open a V4L2 device; tests put something else here that behaves like one."""
    return av.open(device, format='v4l2', options=options)


class DeviceSource:
    """A V4L2 device; its pictures have the moment at which the kernel got them."""

    live = True

    def __init__(self, device: str, size: Size | None = None, rate: float = 30.0) -> None:
        """
        Open the device and ask it for a size and rate; it may give others.

        Raises:
            OSError, av.FFmpegError: it is missing, busy, not allowed or no camera.
        """
        options = {'framerate': f'{rate:g}'}
        if size is not None:
            options['video_size'] = f'{size[0]}x{size[1]}'
        self._device, self._options, self._size = device, options, size
        self._stream = self._open()

    def _open(self) -> Stream:
        try:
            return Stream(open_container(self._device, self._options), self._size)
        except PermissionError as error:
            raise PermissionError(
                error.errno, 'no permission: the user must be in the group video',
                self._device) from error

    @property
    def damaged(self) -> int:
        """Return how many pictures could not be read."""
        return self._stream.damaged

    def read(self) -> Picture:
        """Return the next picture; see :class:`ImageSource`."""
        found = self._stream.read()
        if found is None:
            raise OSError(f'{self._device}: no more pictures')
        now = time.monotonic()
        pixels, stamp = found
        known = stamp is not None and 0.0 <= now - stamp < _OLDEST_S
        return Picture(pixels, stamp if known and stamp is not None else now)

    def rewind(self) -> None:
        """Open the device anew."""
        self._stream.close()
        self._stream = self._open()

    def close(self) -> None:
        """Let go of the device."""
        self._stream.close()


class VideoSource:
    """A video file, or a single image."""

    live = False

    def __init__(
        self, path: Path, size: Size | None = None,
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        """
        Open the file and read its first picture.

        Raises:
            SourceError: no video, or not one picture of it can be read.
        """
        self._path, self._size, self._notice = path, size, notice
        self._said = False
        self.damaged = 0
        self._begin()

    def _begin(self) -> None:
        self._file, container = open_file(self._path)
        self._stream = Stream(container, self._size)
        self._first = self._next()
        if self._first is None:
            self.close()
            raise SourceError(f'{self._path}: no picture of this video can be read')

    def _next(self) -> NDArray[np.uint8] | None:
        before = self._stream.damaged
        try:
            found = self._stream.read()
        except av.FFmpegError:
            self._stream.damaged += 1  # the file is cut off here
            found = None
        self.damaged += self._stream.damaged - before
        return found[0] if found is not None else None

    def read(self) -> Picture | None:
        """Return the next picture; see :class:`ImageSource`."""
        pixels, self._first = self._first, None
        if pixels is None:
            pixels = self._next()
        if pixels is not None:
            return Picture(pixels, time.monotonic())
        if not self._said and (self._stream.damaged or self._stream.cut_off):
            self._said = True
            self._notice(f'{self._path}: {self._stream.damaged} damaged pictures left out'
                         + (f', cut off {self._stream.cut_off}' if self._stream.cut_off else ''))
        return None

    def rewind(self) -> None:
        """Open the file anew."""
        self.close()
        self._begin()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
        self._file.close()


class FolderSource:
    """The images of a folder in the order of their names; other files do not count."""

    live = False

    def __init__(
        self, path: Path, size: Size | None = None,
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        """
        List the folder and read its first image.

        Raises:
            SourceError: no image is in it, or none of them can be read.
        """
        self._path, self._notice = path, notice
        self._scaler = Scaler(size)
        self._said: set[Path] = set()
        self.damaged = 0
        self._begin()

    def _begin(self) -> None:
        self._files = deque(sorted(
            each for each in self._path.iterdir()
            if each.suffix.lower() in SUFFIXES and not each.name.startswith('.')))
        if not self._files:
            raise SourceError(f'{self._path}: no image in this folder: a name that ends with '
                              f'{", ".join(SUFFIXES)}')
        count = len(self._files)
        self._first = self._next()
        if self._first is None:
            raise SourceError(f'{self._path}: none of {count} images in this folder can be read')

    def _next(self) -> NDArray[np.uint8] | None:
        while self._files:
            path = self._files.popleft()
            try:
                file, container = open_file(path)
                try:
                    return self._scaler.pixels(next(container.decode(video=0)))
                finally:
                    container.close()
                    file.close()
            except (av.FFmpegError, OSError, ValueError, StopIteration) as error:
                self.damaged += 1
                if path not in self._said:  # once, however often it comes round
                    self._said.add(path)
                    said = isinstance(error, SourceError)
                    self._notice(f'left out: {error if said else f"{path}: {reason(error)}"}')
        return None

    def read(self) -> Picture | None:
        """Return the next picture; see :class:`ImageSource`."""
        pixels, self._first = self._first, None
        if pixels is None:
            pixels = self._next()
        return Picture(pixels, time.monotonic()) if pixels is not None else None

    def rewind(self) -> None:
        """List the folder anew: what was put there meanwhile counts."""
        self._begin()

    def close(self) -> None:
        """Do nothing: no file is open between two images."""
