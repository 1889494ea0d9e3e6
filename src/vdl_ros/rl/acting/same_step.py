"""Unrolls of environments that reset themselves in the step that ends an episode (SAME_STEP)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vdl_ros.rl.acting.step import Step
from vdl_ros.rl.data.episode_returns import EpisodeCounter, FinishedEpisode
from vdl_ros.rl.data.unroll import Arrays, UnrollSchema

# Rows that a column may be ahead of an unroll, also of a shorter one.
_AHEAD = 16


class SameStepColumns:
    """Records the steps of such environments as those of others are, which reset a step later.

    The end of an episode takes two rows of an environment's column: the last step, and one into
    the first observation of the next episode, as if the environment had ignored an action. So
    columns fill at their own speed, and rows beyond an unroll begin the next one. An environment
    that is an unroll ahead of the slowest, at least 16 steps, is left out until its next episode.
    """

    def __init__(self, schema: UnrollSchema, observation: NDArray[Any], state: Any) -> None:
        self._schema, self._length = schema, schema.unroll_length
        self._room = self._length + max(self._length, _AHEAD)
        batch = len(observation)
        # With a row after the end of an episode.
        more = self._room + 1 - self._length
        self._arrays: Arrays = {
            name: np.zeros((len(each) + more, *each.shape[1:]), each.dtype)
            for name, each in schema.empty(batch).items() if name != 'state'}
        self._arrays['observations'][0], self._arrays['is_reset'][0] = observation, True
        # Of the policy, before the first row of this unroll and of the next ones.
        self._states = np.stack([np.asarray(state)] * ((self._room + 1) // self._length + 1))
        # Of each column the number of rows, and whether the environment's steps are recorded.
        self._rows = np.zeros(batch, np.int64)
        self._chosen: Arrays = {}
        self._recorded = np.ones(batch, np.bool_)
        self._episodes = EpisodeCounter(batch)

    def choose(self, actions: NDArray[Any], log_probs: NDArray[Any]) -> NDArray[Any]:
        """Take the actions of the step that is added next; return them as they are recorded."""
        actions = actions.astype(self._arrays['actions'].dtype, copy=False)
        self._chosen = {'actions': actions, 'behaviour_log_probs': log_probs}
        return actions

    def add(self, step: Step, state: Any) -> bool:
        """Record a step, after which the policy has ``state``; return whether all have T rows."""
        ended, length, before = step.is_reset, self._length, self._rows.copy()
        recorded = self._recorded & (before < self._room)
        values = self._chosen | {
            'rewards': step.reward, 'terminated': step.terminated, 'truncated': step.truncated,
            **step.extras}
        self._append(recorded, values, step.observation if step.final is None else step.final)
        # Those that are left out have such a row also where the others would wait for them.
        begins = ended & (recorded | (before < self._room))
        self._append(begins | (~recorded & (before < length)), self._chosen,
                     step.observation, is_reset=True)
        self._recorded = recorded | begins
        if self._schema.state_size:
            # A step may have filled two unrolls of one row.
            for number in (before // length + 1, self._rows // length):
                full = np.flatnonzero(
                    (number > before // length) & (number * length <= self._rows))
                self._states[number[full], full] = np.asarray(state)[full]
        return bool(self._rows.min() >= length)

    def _append(
        self, where: NDArray[np.bool_], values: Mapping[str, NDArray[Any]],
        observations: NDArray[Any], *, is_reset: bool = False,
    ) -> None:
        """Append a row to the columns ``where``; what is not among ``values`` is 0."""
        index = np.flatnonzero(where)
        if not index.size:
            return
        row = self._rows[index]
        for name, each in values.items():
            if name not in self._arrays:
                self._arrays[name] = np.zeros(
                    (len(self._arrays['rewards']), *each.shape), each.dtype)
            self._arrays[name][row, index] = each[index]
        self._arrays['observations'][row + 1, index] = observations[index]
        self._arrays['is_reset'][row + 1, index] = is_reset
        self._rows[index] += 1

    def take(self) -> tuple[Arrays, list[FinishedEpisode]]:
        """Return the first T rows, as ``Actor.unroll``, and keep the others for the next."""
        length, stop = self._length, int(self._rows.max()) + 1
        arrays: Arrays = {}
        for name, each in self._arrays.items():
            arrays[name] = each[:length + (name in ('observations', 'is_reset'))]
            kept = self._arrays[name] = np.zeros_like(each)
            rest = each[length:stop]
            kept[:len(rest)] = rest
        if self._schema.state_size:
            arrays['state'] = self._states[0]
            self._states = np.concatenate([self._states[1:], self._states[-1:]])
        self._rows -= length
        finished = self._episodes.add(arrays)
        encoded = self._schema.encode(arrays.pop('observations'), arrays['is_reset'])
        return arrays | encoded, finished
