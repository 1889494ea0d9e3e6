"""Track the joints by estimates of their positions and motor commands: a histogram filter."""

import collections
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

# From a command until the motor follows it, s: cable, start and coasting.
RESPONSE_TIME = 0.06
# Between neighbouring angles of the grid, rad.
_CELL = math.radians(0.5)
# Speeds may be off by this share, over moves of about this length, rad.
_SPEED_ERROR, _STRETCH = 0.2, 0.3
# Standard deviation of a joint's motion in a second in which its motor was off, rad.
_DRIFT = 0.01
# Degrees of freedom of Student's t, the likelihood of an estimate.
_TAILS = 2.0
# Estimates this far apart have independent errors, rad; so has, after this time, s, an estimate of
# the same pose: noise, light, passers-by.
_INDEPENDENT_AFTER, _RENEWED_AFTER = 0.2, 1.0
# Share of the probability that is spread over all angles for each independent estimate, to recover
# an arm that was moved by hand.
_LOST = 1e-5

Array = NDArray[np.float64]
# A joint stands, held or at its end, if its motor ran for so long a way, rad, while its estimates,
# smoothed over so many s, stayed so near, rad. Estimates that are less certain, rad, say nothing.
_STANDS_AFTER, _SMOOTHED, _NEAR, _CERTAIN = 0.6, 0.5, 0.15, 0.3
# Commands that are kept while no picture arrives.
_MAX_COMMANDS = 1000


class Track(NamedTuple):
    """Positions and standard deviations of the joints: each float64 [joints], rad."""

    positions: Array
    std: Array


