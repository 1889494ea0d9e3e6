"""An MP4 of an even rate whose pictures are found by their time alone."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from vdl_ros.export.messages import ExportError

__all__ = ['CODEC', 'OPTIONS', 'PIXEL_FORMAT', 'VideoFile', 'check_video']

CODEC = 'h264'
PIXEL_FORMAT = 'yuv420p'
#: Every second picture stands alone, so that any is found fast; and none waits for a later one.
OPTIONS = {'g': 2, 'crf': 18, 'preset': 'veryfast'}


class VideoFile:
    """
    A video being written.

    Attributes:
        path: the file.
        count: pictures so far.
    """

    def __init__(self, path: Path, size: tuple[int, int], fps: int) -> None:
        """
        Begin.

        Args:
            path: of the file.
            size: width and height, both even.
            fps: pictures per second.

        Raises:
            ExportError: a size that cannot be encoded.
        """
        if size[0] % 2 or size[1] % 2:
            raise ExportError(f'images of {size[0]} x {size[1]} pixels make no {CODEC} video: '
                              'width and height must be even; --format hdf5 takes any')
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.count = path, 0
        self._container = av.open(str(path), 'w', format='mp4')
        self._stream = self._container.add_stream('libx264', rate=fps)
        self._stream.width, self._stream.height = size
        self._stream.pix_fmt = PIXEL_FORMAT
        self._stream.codec_context.time_base = Fraction(1, fps)
        self._stream.codec_context.options = {
            **{name: str(value) for name, value in OPTIONS.items()}, 'bf': '0'}

    def add(self, image: NDArray[np.uint8]) -> None:
        """Add a picture, uint8 [height, width, 3]."""
        frame = av.VideoFrame.from_ndarray(image, format='rgb24')
        frame.pts, frame.time_base = self.count, self._stream.codec_context.time_base
        self.count += 1
        for packet in self._stream.encode(frame):
            self._container.mux(packet)

    def close(self) -> None:
        """Finish the file."""
        for packet in self._stream.encode(None):
            self._container.mux(packet)
        self._container.close()


def check_video(path: Path, count: int, fps: int) -> None:
    """
    Read a finished video's times, without decoding.

    Raises:
        ExportError: it has not ``count`` pictures, or one is not at its time.
    """
    found = 0
    with av.open(str(path)) as container:
        for packet in container.demux(container.streams.video[0]):
            if packet.pts is None:
                continue
            if packet.time_base is None or packet.pts * packet.time_base != Fraction(found, fps):
                raise ExportError(f'{path.name}: picture {found} is not at its time')
            found += 1
    if found != count:
        raise ExportError(f'{path.name}: {found} pictures instead of {count}')
