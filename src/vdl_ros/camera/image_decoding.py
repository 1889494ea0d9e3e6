"""Decoding of image and video files and streams to RGB by FFmpeg (PyAV)."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import IO

import av
import numpy as np
from av.container import InputContainer
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

__all__ = ['Scaler', 'Size', 'SourceError', 'Stream', 'open_file', 'reason']

#: Width and height, pixels.
Size = tuple[int, int]


class SourceError(ValueError):
    """A file or folder without images; retrying is of no use."""


class Stream:
    """
    Decodes the images of one container to RGB.

    ``damaged`` counts those that could not be decoded.
    """

    def __init__(self, container: InputContainer, size: Size | None) -> None:
        """
        Read from ``container``; :meth:`close` closes it.

        Args:
            container: with a video stream.
            size: size to scale images to; None: unchanged.
        """
        self._container = container
        self._stream = container.streams.video[0]
        self._packets = container.demux(self._stream)
        self._last = 0.0
        self._frames: deque[av.VideoFrame] = deque()
        self._scaler = Scaler(size)
        self.damaged = 0

    def read(self) -> tuple[NDArray[np.uint8], float | None] | None:
        """
        Return the next image, uint8 [height, width, 3], and its time in the stream, s.

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
        """Scale to ``size``; None: keep the size."""
        self._size = size
        self._reformatter = VideoReformatter()

    def pixels(self, frame: av.VideoFrame) -> NDArray[np.uint8]:
        """Return the image, uint8 [height, width, 3]."""
        width, height = self._size or (frame.width, frame.height)
        scaled = self._reformatter.reformat(frame, width, height, 'rgb24')
        return np.asarray(scaled.to_ndarray(), np.uint8)


def open_file(path: Path) -> tuple[IO[bytes], InputContainer]:
    """
    Open an image or video file; by its content, as FFmpeg may take a name for a pattern or URL.

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
