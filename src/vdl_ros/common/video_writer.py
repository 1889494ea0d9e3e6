"""Write pictures to a video (MP4, H.264 by default) with a constant frame rate.

Each picture is encoded at once, so memory does not grow with the video.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PIXEL_FORMAT, _ENCODER = 'yuv420p', 'libx264'
# Of the encoder.
_MAX_SIDE = 16384
# 7680 x 4320 and a few more.
_MAX_PIXELS = 1 << 25


class VideoWriter(AbstractContextManager['VideoWriter']):
    """An MP4 file to which pictures uint8 [H, W, 3] are added; use it in a ``with`` statement.

    The file gets its name when it is complete; after an error nothing remains.

    Args:
        fps: pictures per second.

    Attributes:
        count: pictures so far; picture n is shown at exactly n / fps seconds.

    Raises:
        ValueError: PyAV is not installed.
    """

    def __init__(
        self, path: str | Path, fps: float, options: Mapping[str, str | int] | None = None,
    ) -> None:
        try:
            import av
        except ImportError:
            raise ValueError('videos need PyAV: pip install av') from None
        self.path, self.count = Path(path), 0
        self._rate = Fraction(fps).limit_denominator(1001)
        self._options = {name: str(value) for name, value in (options or {}).items()}
        self._partial = self.path.with_name(f'.{self.path.name}.partial')
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._container = av.open(
            str(self._partial), 'w', format='mp4', options={'movflags': 'faststart'})
        self._stream: Any = None

    @property
    def bytes_written(self) -> int:
        """The size of the file so far, which begins late: the encoder holds pictures back."""
        return self._partial.stat().st_size if self._partial.exists() else 0

    def add(self, picture: NDArray[np.uint8]) -> None:
        """Append a picture; ValueError unless height and width are even and those of the first."""
        from av import VideoFrame

        if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
            raise ValueError(f'picture: {picture.dtype} {picture.shape} is not uint8 [H, W, 3]')
        height, width = picture.shape[:2]
        if (not all(side % 2 == 0 and 0 < side <= _MAX_SIDE for side in (height, width))
                or height * width > _MAX_PIXELS):
            raise ValueError(f'images of {width} x {height} pixels make no {_ENCODER} video: both '
                             f'even, 2 to {_MAX_SIDE}, and at most {_MAX_PIXELS:,} pixels')
        if self._stream is None:
            self._stream = self._container.add_stream(
                _ENCODER, rate=self._rate, options=self._options)
            self._stream.width, self._stream.height = width, height
            self._stream.pix_fmt = PIXEL_FORMAT
            self._stream.codec_context.time_base = 1 / self._rate
        elif (self._stream.height, self._stream.width) != (height, width):
            raise ValueError(
                f'picture: {height} x {width} is not the {self._stream.height} x '
                f'{self._stream.width} of the first')
        frame = VideoFrame.from_ndarray(np.ascontiguousarray(picture), format='rgb24')
        frame.pts, frame.time_base = self.count, self._stream.codec_context.time_base
        self._container.mux(self._stream.encode(frame))
        self.count += 1

    def close(self, *, discard: bool = False) -> None:
        """Finish the file and name it; remove it if it is empty or to be discarded."""
        keep = self._stream is not None and not discard
        try:
            if keep:
                self._container.mux(self._stream.encode(None))
            self._container.close()
            if keep:
                self._partial.replace(self.path)
        finally:
            self._partial.unlink(missing_ok=True)

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(discard=kind is not None)
