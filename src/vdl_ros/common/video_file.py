"""Open pictures and videos that came from outside: by their content, and no other file."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import av
from av.container import InputContainer

from vdl_ros.common.memory import memory_limit

# What FFmpeg may take a file for: images, and videos that name no other file or address.
_FORMATS = ('apng,bmp_pipe,gif,jpeg_pipe,pgm_pipe,png_pipe,ppm_pipe,tiff_pipe,webp_pipe,'
            'asf,avi,flv,h264,hevc,ivf,m4v,matroska,mjpeg,mov,mp4,mpeg,mpegts,mpegvideo,mxf,nut,'
            'obu,ogg,webm,yuv4mpegpipe')
# Bytes that a pixel takes while an image is decoded and converted.
_PIXEL = 16
_MAX_PIXELS = (1 << 31) - 1  # of FFmpeg


class SourceError(ValueError):
    """A file or folder without images; retrying is of no use."""


class _Nameless:
    """A file without a name, which FFmpeg would take for a pattern or URL."""

    def __init__(self, file: IO[bytes]) -> None:
        self.read, self.seek, self.tell = file.read, file.seek, file.tell


@contextlib.contextmanager
def opened(path: Path) -> Iterator[InputContainer]:
    """Open an image or video file, by its content; SourceError: it has neither."""
    options = {'max_pixels': str(min(memory_limit() // _PIXEL, _MAX_PIXELS))}
    with path.open('rb') as file:
        try:
            # Metadata may be in any encoding and is not used.
            container = av.open(_Nameless(file), 'r', metadata_errors='ignore',
                                options=options | {'format_whitelist': _FORMATS})
        except av.FFmpegError as error:
            # FFmpeg says of a format that is not allowed: invalid argument.
            reason = f'of none of the formats {_FORMATS}' if isinstance(
                error, av.ArgumentError) else reason_of(error)
            raise SourceError(f'{path}: no video and no image: {reason}') from error
        with container:
            if not container.streams.video or not container.streams.video[0].codec_context:
                raise SourceError(f'{path}: no video and no image')
            container.streams.video[0].codec_context.options = options
            yield container


def reason_of(error: BaseException) -> str:
    """Return an error's reason in one line, without the number and name that FFmpeg adds."""
    text = getattr(error, 'strerror', None) or str(error) or 'no image in it'
    return ' '.join(str(text).split())
