"""Reader thread of an image source: keeps the latest image, at a limited rate."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable

import av

from vdl_ros.camera.image_sources import ImageSource, TimedImage

__all__ = ['RateLimiter', 'Reader']

RETRY_S = 1.0


class RateLimiter:
    """
    Passes events at a maximum rate.

    Deadlines are one period apart, whenever events pass, so that there is no drift. An event
    before its deadline passes if it is nearer to the deadline than the next one is expected to be.
    """

    def __init__(self, rate: float) -> None:
        """
        Make a limiter; the first event is at a deadline.

        Args:
            rate: Hz, more than 0.
        """
        self._period = 1.0 / rate
        self._next = -math.inf
        self._before = -math.inf

    def due(self, moment: float) -> bool:
        """
        Return whether an event at ``moment``, s, passes.

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
    """
    Reads a source in a thread and keeps the latest image.

    A live source is read as fast as it delivers; images that are not due are dropped. A file is
    read at the rate. A lost source is retried every second.

    ``fault`` is the reason why there are no images now, or ''; ``ended``: a file was read to its
    end and does not restart; ``missed`` counts images that were replaced before they were taken.
    """

    def __init__(
        self, open_source: Callable[[], ImageSource], rate: float, *, loop: bool = True,
        source: ImageSource | None = None, notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        """
        Start the thread.

        Args:
            open_source: opens the source; after OSError, ValueError, av.FFmpegError it is retried.
            rate: maximum rate of images, Hz.
            loop: whether a file restarts at its end.
            source: the source if it is open already.
            notice: called from the thread with one line when the source is lost, back or ended.
        """
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
