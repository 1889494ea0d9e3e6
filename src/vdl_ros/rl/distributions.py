"""Policies' action distributions, as functions of the numbers a network puts out."""

from __future__ import annotations

import math
from typing import Any, Protocol

import gymnasium
import torch
from torch import Tensor
from torch.nn import functional

__all__ = ['ActionDistribution', 'Categorical', 'DiagonalGaussian', 'for_space']

_LOG_2PI = math.log(2 * math.pi)
# exp(-5) to exp(2): a policy neither collapses to a point nor leaves float32.
_LOG_STD = (-5.0, 2.0)


class ActionDistribution(Protocol):
    """
    A family of distributions with ``size`` parameters.

    ``parameters`` are float [..., size]; a sample is int64 [...] (discrete) or float [..., A].
    """

    size: int

    def sample(self, parameters: Tensor) -> Tensor:
        """Return one action for each set of parameters."""

    def mode(self, parameters: Tensor) -> Tensor:
        """Return the most likely action."""

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        """Return the log-probability, or log-density, of ``actions``, float [...]."""

    def entropy(self, parameters: Tensor) -> Tensor:
        """Return the entropy in nats, float [...]."""


class Categorical:
    """One of ``size`` actions; the parameters are logits."""

    def __init__(self, size: int) -> None:
        """Make the family for ``size`` actions."""
        self.size = size

    def sample(self, parameters: Tensor) -> Tensor:
        """Return int64 [...], by the Gumbel-max trick: one pass, no normalisation."""
        noise = torch.empty_like(parameters).exponential_().log_().neg_()
        return (parameters + noise).argmax(-1)

    def mode(self, parameters: Tensor) -> Tensor:
        """Return int64 [...]."""
        return parameters.argmax(-1)

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        """Return float [...]."""
        log_probs = functional.log_softmax(parameters, -1)
        return log_probs.gather(-1, actions.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """Return float [...]."""
        log_probs = functional.log_softmax(parameters, -1)
        return -(log_probs.exp() * log_probs).sum(-1)


class DiagonalGaussian:
    """
    A normal distribution in each action dimension; the parameters are means, then log-stds.

    Actions are not clipped here: the environment clips what it receives, and the log-density is
    that of the action drawn.
    """

    def __init__(self, dimensions: int) -> None:
        """Make the family for actions of ``dimensions`` numbers."""
        self.size = 2 * dimensions

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = parameters.chunk(2, -1)
        return mean, log_std.clamp(*_LOG_STD)

    def sample(self, parameters: Tensor) -> Tensor:
        """Return float [..., A]."""
        mean, log_std = self._split(parameters)
        return mean + log_std.exp() * torch.randn_like(mean)

    def mode(self, parameters: Tensor) -> Tensor:
        """Return float [..., A]."""
        return self._split(parameters)[0]

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        """Return float [...]."""
        mean, log_std = self._split(parameters)
        scaled = (actions - mean) * (-log_std).exp()
        return (-0.5 * (scaled.square() + _LOG_2PI) - log_std).sum(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """Return float [...]."""
        return (self._split(parameters)[1] + 0.5 * (1 + _LOG_2PI)).sum(-1)


def for_space(space: gymnasium.Space[Any]) -> ActionDistribution:
    """
    Return the family that acts in ``space``.

    Raises:
        ValueError: neither Discrete (from 0) nor a one-dimensional Box of floats.
    """
    if isinstance(space, gymnasium.spaces.Discrete) and space.start == 0:
        return Categorical(int(space.n))
    if isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 1 \
            and space.dtype.kind == 'f':
        return DiagonalGaussian(space.shape[0])
    raise ValueError(
        f'action space {space} is not supported: Discrete from 0, or a Box of floats of shape [A]')
