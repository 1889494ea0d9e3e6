"""Images of devices, videos and folders by FFmpeg (PyAV), as RGB; a thread that reads them."""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import av
import numpy as np
from av.container import InputContainer
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray
from PIL import ExifTags, Image

from vdl_ros.common.images import check_size
from vdl_ros.common.video_file import SourceError, opened, reason_of

Pixels = NDArray[np.uint8]
#: Width and height, pixels; None: unchanged.
Size = tuple[int, int] | None
Notice = Callable[[str], None]

_WITH_EXIF = ('JPEG', 'PNG', 'TIFF', 'WEBP')
SUFFIXES = ('.bmp', '.gif', '.jpeg', '.jpg', '.pgm', '.png', '.ppm', '.tif', '.tiff', '.webp')
# A stamp of the kernel is used if the image is no older than this, s.
_MAX_AGE_S = 1.0


class TimedImage(NamedTuple):
    """An image, RGB, uint8 [height, width, 3], and its time of exposure, s, monotonic."""

    pixels: Pixels
    moment: float


class ImageSource:
    """A sequence of images, live from a device or stored; see :func:`open_source`.

    Attributes:
        live: images are lost unless they are read in time.
        damaged: number of images that could not be decoded.
    """

    def __init__(
        self, decode: Callable[['ImageSource'], Generator[TimedImage, None, None]], notice: Notice,
        *, live: bool,
    ) -> None:
        self.live, self.damaged = live, 0
        self._decode, self._notice, self._reported = decode, notice, set[Path]()
        self._images = decode(self)
        # Whether a file has images is known at once; a device may come later.
        self._first = None if live else next(self._images)

    def read(self) -> TimedImage | None:
        """Return the next image, waiting for a live one; None after each round of a stored one.

        Raises:
            OSError, SourceError, av.FFmpegError: the source is lost, or invalid now.
        """
        image, self._first = self._first, None
        if image is None:
            image = next(self._images, None)
            if image is None:
                self._images = self._decode(self)
        return image

    def report(self, path: Path, text: str) -> None:
        """Give notice of a file, once for all rounds."""
        if path not in self._reported:
            self._reported.add(path)
            self._notice(text)

    def close(self) -> None:
        self._images.close()


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
    """
    if is_device(source):
        return ImageSource(partial(_read_device, source, size, rate), notice, live=True)
    path = Path(source)
    if path.is_dir():
        return ImageSource(partial(_read_folder, path, size), notice, live=False)
    if path.is_file():
        return ImageSource(partial(_read_video, path, size), notice, live=False)
    raise SourceError(f'source: {source!r} is not allowed: no such file or folder; sim, '
                      '/dev/videoN, a video file or a folder of images')


def open_container(device: str, options: dict[str, str]) -> InputContainer:
    """Open a V4L2 device; tests replace this function."""
    return av.open(device, format='v4l2', options=options)


class _Scaler:
    """Converts frames to RGB, scaled and as their metadata turn them.

    Keeps its reformatter, which is expensive to make.
    """

    def __init__(self, size: Size) -> None:
        self._size = size
        self._reformatter = VideoReformatter()

    def pixels(self, frame: av.VideoFrame, mirrored: bool = False) -> Pixels:
        # Of a video, or EXIF; quarters of a turn, counterclockwise, of the mirrored image.
        turns = round(frame.rotation / 90)
        width, height = self._size or (frame.width, frame.height)
        if self._size and turns % 2:
            width, height = height, width
        check_size(width, height)
        scaled = self._reformatter.reformat(frame, width, height, 'rgb24')
        pixels = np.asarray(scaled.to_ndarray(), np.uint8)
        return np.ascontiguousarray(np.rot90(pixels[::-1] if mirrored else pixels, turns))


def _is_mirrored(path: Path) -> bool:
    """Return whether EXIF mirrors a picture: PyAV says only how it is turned."""
    # What Pillow raises depends on the format; FFmpeg says what is wrong with the file.
    with contextlib.suppress(Exception), Image.open(path, formats=_WITH_EXIF) as image:
        return image.getexif().get(ExifTags.Base.Orientation) in (2, 4, 5, 7)
    return False


def _decoded(
    container: InputContainer, size: Size, source: ImageSource, mirrored: bool = False,
) -> Iterator[tuple[Pixels, float | None]]:
    """Yield each image of a container, and its time in the stream, s."""
    scaler = _Scaler(size)
    for packet in container.demux(container.streams.video[0]):
        try:
            frames = packet.decode()
        except av.InvalidDataError:
            source.damaged += 1  # the next may be intact
            continue
        for frame in frames:
            if isinstance(frame, av.VideoFrame):
                yield scaler.pixels(frame, mirrored), frame.time


def _read_device(
    device: str, size: Size, rate: float, source: ImageSource,
) -> Generator[TimedImage, None, None]:
    """Yield the images of a V4L2 device, with the kernel's time."""
    options = {'framerate': f'{rate:g}'}
    if size is not None:
        options['video_size'] = f'{size[0]}x{size[1]}'
    try:
        container = open_container(device, options)
    except PermissionError as error:
        raise PermissionError(
            error.errno, 'no permission: the user must be in the group video', device) from error
    with contextlib.closing(container):
        for pixels, stamp in _decoded(container, size, source):
            now = time.monotonic()
            known = stamp is not None and 0.0 <= now - stamp < _MAX_AGE_S
            yield TimedImage(pixels, stamp if known and stamp is not None else now)
    raise OSError(f'{device}: no more images')


