"""Positions for robots that take them, of actions with ``change_of`` or ``position_of``."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vdl_ros.robots.contract import Contract

# A robot may be pushed further away from the position sent than commands bring it, so many times.
_BELIEVED = 1.5

class Positions:
    """Makes the positions that are sent of an action, whose parts are changes or positions.

    The first change of an episode is from where the robot is, each later one from the position
    sent before, so that a robot that hangs a little below it does not sink. A position is never
    further from the measured one than ``high - low`` of a change, or two ``step``: a robot that is
    held, or whose commands end, goes no further. It is within ``low`` and ``high``, of a change
    those of the feature; of a robot that is beyond them it is never further out than the one
    before. A measurement that cannot be, such as a wrong one of a bus, is not believed: see
    :meth:`doubt`.
    """

    def __init__(self, contract: Contract) -> None:
        parts = contract.actions.parts
        self._which = [index for index, part in enumerate(parts) if part.feature]
        chosen = [parts[index] for index in self._which]
        self._names = [part.feature for part in chosen]
        #: Whether a part is a position, bool [parts], and such a one among those that are sent.
        self.are_positions = np.array([bool(part.position_of) for part in parts])
        self._absolute = self.are_positions[self._which]
        features = {feature.name: feature for feature in contract.features}
        self._low, self._high = (np.array(
            [getattr(features[part.change_of] if part.change_of else part, end)
             for part in chosen], np.float64) for end in ('low', 'high'))
        self._step = np.array([part.step or np.inf for part in chosen], np.float64)
        self._lead = np.array([2.0 * part.step or part.high - part.low for part in chosen])
        self._sent: NDArray[np.float64] | None = None
        self._ticked: NDArray[np.float64] | None = None
        # Where the robot was before anything was sent.
        self._began: NDArray[np.float64] | None = None

    def forget(self, values: Mapping[str, float] | None = None) -> None:
        """Begin an episode: the next change is from where the robot is.

        ``values``: from which it is moved by what is sent only; None: by others.
        """
        self._sent = self._ticked = None
        self._began = None if values is None else self._measured(values)

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
        found = self._wanted(action, values)
        if self.doubt(values) or not np.isfinite(found).all():
            before = self._began if self._sent is None else self._sent
            if len(self._which) == len(action) or before is None or not np.isfinite(before).all():
                return None
            # It stays, but wheels beside it have to get their command: the neutral one, perhaps.
            found = before
        self._sent = found
        sent: NDArray[np.float64] = action.copy()
        sent[self._which] = found
        return sent

    def doubt(self, values: Mapping[str, float]) -> str:
        """Return which feature is further from the position sent before than it can be, or ''."""
        before = self._began if self._sent is None else self._sent
        if before is None:
            return ''
        measured = self._measured(values)
        for index in np.flatnonzero(np.abs(measured - before) > _BELIEVED * self._lead):
            return (f'{self._names[index]}: {measured[index]:.3g} cannot be: it '
                    f'{"was" if self._sent is None else "was sent to"} {before[index]:.3g}')
        return ''

    def allowed(
        self, action: NDArray[np.float64], values: Mapping[str, float],
    ) -> NDArray[np.float64]:
        """Return an action whose positions are what would be sent, also of those that stay."""
        if not self.are_positions.any():
            return action
        found: NDArray[np.float64] = action.copy()
        found[self.are_positions] = self._wanted(action, values)[self._absolute]
        return found

    def moved(
        self, action: NDArray[np.float64], values: Mapping[str, float],
    ) -> NDArray[np.float64]:
        """Return an action of which a person has given changes for positions; 0 is to stay."""
        if not self.are_positions.any():
            return action
        found: NDArray[np.float64] = action.copy()
        begin = self._begin(self._ticked, values)[self._absolute]
        change = np.nan_to_num(action[self.are_positions])
        found[self.are_positions] = np.where(change == 0.0, np.nan, begin + change)
        return found

    def _begin(
        self, sent: NDArray[np.float64] | None, values: Mapping[str, float],
    ) -> NDArray[np.float64]:
        return self._measured(values) if sent is None else sent

    def _measured(self, values: Mapping[str, float]) -> NDArray[np.float64]:
        return np.array([values.get(name, np.nan) for name in self._names])

    def _wanted(
        self, action: NDArray[np.float64], values: Mapping[str, float],
    ) -> NDArray[np.float64]:
        given, measured = action[self._which], self._measured(values)
        begin = self._begin(self._ticked, values)
        wanted = np.where(self._absolute, np.clip(given, begin - self._step, begin + self._step),
                          begin + given)
        stays = np.where(self._absolute, np.isnan(given), not given[~self._absolute].any())
        wanted = np.where(stays, self._begin(self._sent, values), wanted)
        before = self._begin(self._sent, values)
        wanted = np.clip(wanted, np.minimum(self._low, before), np.maximum(self._high, before))
        found: NDArray[np.float64] = np.clip(wanted, measured - self._lead, measured + self._lead)
        return found
