"""Decoding of image and video files and streams to RGB by FFmpeg (PyAV)."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple, Protocol

import av
import numpy as np
from av.container import InputContainer
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

__all__ = ['DeviceSource', 'FolderSource', 'ImageSource', 'RateLimiter', 'Reader', 'Scaler',
           'Size', 'SourceError', 'Stream', 'TimedImage', 'VideoSource', 'is_device',
           'open_container', 'open_file', 'open_source', 'reason']


#: Width and height, pixels.
Size = tuple[int, int]


class SourceError(ValueError):
    """A file or folder without images; retrying is of no use."""


class Stream:
    """Decodes the images of one container to RGB.

    ``damaged`` counts those that could not be decoded.

    Args:
        size: size to scale images to; None: unchanged.
    """

    def __init__(self, container: InputContainer, size: Size | None) -> None:
        self._container = container
        self._stream = container.streams.video[0]
        self._packets = container.demux(self._stream)
        self._last = 0.0
        self._frames: deque[av.VideoFrame] = deque()
        self._scaler = Scaler(size)
        self.damaged = 0

    def read(self) -> tuple[NDArray[np.uint8], float | None] | None:
        """Return the next image, uint8 [height, width, 3], and its time in the stream, s.

        None at the end.

        Raises:
            OSError, av.FFmpegError: nothing more can be read.
        """
        while not self._frames:
            packet = next(self._packets, None)
            if packet is None:
                return None
            try:
                self._frames.extend(
                    frame for frame in packet.decode() if isinstance(frame, av.VideoFrame))
            except av.InvalidDataError:
                self.damaged += 1  # the next may be intact
        frame = self._frames.popleft()
        self._last = frame.time if frame.time is not None else self._last
        return self._scaler.pixels(frame), frame.time

    @property
    def cut_off(self) -> str:
        """Return where a stream ended too early, such as 'after 1.0 of 3.0 s', or ''."""
        stream = self._stream
        if stream.duration is None or stream.time_base is None or not stream.average_rate:
            return ''  # the format has no duration
        end = float(((stream.start_time or 0) + stream.duration) * stream.time_base)
        # The last image starts a period before the end; one more is allowed for rounding.
        if end - self._last < 2.5 / stream.average_rate:
            return ''
        return f'after {self._last:.1f} of {end:.1f} s'

    def close(self) -> None:
        """Close the device or file."""
        self._container.close()


class Scaler:
    """Converts frames to RGB, scaled; keeps its reformatter, which is expensive to make."""

    def __init__(self, size: Size | None) -> None:
        self._size = size
        self._reformatter = VideoReformatter()

    def pixels(self, frame: av.VideoFrame) -> NDArray[np.uint8]:
        """Return the image, uint8 [height, width, 3]."""
        width, height = self._size or (frame.width, frame.height)
        scaled = self._reformatter.reformat(frame, width, height, 'rgb24')
        return np.asarray(scaled.to_ndarray(), np.uint8)


def open_file(path: Path) -> tuple[IO[bytes], InputContainer]:
    """Open an image or video file; by its content, as FFmpeg may take a name for a pattern or URL.

    Raises:
        OSError: it cannot be opened.
        SourceError: it has neither a video nor an image.
    """
    file = path.open('rb')
    try:
        # Metadata may be in any encoding and is not used.
        container = av.open(_Nameless(file), 'r', metadata_errors='ignore')
        # FFmpeg takes any text for a terminal recording.
        if not container.streams.video or container.format.name == 'tty':
            container.close()
            raise SourceError(f'{path}: no video and no image')
    except av.FFmpegError as error:
        file.close()
        raise SourceError(f'{path}: no video and no image: {reason(error)}') from error
    except SourceError:
        file.close()
        raise
    return file, container


class _Nameless:
    """A file without a name, which FFmpeg would interpret."""

    def __init__(self, file: IO[bytes]) -> None:
        self.read, self.seek, self.tell = file.read, file.seek, file.tell


def reason(error: BaseException) -> str:
    """Return an error's reason in one line, without the number and name that FFmpeg adds."""
    text = getattr(error, 'strerror', None) or str(error) or 'no image in it'
    return ' '.join(str(text).split())


SUFFIXES = ('.bmp', '.gif', '.jpeg', '.jpg', '.pgm', '.png', '.ppm', '.tif', '.tiff', '.webp')
# A stamp of the kernel is used if the image is no older than this, s.
_OLDEST_S = 1.0


