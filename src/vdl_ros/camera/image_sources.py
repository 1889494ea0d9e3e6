"""Images of devices, videos and folders by FFmpeg (PyAV), as RGB; a thread that reads them."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import IO, NamedTuple, Protocol

import av
import numpy as np
from av.container import InputContainer
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
#: Width and height, pixels; None: unchanged.
Size = tuple[int, int] | None
Notice = Callable[[str], None]

SUFFIXES = ('.bmp', '.gif', '.jpeg', '.jpg', '.pgm', '.png', '.ppm', '.tif', '.tiff', '.webp')
# A stamp of the kernel is used if the image is no older than this, s.
_MAX_AGE_S = 1.0


class SourceError(ValueError):
    """A file or folder without images; retrying is of no use."""


class TimedImage(NamedTuple):
    """An image, RGB, uint8 [height, width, 3], and its time of exposure, s, monotonic."""

    pixels: Pixels
    moment: float


class ImageSource(Protocol):
    """A sequence of images, live from a device or stored; see :func:`open_source`.

    Attributes:
        live: images are lost unless they are read in time.
        damaged: number of images that could not be decoded.
    """

    live: bool

    @property
    def damaged(self) -> int: ...

    def read(self) -> TimedImage | None:
        """Return the next image, waiting for a live one; None at the end of a stored one.

        After its end a stored one begins again.

        Raises:
            OSError, SourceError, av.FFmpegError: the source is lost, or invalid now.
        """

    def close(self) -> None: ...


def is_device(source: str) -> bool:
    """Return whether a source is a device, which may appear later, and not a file."""
    return source.startswith('/dev/')


def open_source(
    source: str, size: Size = None, rate: float = 30.0, notice: Notice = lambda text: None,
) -> ImageSource:
    """Open a device, video file or folder.

    Args:
        rate: requested of a device, Hz; it may deliver another.
        notice: called with one line for each file that is left out.

    Raises:
        SourceError: no such file or folder, or no image in it.
        OSError, av.FFmpegError: no such device, or it cannot be read now.
    """
    if is_device(source):
        return _DeviceSource(source, size, rate)
    path = Path(source)
    if path.is_dir():
        return _FolderSource(path, size, notice)
    if path.is_file():
        return _VideoSource(path, size, notice)
    raise SourceError(f'source: {source!r} is not allowed: no such file or folder; sim, '
                      '/dev/videoN, a video file or a folder of images')


def open_container(device: str, options: dict[str, str]) -> InputContainer:
    """Open a V4L2 device; tests replace this function."""
    return av.open(device, format='v4l2', options=options)


class _Stream:
    """Decodes the images of one container to RGB; ``damaged`` could not be decoded."""

    def __init__(self, container: InputContainer, size: Size) -> None:
        self._stream = container.streams.video[0]
        self._packets = container.demux(self._stream)
        self._last = 0.0
        self._frames: deque[av.VideoFrame] = deque()
        self._scaler = _Scaler(size)
        self.damaged = 0

    def read(self) -> tuple[Pixels, float | None] | None:
        """Return the next image and its time in the stream, s; None at the end."""
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
        """Where a stream ended too early, such as ', cut off after 1.0 of 3.0 s', or ''."""
        stream = self._stream
        if stream.duration is None or stream.time_base is None or not stream.average_rate:
            return ''  # the format has no duration
        end = float(((stream.start_time or 0) + stream.duration) * stream.time_base)
        # The last image starts a period before the end; one more is allowed for rounding.
        if end - self._last < 2.5 / stream.average_rate:
            return ''
        return f', cut off after {self._last:.1f} of {end:.1f} s'


class _Scaler:
    """Converts frames to RGB, scaled; keeps its reformatter, which is expensive to make."""

    def __init__(self, size: Size) -> None:
        self._size = size
        self._reformatter = VideoReformatter()

    def pixels(self, frame: av.VideoFrame) -> Pixels:
        width, height = self._size or (frame.width, frame.height)
        scaled = self._reformatter.reformat(frame, width, height, 'rgb24')
        return np.asarray(scaled.to_ndarray(), np.uint8)


class _Nameless:
    """A file without a name, which FFmpeg would take for a pattern or URL."""

    def __init__(self, file: IO[bytes]) -> None:
        self.read, self.seek, self.tell = file.read, file.seek, file.tell


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[InputContainer]:
    """Open an image or video file, by its content; SourceError: it has neither."""
    with path.open('rb') as file:
        try:
            # Metadata may be in any encoding and is not used.
            container = av.open(_Nameless(file), 'r', metadata_errors='ignore')
        except av.FFmpegError as error:
            raise SourceError(f'{path}: no video and no image: {_reason(error)}') from error
        with container:
            # FFmpeg takes any text for a terminal recording.
            if not container.streams.video or container.format.name == 'tty':
                raise SourceError(f'{path}: no video and no image')
            yield container


def _reason(error: BaseException) -> str:
    """Return an error's reason in one line, without the number and name that FFmpeg adds."""
    text = getattr(error, 'strerror', None) or str(error) or 'no image in it'
    return ' '.join(str(text).split())


