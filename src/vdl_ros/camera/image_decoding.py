"""Open what FFmpeg can read, and make RGB of it; errors in one line."""

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
    """A file or folder without pictures; waiting does not help."""


class Stream:
    """
    The pictures of one container, RGB.

    ``damaged`` counts those that could not be read.
    """

    def __init__(self, container: InputContainer, size: Size | None) -> None:
        """
        Read from ``container``, which becomes this object's to close.

        Args:
            container: with a video in it.
            size: that pictures are scaled to; None: as they are.
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
        Return the next picture, uint8 [height, width, 3], and its time in the stream, s.

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
                self.damaged += 1  # the next may be whole
        frame = self._frames.popleft()
        self._last = frame.time if frame.time is not None else self._last
        return self._scaler.pixels(frame), frame.time

    @property
    def cut_off(self) -> str:
        """Return in words that the last picture came too early, '' if it did not."""
        stream = self._stream
        if stream.duration is None or stream.time_base is None or not stream.average_rate:
            return ''  # the format does not say
        end = float(((stream.start_time or 0) + stream.duration) * stream.time_base)
        # The last picture begins a period before the end; one more is allowed for rounding.
        if end - self._last < 2.5 / stream.average_rate:
            return ''
        return f'after {self._last:.1f} of {end:.1f} s'

    def close(self) -> None:
        """Let go of the device or file."""
        self._container.close()


class Scaler:
    """Makes RGB of any picture; keeps what it needs for it, which is costly to make anew."""

    def __init__(self, size: Size | None) -> None:
        """Scale to ``size``; None: leave pictures as large as they are."""
        self._size = size
        self._reformatter = VideoReformatter()

    def pixels(self, frame: av.VideoFrame) -> NDArray[np.uint8]:
        """Return the picture, uint8 [height, width, 3]."""
        width, height = self._size or (frame.width, frame.height)
        scaled = self._reformatter.reformat(frame, width, height, 'rgb24')
        return np.asarray(scaled.to_ndarray(), np.uint8)


def open_file(path: Path) -> tuple[IO[bytes], InputContainer]:
    """
    Open a file for its pictures; by its content, as a name could be a pattern or an address.

    Raises:
        OSError: it cannot be opened.
        SourceError: neither a video nor an image is in it.
    """
    file = path.open('rb')
    try:
        # What it says of itself is not read, so it may be in any encoding.
        container = av.open(_Nameless(file), 'r', metadata_errors='ignore')
        # Any text is a picture to the player of terminal recordings.
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
    """A file that does not tell its name, of which FFmpeg would make something."""

    def __init__(self, file: IO[bytes]) -> None:
        self.read, self.seek, self.tell = file.read, file.seek, file.tell


def reason(error: BaseException) -> str:
    """Return why in one line, without the number and the name that FFmpeg adds."""
    text = getattr(error, 'strerror', None) or str(error) or 'no picture in it'
    return ' '.join(str(text).split())