class JointTracker:
    """Histogram filter of the joints; times are seconds of the clock that stamps the pictures.

    Args:
        lower: lower limits of the joints, float64 [joints], rad.
        speed: of the joints when their motors are on, float64 [joints], rad/s.
    """

    def __init__(self, lower: ArrayLike, upper: ArrayLike, speed: ArrayLike) -> None:
        self._lower = np.asarray(lower, np.float64)
        self._upper = np.asarray(upper, np.float64)
        self._speed = np.asarray(speed, np.float64)
        cells = np.ceil((self._upper - self._lower) / _CELL).astype(int) + 1
        self._grids = [low + np.arange(count) * _CELL
                       for low, count in zip(self._lower, cells, strict=True)]
        self._commands: collections.deque[tuple[float, Array]] = collections.deque(
            maxlen=_MAX_COMMANDS)
        self._reset()

    def _reset(self) -> None:
        self._probability = [np.full(len(grid), 1.0 / len(grid)) for grid in self._grids]
        # Shift and variance that are still smaller than a cell.
        self._shift = np.zeros(len(self._grids))
        self._variance = np.zeros(len(self._grids))
        self._stamp: float | None = None
        self._moved = 0.0
        self._last: Array | None = None
        # Smoothed estimates now and where each joint seemed to be last, and its motor's way since.
        self._smoothed = np.full(len(self._grids), math.nan)
        self._place, self._way = self._smoothed.copy(), np.zeros(len(self._grids))

    def command(self, stamp: float, directions: Sequence[int]) -> None:
        """Add the motor commands sent at ``stamp``: -1, 0 or 1 for each joint."""
        if self._commands and stamp < self._commands[-1][0]:
            # The clock was reset, or a bag starts again.
            self._commands.clear()
        self._commands.append((stamp, np.array(directions, np.float64)))

    def update(self, stamp: float, estimate: ArrayLike, std: ArrayLike) -> Track:
        """Update with an estimate, [joints], rad; return the positions at the picture's stamp.

        A stamp before the last one resets the filter.
        """
        measured, deviation = np.asarray(estimate, np.float64), np.asarray(std, np.float64)
        if self._stamp is not None and stamp < self._stamp:
            self._reset()
        elapsed = 0.0 if self._stamp is None else stamp - self._stamp
        travelled = self._speed * self._commanded(stamp - elapsed, stamp)
        stands = self._stands(measured, np.where(deviation < _CERTAIN, travelled, 0.0), elapsed)
        self._predict(np.where(stands, 0.0, travelled), elapsed)
        self._correct(measured, deviation, self._novelty(measured, elapsed))
        self._stamp, self._last = stamp, measured
        return self._summary()

    def _stands(self, measured: Array, travelled: Array, elapsed: float) -> NDArray[np.bool_]:
        """Return which joints do not follow their motors, bool [joints].

        Else the positions of a joint that is held would move with its commands, for ever.
        """
        share = min(1.0, elapsed / _SMOOTHED)
        self._smoothed = np.where(np.isnan(self._smoothed), measured,
                                  self._smoothed + share * (measured - self._smoothed))
        has_moved = ~(np.abs(self._smoothed - self._place) <= _NEAR)
        self._place = np.where(has_moved, self._smoothed, self._place)
        self._way = np.where(has_moved, 0.0, self._way + np.abs(travelled))
        return self._way > _STANDS_AFTER

    def _predict(self, moved: Array, elapsed: float) -> None:
        """Move and blur the probabilities by what was commanded since the last picture."""
        self._moved = float(np.abs(moved).max(initial=0.0))
        self._shift += moved
        self._variance += _SPEED_ERROR**2 * _STRETCH * np.abs(moved) + _DRIFT**2 * elapsed
        for index in range(len(self._grids)):
            if whole := round(self._shift[index] / _CELL):
                self._shift[index] -= whole * _CELL
                self._probability[index] = _shifted(self._probability[index], whole)
            if self._variance[index] >= _CELL**2:
                self._probability[index] = _blurred(
                    self._probability[index], math.sqrt(self._variance[index]) / _CELL)
                self._variance[index] = 0.0

    def _commanded(self, begin: float, end: float) -> Array:
        """Return the signed time that each motor was on between two stamps, s."""
        begin, end = begin - RESPONSE_TIME, end - RESPONSE_TIME
        while len(self._commands) > 1 and self._commands[1][0] <= begin:
            self._commands.popleft()
        total = np.zeros(len(self._grids))
        until = end
        for since, directions in reversed(self._commands):
            total += directions * max(0.0, until - max(since, begin))
            until = min(until, since)
        return total

    def _novelty(self, measured: Array, elapsed: float) -> float:
        """Return how independent this estimate is of the last one, 0 to 1."""
        if self._last is None:
            return 1.0
        change = self._moved + float(np.abs(measured - self._last).max())
        return min(1.0, change / _INDEPENDENT_AFTER + elapsed / _RENEWED_AFTER)

    def _correct(self, measured: Array, std: Array, novelty: float) -> None:
        """Multiply each angle's probability by the likelihood of the estimate."""
        lost = _LOST * novelty
        for index, grid in enumerate(self._grids):
            off = (grid + self._shift[index] - measured[index]) / std[index]
            weight = (1.0 + off**2 / _TAILS) ** (-0.5 * (_TAILS + 1.0) * novelty)
            found = self._probability[index] * weight
            found /= found.sum()
            self._probability[index] = (1.0 - lost) * found + lost / len(grid)

    def _summary(self) -> Track:
        positions, std = np.empty(len(self._grids)), np.empty(len(self._grids))
        for index, (grid, probability) in enumerate(
                zip(self._grids, self._probability, strict=True)):
            mean = probability @ grid
            positions[index] = mean + self._shift[index]
            std[index] = math.sqrt(probability @ (grid - mean)**2 + self._variance[index])
        return Track(np.clip(positions, self._lower, self._upper), std)


def _shifted(probability: Array, cells: int) -> Array:
    """Return it shifted by a number of cells; probability stops at the limits."""
    places = np.clip(np.arange(len(probability)) + cells, 0, len(probability) - 1)
    return np.asarray(np.bincount(places, probability, len(probability)), np.float64)


def _blurred(probability: Array, std: float) -> Array:
    """Return it blurred by a normal distribution, ``std`` in cells; limits reflect."""
    reach = min(math.ceil(4.0 * std), len(probability) - 1)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / std) ** 2)
    padded = np.pad(probability, reach, mode='symmetric')
    result: Array = np.convolve(padded, kernel, mode='valid')
    result /= result.sum()
    return result
