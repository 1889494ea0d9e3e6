"""
Sums over several learners, each of which has a part of one batch.

What a loss divides by, the statistics that it standardises with and the gradients are sums; with
these taken over all learners, their step is the one that a single learner would make from the
joined batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

__all__ = ['Group', 'GroupError', 'masked_mean', 'standardized']


class GroupError(RuntimeError):
    """The group is broken: it must be left, and met again; the message says who is missing."""


class Group:
    """
    One learner alone: a sum over all is its own.

    Attributes:
        rank: which of the learners this one is.
        size: how many there are.
    """

    rank = 0
    size = 1

    def sum(self, numbers: Tensor) -> Tensor:
        """Return the sum of ``numbers`` over all learners; nothing flows back through it."""
        return numbers.detach()

    def least(self, number: int) -> int:
        """Return the smallest ``number`` of all learners."""
        return number

    def add_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Add up the gradients of all learners, in place."""

    def broadcast(self, data: bytes) -> bytes:
        """Return the ``data`` of the first learner; what the others give is ignored."""
        return data

    def gather(self, text: str) -> list[str]:
        """Return the ``text`` of every learner, in the order of their ranks."""
        return [text]

    def close(self) -> None:
        """Leave the others."""


def masked_mean(values: Tensor, mask: Tensor, group: Group) -> Tensor:
    """
    Return this learner's part of the mean over all learners of ``values`` where ``mask`` is 1.

    The sum of all learners' parts is the mean; so is the sum of their gradients its gradient.

    Args:
        values: float [...].
        mask: float [...] of 0 and 1.
        group: of the learners.
    """
    return (values * mask).sum() / group.sum(mask.sum()).clamp(min=1.0)


def standardized(values: Tensor, mask: Tensor, group: Group) -> Tensor:
    """Return values of mean 0 and deviation 1, over all learners, where ``mask`` is 1; else 0."""
    centered = values - group.sum(masked_mean(values, mask, group))
    deviation = group.sum(masked_mean(centered.square(), mask, group)).sqrt()
    return centered / (deviation + 1e-8) * mask
