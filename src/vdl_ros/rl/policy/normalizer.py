"""Running mean and deviation of numbers, kept in a module so that they travel with its weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

__all__ = ['Normalizer']

# Beyond so many deviations, a number is clipped: the first ones seen say little of the rest.
_CLIP = 10.0


class Normalizer(nn.Module):
    """
    Gives numbers mean 0 and deviation 1, by all that it has seen (Chan et al. 1979).

    Before the first :meth:`see` it only clips.
    """

    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, shape: Sequence[int] = ()) -> None:
        """Start with nothing seen; each number of ``shape`` has a mean of its own."""
        super().__init__()
        self.register_buffer('count', torch.zeros(1, dtype=torch.float64))
        self.register_buffer('mean', torch.zeros(tuple(shape), dtype=torch.float64))
        self.register_buffer('variance', torch.ones(tuple(shape), dtype=torch.float64))

    def forward(self, numbers: Tensor) -> Tensor:
        """Return [..., *shape] with mean 0 and deviation 1, clipped to 10 deviations."""
        scaled = (numbers - self.mean.to(numbers)) / self._deviation.to(numbers)
        return scaled.clamp(-_CLIP, _CLIP)

    def undo(self, normalized: Tensor) -> Tensor:
        """Return [..., *shape] as they were before they were normalised."""
        return normalized * self._deviation.to(normalized) + self.mean.to(normalized)

    @property
    def _deviation(self) -> Tensor:
        return (self.variance + 1e-8).sqrt()

    @torch.no_grad()
    def see(self, numbers: Tensor, total: Callable[[Tensor], Tensor] = lambda each: each) -> None:
        """
        Take numbers into account.

        Args:
            numbers: [N, *shape].
            total: returns the sum of a tensor over all learners.
        """
        numbers = numbers.double()
        shape = self.mean.shape
        count = total(torch.full_like(self.count, len(numbers)))
        # Without a branch on how many came, which a device would be waited for: of none, the share
        # is 0.
        some = count.clamp(min=1.0)
        mean = total(numbers.sum(0)) / some
        variance = (total((numbers - mean).square().sum(0)) / some).reshape(shape)
        share = count / (self.count + count).clamp(min=1.0)
        moved = mean - self.mean
        self.variance += (share * (variance - self.variance
                                   + (1 - share) * moved.square())).reshape(shape)
        self.mean += (share * moved).reshape(shape)
        self.count += count
