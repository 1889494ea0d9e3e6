"""Unrolls of demonstrations, for a learner without actors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vdl_ros.rl.acting.flow_control import FlowStats
from vdl_ros.rl.data.demonstrations import Demonstrations
from vdl_ros.rl.data.unroll import Unroll, UnrollSchema

__all__ = ['DemonstrationInbox']

_ACTOR = 'demonstrations'


class DemonstrationInbox:
    """
    An inbox whose unrolls are the steps of one update.

    Their steps are drawn in a random order, each once before any comes again. What does
    not belong to demonstrations, such as rewards, is 0.
    """

    def __init__(
        self, demonstrations: Demonstrations, schema: UnrollSchema, batch: int, seed: int,
        version: Callable[[], int], flow_stats: FlowStats,
    ) -> None:
        """
        Draw from ``demonstrations``.

        Args:
            demonstrations: that fit the spaces of ``schema``.
            schema: of the unrolls.
            batch: steps of an unroll at least.
            seed: of the order.
            version: returns the version of the policy that learns.
            flow_stats: counts the unrolls.
        """
        self._demonstrations, self._schema = demonstrations, schema
        self._columns = -(-batch // schema.unroll_length)
        self._random = np.random.default_rng(seed)
        self._order: NDArray[np.int64] = np.zeros(0, np.int64)
        self._version, self._flow_stats = version, flow_stats
        self._sequence = 0

    @property
    def waiting(self) -> int:
        """Return the number of unrolls that wait."""
        return 0

    def get(self, timeout: float) -> Unroll:
        """Return an unroll."""
        steps, columns = self._schema.unroll_length, self._columns
        rows = self._draw(steps * columns).reshape(steps, columns)
        observations = self._demonstrations.observations[rows]
        arrays = {
            # What follows an action is not used.
            'observations': np.concatenate([observations, observations[-1:]]),
            'actions': self._demonstrations.actions[rows],
            'is_reset': np.zeros((steps + 1, columns), np.bool_),
            'rewards': np.zeros((steps, columns), np.float32),
            'terminated': np.zeros((steps, columns), np.bool_),
            'truncated': np.zeros((steps, columns), np.bool_),
            'behaviour_log_probs': np.zeros((steps, columns), np.float32)}
        unroll = Unroll(arrays, _ACTOR, 0, self._sequence, self._version())
        self._flow_stats.arrive(_ACTOR, 0, self._sequence)
        self._sequence += 1
        return unroll

    def _draw(self, count: int) -> NDArray[np.int64]:
        """Return the next rows of the demonstrations, int64 [count]."""
        while len(self._order) < count:
            more = self._random.permutation(len(self._demonstrations.observations))
            self._order = np.concatenate([self._order, more])
        drawn, self._order = self._order[:count], self._order[count:]
        return drawn