class _DeviceSource:
    """A V4L2 device; the time of an image is the kernel's."""

    live = True

    def __init__(self, device: str, size: Size, rate: float) -> None:
        options = {'framerate': f'{rate:g}'}
        if size is not None:
            options['video_size'] = f'{size[0]}x{size[1]}'
        self._device = device
        try:
            container = open_container(device, options)
        except PermissionError as error:
            raise PermissionError(
                error.errno, 'no permission: the user must be in the group video',
                device) from error
        self._stream, self.close = _Stream(container, size), container.close

    @property
    def damaged(self) -> int:
        return self._stream.damaged

    def read(self) -> TimedImage:
        found = self._stream.read()
        if found is None:
            raise OSError(f'{self._device}: no more images')
        now = time.monotonic()
        pixels, stamp = found
        known = stamp is not None and 0.0 <= now - stamp < _MAX_AGE_S
        return TimedImage(pixels, stamp if known and stamp is not None else now)


class _StoredSource:
    """Images of files, which a generator yields; the first one is read at once."""

    live = False

    def __init__(self, path: Path, size: Size, notice: Notice) -> None:
        self._path, self._size, self._notice = path, size, notice
        self._reported: set[Path] = set()
        self.damaged = 0
        self._begin()

    def _begin(self) -> None:
        self._images = self._decoded()
        self._first = next(self._images, None)
        if self._first is None:
            raise SourceError(f'{self._path}: no image can be decoded')
        self._ended = False

    def _decoded(self) -> Generator[Pixels, None, None]:
        raise NotImplementedError

    def _report(self, path: Path, text: str) -> None:
        """Give notice of a file, once for all rounds."""
        if path not in self._reported:
            self._reported.add(path)
            self._notice(text)

    def read(self) -> TimedImage | None:
        if self._ended:
            self._begin()
        pixels, self._first = self._first, None
        if pixels is None:
            pixels = next(self._images, None)
        self._ended = pixels is None
        return TimedImage(pixels, time.monotonic()) if pixels is not None else None

    def close(self) -> None:
        self._images.close()


class _VideoSource(_StoredSource):
    """A video file, or a single image."""

    def _decoded(self) -> Generator[Pixels, None, None]:
        before = self.damaged
        with _opened(self._path) as container:
            stream = _Stream(container, self._size)
            try:
                while (found := stream.read()) is not None:
                    self.damaged = before + stream.damaged
                    yield found[0]
            except av.FFmpegError:
                stream.damaged += 1  # the file is cut off here
            self.damaged = before + stream.damaged
            if stream.damaged or stream.cut_off:
                self._report(self._path, f'{self._path}: {stream.damaged} damaged images left out'
                             f'{stream.cut_off}')


class _FolderSource(_StoredSource):
    """The images of a folder in the order of their names; other files are ignored."""

    def _decoded(self) -> Generator[Pixels, None, None]:
        files = sorted(each for each in self._path.iterdir()
                       if each.suffix.lower() in SUFFIXES and not each.name.startswith('.'))
        if not files:
            raise SourceError(f'{self._path}: no image in this folder; names must end with '
                              f'{", ".join(SUFFIXES)}')
        scaler, count = _Scaler(self._size), 0
        for path in files:
            try:
                with _opened(path) as container:
                    pixels = scaler.pixels(next(container.decode(video=0)))
            except (av.FFmpegError, OSError, ValueError, StopIteration) as error:
                self.damaged += 1
                named = isinstance(error, SourceError)
                self._report(path, f'left out: {error if named else f"{path}: {_reason(error)}"}')
                continue
            count += 1
            yield pixels
        if not count:
            raise SourceError(
                f'{self._path}: none of {len(files)} images in this folder can be decoded')


RETRY_S = 1.0


class RateLimiter:
    """Passes events at a maximum rate, Hz.

    Deadlines are one period apart, whenever events pass, so that there is no drift. An event
    before its deadline passes if it is nearer to the deadline than the next one is expected to be.
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

    Args:
        loop: whether a file restarts at its end.
        source: the source if it is open already.
        notice: called from the thread with one line when the source is lost, back or ended.

    Attributes:
        fault: why there are no images now, or ''.
        ended: a file was read to its end and does not restart.
        missed: images that were replaced before they were taken.
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
        """Number of images that could not be decoded."""
        source = self._source
        return self._damaged + (source.damaged if source is not None else 0)

    def take(self, timeout: float) -> TimedImage | None:
        """Return the latest image if it was not taken yet; wait for one up to ``timeout``, s."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._newest is not None, timeout)
            image, self._newest = self._newest, None
            return image

    def close(self) -> None:
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
                self._close()
                before, self.fault = self.fault, ' '.join(str(error).split())
                if self.fault != before:
                    self._notice(f'{self.fault}; retried every {RETRY_S:g} s')
                self._stop.wait(RETRY_S)
        self._close()

    def _read(self, source: ImageSource) -> None:
        """Read until :meth:`close`, or to the end."""
        while not self._stop.is_set():
            image = source.read()
            if image is None:
                if self._loop:
                    continue
                self.ended = True
                self._notice('end of the source; no more images')
                return
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

    def _close(self) -> None:
        if self._source is None:
            return
        self._damaged += self._source.damaged
        source, self._source = self._source, None
        with contextlib.suppress(OSError, av.FFmpegError):  # it may be lost already
            source.close()