def _read_video(path: Path, size: Size, source: ImageSource) -> Generator[TimedImage, None, None]:
    """Yield the images of a video file, or a single image."""
    before, count, last = source.damaged, 0, 0.0
    with opened(path) as container:
        try:
            for pixels, moment in _decoded(container, size, source, _is_mirrored(path)):
                count, last = count + 1, last if moment is None else moment
                yield TimedImage(pixels, time.monotonic())
        except av.FFmpegError:
            source.damaged += 1  # the file is cut off here
        cut_off = _cut_off(container.streams.video[0], last)
    if (damaged := source.damaged - before) or cut_off:
        source.report(path, f'{path}: {damaged} damaged images left out{cut_off}')
    if not count:
        raise SourceError(f'{path}: no image can be decoded')


def _cut_off(stream: av.VideoStream, last: float) -> str:
    """Return where a stream ended too early, such as ', cut off after 1.0 of 3.0 s', or ''."""
    if stream.duration is None or stream.time_base is None or not stream.average_rate:
        return ''  # the format has no duration
    end = float(((stream.start_time or 0) + stream.duration) * stream.time_base)
    # The last image starts a period before the end; one more is allowed for rounding.
    if end - last < 2.5 / stream.average_rate:
        return ''
    return f', cut off after {last:.1f} of {end:.1f} s'


def _read_folder(
    folder: Path, size: Size, source: ImageSource,
) -> Generator[TimedImage, None, None]:
    """Yield the images of a folder in the order of their names; other files are ignored."""
    files = sorted(each for each in folder.iterdir()
                   if each.suffix.lower() in SUFFIXES and not each.name.startswith('.'))
    if not files:
        raise SourceError(f'{folder}: no image in this folder; names must end with '
                          f'{", ".join(SUFFIXES)}')
    scaler, count = _Scaler(size), 0
    for path in files:
        try:
            with opened(path) as container:
                pixels = scaler.pixels(next(container.decode(video=0)), _is_mirrored(path))
        except (av.FFmpegError, OSError, ValueError, StopIteration) as error:
            source.damaged += 1
            named = isinstance(error, SourceError)
            source.report(path, f'left out: {error if named else f"{path}: {reason_of(error)}"}')
            continue
        count += 1
        yield TimedImage(pixels, time.monotonic())
    if not count:
        raise SourceError(f'{folder}: none of {len(files)} images in this folder can be decoded')


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