class TimedImage(NamedTuple):
    """An image and its time.

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
        """Return the next image, waiting for a live one; None at the end.

        Raises:
            OSError, av.FFmpegError: the source is lost.
        """

    def rewind(self) -> None:
        """Start again.

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
    """Open a device, video file or folder.

    Args:
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
    """A V4L2 device; the time of an image is the kernel's.

    Raises:
        OSError, av.FFmpegError: it is missing, busy, not permitted or no camera.
    """

    live = True

    def __init__(self, device: str, size: Size | None = None, rate: float = 30.0) -> None:
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
    """A video file, or a single image.

    Raises:
        SourceError: no video, or none of its images can be decoded.
    """

    live = False

    def __init__(
        self, path: Path, size: Size | None = None,
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
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
    """The images of a folder in the order of their names; other files are ignored.

    Raises:
        SourceError: it has no image, or none that can be decoded.
    """

    live = False

    def __init__(
        self, path: Path, size: Size | None = None,
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
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


RETRY_S = 1.0


class RateLimiter:
    """Passes events at a maximum rate.

    Deadlines are one period apart, whenever events pass, so that there is no drift. An event
    before its deadline passes if it is nearer to the deadline than the next one is expected to be.

    Args:
        rate: Hz, more than 0.
    """

    def __init__(self, rate: float) -> None:
        self._period = 1.0 / rate
        self._next = -math.inf
        self._before = -math.inf

    def due(self, moment: float) -> bool:
        """Return whether an event at ``moment``, s, passes.

        Deadlines restart after an event more than a period late and when time jumps back.
        """
        interval = min(max(0.0, moment - self._before), self._period)
        if moment < self._before or moment - self._next > self._period:
            self._next = moment
        self._before = moment
        if moment + interval / 2 < self._next:
            return False
        self._next += self._period
        return True

    def wait(self, now: float) -> float:
        """Return the time until the next deadline, s, at least 0."""
        return max(0.0, self._next - now)


class Reader:
    """Reads a source in a thread and keeps the latest image.

    A live source is read as fast as it delivers; images that are not due are dropped. A file is
    read at the rate. A lost source is retried every second.

    ``fault`` is the reason why there are no images now, or ''; ``ended``: a file was read to its
    end and does not restart; ``missed`` counts images that were replaced before they were taken.

    Args:
        open_source: opens the source; after OSError, ValueError, av.FFmpegError it is retried.
        rate: maximum rate of images, Hz.
        loop: whether a file restarts at its end.
        source: the source if it is open already.
        notice: called from the thread with one line when the source is lost, back or ended.
    """

    def __init__(
        self, open_source: Callable[[], ImageSource], rate: float, *, loop: bool = True,
        source: ImageSource | None = None, notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._open, self._loop, self._notice = open_source, loop, notice
        self._limiter = RateLimiter(rate)
        self._source = source
        self._newest: TimedImage | None = None
        self._arrived = threading.Condition()
        self._stop = threading.Event()
        self._damaged = 0
        self.fault = ''
        self.ended = False
        self.missed = 0
        # A read of a hanging device cannot be cancelled: it must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name='image reader', daemon=True)
        self._thread.start()

    @property
    def damaged(self) -> int:
        """Return how many images could not be decoded."""
        source = self._source
        return self._damaged + (source.damaged if source is not None else 0)

    def take(self, timeout: float) -> TimedImage | None:
        """Return the latest image if it was not taken yet; wait for one up to ``timeout``, s."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._newest is not None, timeout)
            image, self._newest = self._newest, None
            return image

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
        self._thread.join(RETRY_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if self._source is None:
                    self._source = self._open()
                self._read(self._source)
                break
            except (OSError, ValueError, av.FFmpegError) as error:
                self._lose(' '.join(str(error).split()))
                self._stop.wait(RETRY_S)
        self._close()

    def _read(self, source: ImageSource) -> None:
        """Read until :meth:`close`, or to the end."""
        while not self._stop.is_set():
            image = source.read()
            if image is None:
                if not self._loop:
                    self.ended = True
                    self._notice('end of the source; no more images')
                    return
                source.rewind()
                continue
            if self.fault:
                self.fault = ''
                self._notice('images again')
            if not source.live:
                self._stop.wait(self._limiter.wait(time.monotonic()))
                image = TimedImage(image.pixels, time.monotonic())
            if self._limiter.due(image.moment):
                with self._arrived:
                    self.missed += self._newest is not None
                    self._newest = image
                    self._arrived.notify()

    def _lose(self, reason: str) -> None:
        self._close()
        if reason != self.fault:
            self._notice(f'{reason}; retried every {RETRY_S:g} s')
        self.fault = reason

    def _close(self) -> None:
        if self._source is None:
            return
        self._damaged += self._source.damaged
        source, self._source = self._source, None
        with contextlib.suppress(OSError, av.FFmpegError):  # it may be lost already
            source.close()
