"""Read an image source in a thread of its own: the newest picture counts, at a rate."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable

import av

from vdl_ros.camera.image_sources import ImageSource, Picture

__all__ = ['RateLimiter', 'Reader']

RETRY_S = 1.0


class RateLimiter:
    """
    Lets through what is due at a rate.

    Deadlines are a period apart from the first on and do not depend on when they were kept, so
    that there is no drift. What comes before its deadline counts if it is nearer to it than what
    comes next will be, going by the time since the one before.
    """

    def __init__(self, rate: float) -> None:
        """
        Make a beat; the first moment is a deadline.

        Args:
            rate: Hz, more than 0.
        """
        self._period = 1.0 / rate
        self._next = -math.inf
        self._before = -math.inf

    def due(self, moment: float) -> bool:
        """
        Return whether what comes at ``moment``, s, is let through.

        One that comes more than a period late is not made up for. When time jumps back, the
        deadlines begin anew.
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
        """Return how long it is until the next deadline, s, at least 0."""
        return max(0.0, self._next - now)


class Reader:
    """
    Reads in a thread and keeps the newest picture.

    A live source is read as fast as it gives; what is not due is thrown away. A file is read at
    the rate. A source that is gone is tried again every second.

    ``fault`` is why there is no picture now, or ''; ``ended`` says that a file was read to its
    end and does not start again; ``missed`` counts pictures that nobody took in time.
    """

    def __init__(
        self, open_source: Callable[[], ImageSource], rate: float, *, loop: bool = True,
        source: ImageSource | None = None, notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        """
        Start the thread.

        Args:
            open_source: opens the source; OSError, ValueError and av.FFmpegError are tried again.
            rate: pictures a second, Hz.
            loop: whether a file starts again at its end.
            source: the source if it is open already.
            notice: told in one line, from the thread, that the source is gone, back or at its end.
        """
        self._open, self._loop, self._notice = open_source, loop, notice
        self._beat = RateLimiter(rate)
        self._source = source
        self._newest: Picture | None = None
        self._arrived = threading.Condition()
        self._stop = threading.Event()
        self._damaged = 0
        self.fault = ''
        self.ended = False
        self.missed = 0
        # A read of a device that hangs cannot be called off: it must not keep the process.
        self._thread = threading.Thread(target=self._run, name='image reader', daemon=True)
        self._thread.start()

    @property
    def damaged(self) -> int:
        """Return how many pictures could not be read."""
        source = self._source
        return self._damaged + (source.damaged if source is not None else 0)

    def take(self, timeout: float) -> Picture | None:
        """Return the newest picture if it was not taken yet; wait for one up to ``timeout``, s."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._newest is not None, timeout)
            picture, self._newest = self._newest, None
            return picture

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
        """Read until told to stop, or to the end."""
        while not self._stop.is_set():
            picture = source.read()
            if picture is None:
                if not self._loop:
                    self.ended = True
                    self._notice('the end was reached; nothing more is published')
                    return
                source.rewind()
                continue
            if self.fault:
                self.fault = ''
                self._notice('pictures again')
            if not source.live:
                self._stop.wait(self._beat.wait(time.monotonic()))
                picture = Picture(picture.pixels, time.monotonic())
            if self._beat.due(picture.moment):
                with self._arrived:
                    self.missed += self._newest is not None
                    self._newest = picture
                    self._arrived.notify()

    def _lose(self, reason: str) -> None:
        self._close()
        if reason != self.fault:
            self._notice(f'{reason}; tried again every {RETRY_S:g} s')
        self.fault = reason

    def _close(self) -> None:
        if self._source is None:
            return
        self._damaged += self._source.damaged
        source, self._source = self._source, None
        with contextlib.suppress(OSError, av.FFmpegError):  # it may be gone already
            source.close()
