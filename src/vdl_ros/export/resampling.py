"""Assign images to rows of a constant rate: episodes, repeated and dropped images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vdl_ros.export.messages import ExportError

__all__ = ['MAX_EPISODE_S', 'Placement', 'Timeline', 'mean_rate']

#: Longer episodes are split: LeRobot finds a video's pictures by float32 seconds within 0.0001 s,
#: a resolution that float32 does not have beyond 1024 s.
MAX_EPISODE_S = 600.0
# Largest distance of an image from its row, periods: jitter is less, a lost image is more.
_TOLERANCE = 0.75
# Share of an image's distance from its row by which later rows are moved: camera clocks drift.
_FOLLOW = 0.1


@dataclass(frozen=True)
class Placement:
    """
    Placement of one image.

    Attributes:
        dropped: why it becomes no row, '' if it becomes one.
        begins: it is the first image of an episode.
        repeats: rows before it that repeat the previous image.
    """

    dropped: str = ''
    begins: bool = False
    repeats: int = 0


def mean_rate(stamps_ns: NDArray[np.int64]) -> float:
    """
    Return images per second, 0.0 if unknown.

    The mean of the distances between stamps, not the median: stamps of a simulation are multiples
    of its step. Distances that a lost image has doubled are left out.
    """
    distances = np.diff(stamps_ns)
    distances = distances[distances > 0]
    if not len(distances):
        return 0.0
    return 1e9 / float(distances[distances <= 1.8 * np.median(distances)].mean())


class Timeline:
    """Places images one after the other, by their stamps."""

    def __init__(
        self, fps: int, *, gap: float, episode_seconds: float, resample: bool, independent: bool,
    ) -> None:
        """
        Begin before the first image.

        Args:
            fps: rows per second.
            gap: longest time without an image within an episode, s.
            episode_seconds: longest episode, s; 0: the maximum.
            resample: repeat and drop images where their rate varies; else that is an error.
            independent: images are no sequence; the times between them do not matter.
        """
        self._period_ns = 1e9 / fps
        # A gap is longer than an uneven distance.
        self._gap_ns = max(gap * 1e9, 2.0 * self._period_ns)
        longest = min(episode_seconds or MAX_EPISODE_S, MAX_EPISODE_S)
        self._longest = max(1, round(longest * fps))
        self._resample, self._independent = resample, independent
        self._count = 0
        self._rows = 0
        self._first_ns = self._last_ns = 0
        self._phase_ns = 0.0

    def place(self, stamp_ns: int) -> Placement:
        """
        Place the next image.

        Raises:
            ExportError: it comes too early or too late, without resampling.
        """
        self._count += 1
        distance = stamp_ns - self._last_ns
        if not self._rows:
            return self._begin(stamp_ns)
        if distance == 0:
            return Placement(dropped='the same stamp twice')
        if distance < 0 and not self._independent and -distance <= self._gap_ns:
            return Placement(dropped='older than the image before')
        # Far back: the clock was reset.
        if distance < 0 or self._rows >= self._longest:
            return self._begin(stamp_ns)
        if self._independent:
            return self._continue(stamp_ns)
        if distance > self._gap_ns:
            return self._begin(stamp_ns)
        if self._resample:
            repeats = round((stamp_ns - self._first_ns) / self._period_ns) - self._rows
            if repeats < 0:
                return Placement(dropped='too early for a row of its own')
            self._rows += repeats
            return self._continue(stamp_ns, repeats)
        self._follow(stamp_ns, distance)
        return self._continue(stamp_ns)

    def _follow(self, stamp_ns: int, distance: int) -> None:
        """Compare an image with the time of its row."""
        period = self._period_ns
        off = stamp_ns - self._first_ns - self._rows * period - self._phase_ns
        self._phase_ns += _FOLLOW * off
        if abs(off) <= _TOLERANCE * period:
            return
        raise ExportError(
            f'image {self._count} comes {distance * 1e-9:.4f} s after the one before it and '
            f'{abs(off) * 1e-9:.4f} s {"before" if off < 0 else "after"} the time of its row; '
            f'{1e9 / period:g} frames/s allow {_TOLERANCE * period * 1e-9:.4f} s: --resample '
            'drops and repeats images, --fps states another rate, --gap begins another episode')

    def _begin(self, stamp_ns: int) -> Placement:
        self._first_ns = self._last_ns = stamp_ns
        self._rows, self._phase_ns = 1, 0.0
        return Placement(begins=True)

    def _continue(self, stamp_ns: int, repeats: int = 0) -> Placement:
        self._last_ns = stamp_ns
        self._rows += 1
        return Placement(repeats=repeats)
