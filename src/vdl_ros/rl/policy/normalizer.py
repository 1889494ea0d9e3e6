"""Normalization by running mean and variance, a module so that they are part of the weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

__all__ = ['Normalizer']

# Limit in standard deviations: statistics of few numbers are unreliable.
_CLIP = 10.0


class Normalizer(nn.Module):
    """
    Normalizes numbers to mean 0 and variance 1 by their running statistics (Chan et al. 1979).

    Before the first :meth:`update` it only clips.
    """

    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, shape: Sequence[int] = ()) -> None:
        """Keep a mean and a variance for each element of ``shape``."""
        super().__init__()
        self.register_buffer('count', torch.zeros(1, dtype=torch.float64))
        self.register_buffer('mean', torch.zeros(tuple(shape), dtype=torch.float64))
        self.register_buffer('variance', torch.ones(tuple(shape), dtype=torch.float64))

    def forward(self, numbers: Tensor) -> Tensor:
        """Return normalized numbers [..., *shape], clipped to 10 standard deviations."""
        scaled = (numbers - self.mean.to(numbers)) / self.deviation.to(numbers)
        return scaled.clamp(-_CLIP, _CLIP)

    def undo(self, normalized: Tensor) -> Tensor:
        """Return the numbers [..., *shape] before normalization."""
        return normalized * self.deviation.to(normalized) + self.mean.to(normalized)

    @property
    def deviation(self) -> Tensor:
        """Standard deviation of each number, float64 [*shape]."""
        return (self.variance + 1e-8).sqrt()

    @torch.no_grad()
    def update(
        self, numbers: Tensor, total: Callable[[Tensor], Tensor] = lambda tensor: tensor,
    ) -> None:
        """
        Update the statistics.

        Args:
            numbers: [N, *shape].
            total: returns the sum of a tensor over all learners.
        """
        numbers = numbers.double()
        shape = self.mean.shape
        count = total(torch.full_like(self.count, len(numbers)))
        # A branch on the count would wait for the device; with no numbers the share is 0.
        some = count.clamp(min=1.0)
        mean = total(numbers.sum(0)) / some
        variance = (total((numbers - mean).square().sum(0)) / some).reshape(shape)
        share = count / (self.count + count).clamp(min=1.0)
        moved = mean - self.mean
        self.variance += (share * (variance - self.variance
                                   + (1 - share) * moved.square())).reshape(shape)
        self.mean += (share * moved).reshape(shape)
        self.count += count
