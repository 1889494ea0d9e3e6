"""
Reaction time of an agent in an environment that does not wait for it.

It is the sum of four parts, for each action (as in OpenAI Universe's starter agent):

===============  ==============================================================================
thinking         from the return of an observation to the agent until it gives its action
processing       from the arrival of an observation until its return to the agent
action_lag       from sending an action until it is applied
observation_lag  from the making of an observation until its arrival
===============  ==============================================================================

A vector environment on its own clock has them in ``info['reaction_time']``, float32 [B, 4], of the
action of that step, and in ``info['late_actions']``, int32 [B], how many of its steps held the
action before while this one was not there.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ['PARTS', 'ReactionTime', 'in_ms']

#: Names of the parts, in the order of the columns of :meth:`ReactionTime.take`.
PARTS = ('thinking', 'processing', 'action_lag', 'observation_lag')


class ReactionTime:
    """
    The parts of the reaction time of the latest actions.

    Attributes:
        count: number of actions that were added so far.
        rejected: number of actions that were not added, because a part was negative, as after a
            clock was set, or not finite.
    """

    def __init__(self, window: int = 10_000) -> None:
        """
        Start without actions.

        Args:
            window: number of latest actions that are kept; it bounds the memory, 32 bytes each.
        """
        self.count = self.rejected = 0
        self._parts: NDArray[np.float64] = np.empty((window, len(PARTS)))
        self._taken = 0

    def add(
        self, *, thinking: float = 0.0, processing: float = 0.0, action_lag: float = 0.0,
        observation_lag: float = 0.0,
    ) -> None:
        """Add the parts of one action, s."""
        self.extend([(thinking, processing, action_lag, observation_lag)])

    def extend(self, parts: ArrayLike) -> None:
        """Add the parts of N actions, s, [N, 4] in the order of :data:`PARTS`."""
        rows = np.asarray(parts, np.float64).reshape(-1, len(PARTS))
        good = (np.isfinite(rows) & (rows >= 0)).all(axis=1)
        self.rejected += len(rows) - int(good.sum())
        rows = rows[good]
        self.count += len(rows)
        latest = rows[-len(self._parts):]
        self._parts[np.arange(self.count - len(latest), self.count) % len(self._parts)] = latest

    def take(self) -> NDArray[np.float64]:
        """Return the parts that are new since the last call, s, [N, 4], the oldest first."""
        first = max(self._taken, self.count - len(self._parts))
        self._taken = self.count
        return self._parts[np.arange(first, self.count) % len(self._parts)]

    def summary(self) -> dict[str, float]:
        """
        Return figures of the latest actions, s; {} before the first.

        Returns:
            The mean of each part by its name, the sum of these means as ``reaction_time``, and
            percentiles of the actions' sums as ``reaction_time_p50`` and ``reaction_time_p99``.
        """
        parts = self._parts[:self.count]
        if not len(parts):
            return {}
        sums = parts.sum(axis=1)
        p50, p99 = np.percentile(sums, (50, 99))
        return {**dict(zip(PARTS, map(float, parts.mean(axis=0)), strict=True)),
                'reaction_time': float(sums.mean()),
                'reaction_time_p50': float(p50), 'reaction_time_p99': float(p99)}


def in_ms(summary: Mapping[str, float]) -> dict[str, float]:
    """Return a summary in ms: the parts, and ``mean``, ``p50`` and ``p99`` of their sum."""
    names = {'reaction_time': 'mean', 'reaction_time_p50': 'p50', 'reaction_time_p99': 'p99'}
    return {names.get(name, name): round(1e3 * seconds, 3)
            for name, seconds in summary.items()}
