"""Collective operations of several learners, each of which has a part of one batch.

The divisor of a loss, the statistics for standardising and the gradients are sums over all
learners; so their step is the step that a single learner would make from the joined batch.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


class GroupError(RuntimeError):
    """The group is broken and must be joined anew; the message names who is missing."""


class MissingError(GroupError):
    """Not all learners have arrived yet: the same process may wait for them again."""


class Group:
    """The group of one learner alone: each operation returns its own input."""

    rank = 0
    size = 1

    def all_reduce_sum(self, numbers: Tensor) -> Tensor:
        """Return the sum of ``numbers`` over all learners, detached."""
        return numbers.detach()

    def all_reduce_min(self, number: int) -> int:
        return number

    def all_reduce_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Sum the gradients of all learners, in place."""

    def broadcast(self, data: bytes) -> bytes:
        """Return the ``data`` of learner 0; the other learners' data are ignored."""
        return data

    def all_gather(self, text: str) -> list[str]:
        """Return the ``text`` of every learner, in the order of their ranks."""
        return [text]

    def close(self) -> None:
        """Leave the group."""


def masked_mean(values: Tensor, mask: Tensor, group: Group) -> Tensor:
    """Return this learner's part of the mean over all learners of ``values`` where ``mask`` is 1.

    The sum of all learners' parts is the mean; the sum of their gradients is its gradient.
    """
    return (values * mask).sum() / group.all_reduce_sum(mask.sum()).clamp(min=1.0)


def standardized(values: Tensor, mask: Tensor, group: Group) -> Tensor:
    """Return values with mean 0 and deviation 1 over all learners where ``mask`` is 1; else 0."""
    centered = values - group.all_reduce_sum(masked_mean(values, mask, group))
    deviation = group.all_reduce_sum(masked_mean(centered.square(), mask, group)).sqrt()
    return centered / (deviation + 1e-8) * mask


def explained_variance(values: Tensor, returns: Tensor, valid: Tensor, group: Group) -> Tensor:
    """Return 1 - Var(returns - values) / Var(returns) over all learners' valid steps, float64 [].

    1: the values predict the returns; 0: no better than a constant; NaN if all returns are equal.
    """
    pair = torch.stack([returns, returns - values]).where(valid, 0.0).double().flatten(1)
    moments = group.all_reduce_sum(torch.cat([
        valid.sum().double().expand(2), pair.sum(1), pair.square().sum(1)]))
    count, sums, squares = moments.view(3, 2)
    # 0 / 0 without a valid step is NaN, which is not greater than 0.
    variance, error = (squares / count - (sums / count).square()).unbind()
    return torch.where(variance > 0, 1.0 - error / variance, math.nan)


class DeltaExchange:
    """Adds the mean change of all learners' weights after ``period`` updates of each."""

    def __init__(self, network: nn.Module, period: int, group: Group) -> None:
        self._parameters = [each for each in network.parameters() if each.requires_grad]
        self._period = period
        self._group = group
        self.restart()

    def restart(self) -> None:
        """Take the present weights, which all learners have, as those of the last exchange."""
        self._updates = 0
        self._base = self._weights()

    def after_update(self) -> None:
        """Exchange the changes, if it is time; GroupError: another learner is gone."""
        self._updates += 1
        if self._updates < self._period:
            return
        change = self._weights() - self._base
        mean = self._group.all_reduce_sum(change) / self._group.size
        vector_to_parameters(self._base + mean, self._parameters)
        self.restart()

    def _weights(self) -> Tensor:
        return parameters_to_vector(self._parameters).detach().clone()
