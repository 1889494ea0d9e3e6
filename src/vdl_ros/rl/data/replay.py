"""Replay buffer with uniform or prioritized sampling (Schaul et al. 2016, arXiv:1511.05952).

It stores columns of unrolls, so that each observation is in memory once and a recurrent policy can
be run over the preceding steps. n-step returns are computed when a column is added. The buffer is
in host memory on any device.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vdl_ros.common.memory import free_memory
from vdl_ros.rl.data.batch import Batch
from vdl_ros.rl.data.unroll import UnrollSchema

# Share of the free memory that all replay buffers of a host may use.
_MEMORY_SHARE = 0.8


@dataclass(frozen=True)
class Sample:
    """Positions of sampled steps, int64 [N] each, and their probabilities, float [N]."""

    column: Tensor
    time: Tensor
    probabilities: Tensor


def n_step_returns(
    rewards: Tensor, terminated: Tensor, done: Tensor, discount: float, n: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return discounted sums of at most n rewards, and factor and time of the bootstrap value.

    A sum ends at the end of the episode or of the unroll. All are [T, B]: sums, float; factors,
    gamma to the number of rewards, or 0 where ``terminated``; times of the bootstrap observations,
    int64, 1 to T. ``done`` is terminated or truncated.
    """
    steps, batch = rewards.shape
    sums, factors = torch.zeros_like(rewards), torch.ones_like(rewards)
    times = torch.arange(steps)[:, None].expand(steps, batch).clone()
    going = torch.ones(steps, batch, dtype=torch.bool)
    for k in range(min(n, steps)):
        here = slice(k, steps)
        still = going[:steps - k]
        sums[:steps - k] += torch.where(still, factors[:steps - k] * rewards[here], 0.0)
        factors[:steps - k] *= torch.where(
            still, discount * (~terminated[here]).to(rewards.dtype), 1.0)
        times[:steps - k] += still
        going[:steps - k] = still & ~done[here]
        going[steps - k - 1:] = False
    return sums, factors, times


