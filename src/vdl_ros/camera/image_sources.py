"""
Image sources of a camera: a V4L2 device, a video file, a folder of images.

All three are read by PyAV behind one protocol, :class:`ImageSource`.
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
    'DeviceSource', 'FolderSource', 'ImageSource', 'TimedImage', 'SourceError', 'VideoSource',
    'is_device', 'open_container', 'open_source',
]

SUFFIXES = ('.bmp', '.gif', '.jpeg', '.jpg', '.pgm', '.png', '.ppm', '.tif', '.tiff', '.webp')
# A stamp of the kernel is used if the image is no older than this, s.
_OLDEST_S = 1.0


class TimedImage(NamedTuple):
    """
    An image and its time.

    ``pixels`` is RGB, uint8 [height, width, 3]; ``moment`` is the time of exposure, s, monotonic.
    """

    pixels: NDArray[np.uint8]
    moment: float


class ImageSource(Protocol):
    """A sequence of images, live from a device or stored."""

    @property
    def live(self) -> bool:
        """Return whether images are lost unless they are read in time."""

    @property
    def damaged(self) -> int:
        """Return how many images could not be decoded."""

    def read(self) -> TimedImage | None:
        """
        Return the next image, waiting for a live one; None at the end.

        Raises:
            OSError, av.FFmpegError: the source is lost.
        """

    def rewind(self) -> None:
        """
        Start again.

        Raises:
            OSError, SourceError, av.FFmpegError: the source is lost, or invalid now.
        """

    def close(self) -> None:
        """Close the device or file."""


def is_device(source: str) -> bool:
    """Return whether a source is a device, which may appear later, and not a file."""
    return source.startswith('/dev/')


def open_source(
    source: str, size: Size | None = None, rate: float = 30.0,
    notice: Callable[[str], None] = lambda text: None,
) -> ImageSource:
    """
    Open a device, video file or folder.

    Args:
        source: its path.
        size: size to scale images to; None: unchanged.
        rate: requested of a device, Hz; it may deliver another.
        notice: called with one line for each file that is left out.

    Raises:
        SourceError: no such file or folder, or no image in it.
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
    """Open a V4L2 device; tests replace this function."""
    return av.open(device, format='v4l2', options=options)


class DeviceSource:
    """A V4L2 device; the time of an image is the kernel's."""

    live = True

    def __init__(self, device: str, size: Size | None = None, rate: float = 30.0) -> None:
        """
        Open the device and request a size and rate; it may choose others.

        Raises:
            OSError, av.FFmpegError: it is missing, busy, not permitted or no camera.
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
        """Return how many images could not be read."""
        return self._stream.damaged

    def read(self) -> TimedImage:
        """Return the next image; see :class:`ImageSource`."""
        found = self._stream.read()
        if found is None:
            raise OSError(f'{self._device}: no more images')
        now = time.monotonic()
        pixels, stamp = found
        known = stamp is not None and 0.0 <= now - stamp < _OLDEST_S
        return TimedImage(pixels, stamp if known and stamp is not None else now)

    def rewind(self) -> None:
        """Reopen the device."""
        self._stream.close()
        self._stream = self._open()

    def close(self) -> None:
        """Close the device."""
        self._stream.close()


class VideoSource:
    """A video file, or a single image."""

    live = False

    def __init__(
        self, path: Path, size: Size | None = None,
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        """
        Open the file and read its first image.

        Raises:
            SourceError: no video, or none of its images can be decoded.
        """
        self._path, self._size, self._notice = path, size, notice
        self._reported = False
        self.damaged = 0
        self._begin()

    def _begin(self) -> None:
        self._file, container = open_file(self._path)
        self._stream = Stream(container, self._size)
        self._first = self._next()
        if self._first is None:
            self.close()
            raise SourceError(f'{self._path}: no image of this video can be decoded')

    def _next(self) -> NDArray[np.uint8] | None:
        before = self._stream.damaged
        try:
            found = self._stream.read()
        except av.FFmpegError:
            self._stream.damaged += 1  # the file is cut off here
            found = None
        self.damaged += self._stream.damaged - before
        return found[0] if found is not None else None

    def read(self) -> TimedImage | None:
        """Return the next image; see :class:`ImageSource`."""
        pixels, self._first = self._first, None
        if pixels is None:
            pixels = self._next()
        if pixels is not None:
            return TimedImage(pixels, time.monotonic())
        if not self._reported and (self._stream.damaged or self._stream.cut_off):
            self._reported = True
            self._notice(f'{self._path}: {self._stream.damaged} damaged images left out'
                         + (f', cut off {self._stream.cut_off}' if self._stream.cut_off else ''))
        return None

    def rewind(self) -> None:
        """Reopen the file."""
        self.close()
        self._begin()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
        self._file.close()


class FolderSource:
    """The images of a folder in the order of their names; other files are ignored."""

    live = False

    def __init__(
        self, path: Path, size: Size | None = None,
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        """
        List the folder and read its first image.

        Raises:
            SourceError: it has no image, or none that can be decoded.
        """
        self._path, self._notice = path, notice
        self._scaler = Scaler(size)
        self._reported: set[Path] = set()
        self.damaged = 0
        self._begin()

    def _begin(self) -> None:
        self._files = deque(sorted(
            each for each in self._path.iterdir()
            if each.suffix.lower() in SUFFIXES and not each.name.startswith('.')))
        if not self._files:
            raise SourceError(f'{self._path}: no image in this folder; names must end with '
                              f'{", ".join(SUFFIXES)}')
        count = len(self._files)
        self._first = self._next()
        if self._first is None:
            raise SourceError(
                f'{self._path}: none of {count} images in this folder can be decoded')

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
                if path not in self._reported:  # once for all rounds
                    self._reported.add(path)
                    named = isinstance(error, SourceError)
                    self._notice(f'left out: {error if named else f"{path}: {reason(error)}"}')
        return None

    def read(self) -> TimedImage | None:
        """Return the next image; see :class:`ImageSource`."""
        pixels, self._first = self._first, None
        if pixels is None:
            pixels = self._next()
        return TimedImage(pixels, time.monotonic()) if pixels is not None else None

    def rewind(self) -> None:
        """List the folder again, with new files."""
        self._begin()

    def close(self) -> None:
        """Do nothing: no file is open between two images."""
