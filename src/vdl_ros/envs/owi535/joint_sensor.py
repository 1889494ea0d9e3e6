"""Measurements of the twins' joints: late, and by camera with errors and without the wrist."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.envs.owi535.arm_observation import JointReading
from vdl_ros.envs.owi535.twin_ranges import Twins

__all__ = ['JointSensor']

Array = NDArray[np.float64]

#: Measurements come at the rate of the camera: an age varies by its period, s.
JITTER = 1.0 / 30.0
#: Errors of angles this far apart, rad, or this long, s, are independent.
INDEPENDENT_AFTER, RENEWED_AFTER = 0.2, 2.0
#: Joints that the camera does not see.
UNSEEN = np.array([name in ('wrist', 'gripper') for name in JOINTS])


class Twin(Protocol):
    """B arms whose past is known: the kinematic twin, or the one with physics."""

    period: float

    def positions_before(self, age: Array) -> Array:
        """Return the positions ``age``, float64 [B], s, ago: float64 [B, 5], rad."""


class JointSensor:
    """
    Measures the joints of B twins.

    By truth, positions are exact. By camera, errors of neighbouring poses are similar, as those of
    ``pose/tracker.py`` are, and wrist and gripper are not measured.
    """

    def __init__(self, count: int) -> None:
        """Measure ``count`` arms, exactly and at once."""
        shape = (count, len(JOINTS))
        self.by_camera = np.zeros(count, np.bool_)
        self._age = np.zeros(count)
        self._noise, self._error, self._last = np.zeros(shape), np.zeros(shape), np.zeros(shape)

    @property
    def late_positions(self) -> Array:
        """Return the true positions at the time of the last measurement, float64 [B, 5], rad."""
        return self._last

    def reset(
        self, rows: NDArray[np.intp], twins: Twins, by_camera: NDArray[np.bool_],
        positions: Array, random: np.random.Generator,
    ) -> JointReading:
        """
        Start new episodes, at time 0, and return their first measurement.

        Args:
            rows: which arms, int [N].
            twins: their parameters.
            by_camera: which of them are measured by camera, bool [N].
            positions: where they are at rest, float64 [N, 5], rad.
            random: of the errors.
        """
        self.by_camera[rows] = by_camera
        self._age[rows] = twins.age
        self._noise[rows] = np.where(by_camera[:, None], twins.noise, 0.0)
        self._error[rows] = self._noise[rows] * random.standard_normal(positions.shape)
        self._last[rows] = positions
        return JointReading(self._seen(positions, self._error[rows], by_camera), -twins.age)

    def read(self, twin: Twin, now: Array, random: np.random.Generator) -> JointReading:
        """Return the latest measurement at ``now``, float64 [B], s."""
        late = np.where(self._age > 0.0, random.uniform(0.0, JITTER, len(now)), 0.0)
        age = self._age + late
        positions = twin.positions_before(age)
        moved = np.abs(positions - self._last).max(axis=1, keepdims=True)
        keep = np.exp(-moved / INDEPENDENT_AFTER - twin.period / RENEWED_AFTER)
        fresh = self._noise * random.standard_normal(positions.shape)
        self._error = keep * self._error + np.sqrt(1.0 - keep**2) * fresh
        self._last = positions
        return JointReading(self._seen(positions, self._error, self.by_camera), now - age)

    @staticmethod
    def _seen(positions: Array, error: Array, by_camera: NDArray[np.bool_]) -> Array:
        """Return measured positions, NaN for joints that are not measured."""
        return np.where(by_camera[:, None] & UNSEEN, np.nan, positions + error)
