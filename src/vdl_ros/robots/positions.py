"""Positions for robots that take them, of actions that are changes (``change_of``)."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vdl_ros.robots.contract import Contract


class Positions:
    """Makes the positions that are sent of the changes that an action is.

    The first change of an episode is from where the robot is, each later one from the position
    sent before, so that a robot that hangs a little below it does not sink. A position is never
    further from the measured one than ``high - low`` of the part: a robot that is held, or whose
    commands end, goes no further. It is within ``low`` and ``high`` of the feature, or on the way
    back to them.
    """

    def __init__(self, contract: Contract) -> None:
        parts = contract.actions.parts
        self._which = [index for index, part in enumerate(parts) if part.change_of]
        self._names = [parts[index].change_of for index in self._which]
        features = {feature.name: feature for feature in contract.features}
        self._low, self._high = (
            np.array([getattr(features[name], end) for name in self._names], np.float64)
            for end in ('low', 'high'))
        self._lead = np.array([parts[index].high - parts[index].low for index in self._which])
        self._sent: NDArray[np.float64] | None = None
        self._ticked: NDArray[np.float64] | None = None

    def forget(self) -> None:
        """Begin an episode: the next change is from where the robot is."""
        self._sent = self._ticked = None

    def tick(self) -> None:
        """Go on at a tick: of several changes between two of them only the last one counts."""
        self._ticked = self._sent

    def of(
        self, action: NDArray[np.float64], values: Mapping[str, float],
    ) -> NDArray[np.float64] | None:
        """Return what is sent for an action, float64 [parts].

        ``values`` are the latest features. None: it is not known where the robot is.
        """
        if not self._which:
            return action
        measured = np.array([values.get(name, np.nan) for name in self._names])
        if not np.isfinite(measured).all():
            return None
        change = action[self._which]
        begin = self._ticked if change.any() else self._sent
        wanted = (measured if begin is None else begin) + change
        wanted = np.clip(wanted, np.minimum(self._low, measured), np.maximum(self._high, measured))
        self._sent = np.clip(wanted, measured - self._lead, measured + self._lead)
        sent: NDArray[np.float64] = action.copy()
        sent[self._which] = self._sent
        return sent