class Replay:
    """A ring buffer of columns of unrolls.

    The system assigns memory only as steps are added. Each of several learners may use its part of
    the free memory, as if all were on this host. Attributes are as of :class:`Batch`, with columns
    first, [columns, T, ...]; returns, factors and times are of :func:`n_step_returns`.

    Args:
        size: capacity in steps; ValueError: more than this learner's part of the free memory.
        n: maximum number of rewards in a return.
        priority_exponent: alpha; 0: all steps have the same probability.
    """

    def __init__(
        self, schema: UnrollSchema, size: int, discount: float, n: int, priority_exponent: float,
        learners: int = 1,
    ) -> None:
        steps, space = schema.unroll_length, schema.observation_space
        columns = max(size // steps, 1)
        actions = torch.from_numpy(schema.empty(1)['actions'][:, 0])
        # Observations and is_reset; rewards, returns, factors, times, weights; actions; state.
        column = ((steps + 1) * (math.prod(space.shape) * space.dtype.itemsize + 1)
                  + steps * (4 + 4 + 4 + 8 + 8) + actions.nbytes + 4 * schema.state_size)
        free = free_memory()
        most = int(_MEMORY_SHARE * free / learners // column)
        if columns > most:
            split = '' if learners == 1 else (
                f', split over {learners} learners, if all are on this host')
            raise ValueError(
                f'replay_size: {size} steps of {space.dtype} {list(space.shape)} need '
                f'{columns * column / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free, of which '
                f'{100 * _MEMORY_SHARE:.0f} % may be used{split}: at most {most * steps}')
        self._discount, self._n, self._alpha = discount, n, priority_exponent
        dtype = torch.from_numpy(space.sample()).dtype
        self.observations = torch.empty(columns, steps + 1, *space.shape, dtype=dtype)
        self.actions = torch.zeros(columns, *actions.shape, dtype=actions.dtype)
        self.rewards, self.returns, self.factors = (torch.zeros(columns, steps) for _ in range(3))
        self.times = torch.zeros(columns, steps, dtype=torch.int64)
        self.is_reset = torch.zeros(columns, steps + 1, dtype=torch.bool)
        self.state = torch.zeros(columns, schema.state_size)
        self._weights = torch.zeros(columns, steps, dtype=torch.float64)
        # Sums of the weights up to each step, and the last step with one, until weights change:
        # with a large replay they cost more time than an optimizer step.
        self._sums: tuple[Tensor, int] | None = None
        self._largest = 1.0
        self._next = self._filled = 0

    @property
    def steps(self) -> int:
        return int((self._weights > 0).sum())

    @property
    def full(self) -> bool:
        """Whether all columns are in use; there may be fewer valid steps than ``size``."""
        return self._filled == len(self.actions)

    @property
    def valid(self) -> Tensor:
        """[columns, T] bool, true for steps that can be sampled."""
        return self._weights > 0

    def add(self, batch: Batch, rewards: Tensor, chosen: Tensor | None = None) -> Tensor:
        """Overwrite the oldest columns with a batch; ``rewards`` [T, B] as the loss uses them.

        Of the steps only those that are ``chosen``, [T, B] bool, can be sampled; None: all.
        Returns which columns they are, int64 [B].
        """
        done = batch.terminated | batch.truncated
        # Also where a robot was lost in the middle of an episode.
        done[:-1] |= ~batch.valid[1:]
        returns, factors, times = n_step_returns(
            rewards, batch.terminated, done, self._discount, self._n)
        self._sums = None
        valid = batch.valid if chosen is None else batch.valid & chosen
        places = (self._next + torch.arange(rewards.shape[1])) % len(self.actions)
        for b, at in enumerate(places.tolist()):
            self.observations[at] = batch.observations[:, b]
            self.actions[at], self.rewards[at] = batch.actions[:, b], batch.rewards[:, b]
            self.returns[at], self.factors[at] = returns[:, b], factors[:, b]
            self.times[at] = times[:, b]
            self.is_reset[at] = batch.is_reset[:, b]
            self.state[at] = batch.state[b]
            # Its error is unknown.
            self._weights[at] = valid[:, b] * self._largest
            self._next = (at + 1) % len(self.actions)
            self._filled = max(self._filled, at + 1)
        return places

    def sample(self, count: int) -> Sample:
        """Sample ``count`` steps in proportion to their weights, with replacement."""
        weights = self._weights[:self._filled].flatten()
        if self._sums is None:
            self._sums = weights.cumsum(0), int(torch.nonzero(weights)[-1])
        totals, last = self._sums
        places = torch.searchsorted(
            totals, torch.rand(count, dtype=torch.float64) * totals[-1], right=True)
        # Rounding may lead beyond the last step with a weight.
        places = places.clamp(max=last)
        length = self._weights.shape[1]
        return Sample(places // length, places % length, (weights[places] / totals[-1]).float())

    def update_priorities(self, column: Tensor, time: Tensor, errors: Tensor) -> None:
        """Set the weights of the valid steps among these from their errors, float [N]."""
        if not self._alpha:
            return
        self._sums = None
        valid = self._weights[column, time] > 0
        column, time, errors = column[valid], time[valid], errors[valid]
        weights = (errors.double().abs() + 1e-6) ** self._alpha
        self._weights[column, time] = weights
        self._largest = max(self._largest, float(weights.max()))

    def _columns(self) -> dict[str, Tensor]:
        return {
            'observations': self.observations, 'actions': self.actions, 'rewards': self.rewards,
            'returns': self.returns, 'factors': self.factors, 'times': self.times,
            'is_reset': self.is_reset, 'state': self.state, 'weights': self._weights}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content by name; columns share memory with the buffer."""
        return {
            **{name: each[:self._filled].numpy() for name, each in self._columns().items()},
            'next': np.array(self._next), 'size': np.array(len(self.actions)),
            'largest': np.array(self._largest)}

    def _check(self, arrays: Mapping[str, NDArray[Any]]) -> int:
        """Return how many columns the arrays have; ValueError: they are of another buffer."""
        columns, own = self._columns(), self.arrays()
        if arrays.keys() != own.keys():
            raise ValueError(f'arrays {sorted(map(str, arrays.keys() ^ own.keys()))} are missing '
                             'or unknown')
        filled = len(arrays['actions']) if arrays['actions'].ndim else 0
        for name, array in own.items():
            found, shape = arrays[name], array.shape
            if name in columns:
                shape = (filled, *shape[1:])
            if found.dtype != array.dtype or found.shape != shape:
                raise ValueError(f'{name}: {found.dtype} {found.shape} is not {array.dtype} '
                                 f'{shape}')
        if (size := int(arrays['size'])) != len(self.actions):
            raise ValueError(f'replay_size: it has {size} columns, this replay '
                             f'{len(self.actions)}')
        return filled

    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore :meth:`arrays`; raise ValueError if they are of another buffer."""
        filled = self._check(arrays)
        for name, column in self._columns().items():
            column[:filled] = torch.from_numpy(arrays[name])
        # Of an earlier content, if there is any, nothing is left.
        self._weights[filled:] = 0
        self._next, self._filled = int(arrays['next']), filled
        self._sums = None
        self._largest = float(arrays['largest'])

    def add_arrays(self, arrays: Mapping[str, NDArray[Any]], chosen: NDArray[np.bool_]) -> None:
        """Add the ``chosen`` columns of :meth:`arrays`, the newest that find room.

        ValueError: they are of another buffer.
        """
        filled, room = self._check(arrays), len(self.actions) - self._filled
        # From the oldest on.
        order = np.roll(np.arange(filled), -int(arrays['next']))
        order = order[chosen[order]]
        order = order[max(0, len(order) - room):]
        end = self._filled + len(order)
        for name, column in self._columns().items():
            column[self._filled:end] = torch.from_numpy(arrays[name][order])
        self._next, self._filled = (self._next + len(order)) % len(self.actions), end
        self._sums = None
