"""
The action distributions of ``distributions.py`` without PyTorch: sampling and log-probabilities.

Parameters are float32 [B, size]; actions int64 [B] or [B, A], or float32 [B, A].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from vdl_ros.rl.algorithm_config import AlgorithmConfig, DqnConfig, SacConfig

__all__ = ['NumpyDistribution', 'make_distribution']

Array = NDArray[Any]
_LOG_2PI = math.log(2 * math.pi)
# As in distributions.py.
_NEVER = -1e9
_LOG_STD = (-5.0, 2.0)
_SMALLEST = np.finfo(np.float32).tiny


class NumpyDistribution(Protocol):
    """
    A family of distributions.

    Attributes:
        size: number of parameters of one distribution.
        num_inputs: E, size of an action as input of a network.
    """

    size: int
    num_inputs: int

    def sample(self, parameters: Array, random: np.random.Generator) -> tuple[Array, Array]:
        """Return actions and their log-probabilities, or log-densities, float32 [B]."""

    def to_environment(self, actions: Array) -> Array:
        """Return the actions for the environment, before they are clipped to its bounds."""

    def to_network(self, actions: Array) -> Array:
        """Return ``actions`` as input of a network, float32 [B, E]."""


def make_distribution(
    space: gymnasium.Space[Any], kind: str, algorithm_config: AlgorithmConfig | None,
) -> NumpyDistribution | None:
    """
    Return the family for a space of actions; None if only ``distributions.py`` may have one.

    Args:
        space: of one environment.
        kind: of a Box, 'gaussian' or 'squashed'.
        algorithm_config: with those of dqn the family is of action values; sac squashes.
    """
    if isinstance(space, gymnasium.spaces.Discrete) and space.start == 0:
        if isinstance(algorithm_config, DqnConfig):
            return ActionValues(int(space.n), algorithm_config.exploration == 'boltzmann')
        return Categorical([int(space.n)])
    of_values = isinstance(algorithm_config, DqnConfig)
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        good = len(space.shape) == 1 and not space.start.any() and not of_values \
            and not isinstance(algorithm_config, SacConfig)
        return MultiCategorical(space.nvec.tolist()) if good else None
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1 \
            or space.dtype.kind != 'f' or of_values:
        return None
    if kind == 'squashed' or isinstance(algorithm_config, SacConfig):
        return SquashedGaussian(space.low, space.high) if space.is_bounded() else None
    return DiagonalGaussian(space.shape[0])


def _one_hot(actions: Array, size: int) -> Array:
    """Return 1 for the action and 0 for the others, float32 [B, size]."""
    rows = np.zeros((len(actions), size), np.float32)
    rows[np.arange(len(actions)), actions] = 1.0
    return rows


def _log_softmax(logits: Array) -> Array:
    """Return the logarithm of probabilities, over the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    logs: Array = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return logs


def _sample(logits: Array, random: np.random.Generator) -> tuple[Array, Array]:
    """Return int64 [...] by the Gumbel-max trick, and the log-probabilities, float32 [...]."""
    # One draw of ten million is 0, whose logarithm would choose an action of probability 0.
    noise = random.standard_exponential(logits.shape, np.float32)
    actions = (logits - np.log(np.maximum(noise, _SMALLEST))).argmax(-1)
    chosen = np.take_along_axis(_log_softmax(logits), actions[..., None], -1)[..., 0]
    return actions, chosen


class Categorical:
    """One of the actions; the parameters are logits."""

    def __init__(self, sizes: Sequence[int]) -> None:
        """Create the family for these numbers of actions, one for each part."""
        self.size = self.num_inputs = sum(sizes)

    def sample(self, parameters: Array, random: np.random.Generator) -> tuple[Array, Array]:
        """Return int64 [B] and float32 [B]."""
        return _sample(parameters, random)

    def to_environment(self, actions: Array) -> Array:
        """Return ``actions``."""
        return actions

    def to_network(self, actions: Array) -> Array:
        """Return 1 for the action and 0 for the others."""
        return _one_hot(actions, self.num_inputs)


class MultiCategorical(Categorical):
    """A parts, each one of its actions, independently; the parameters are their logits."""

    def __init__(self, sizes: Sequence[int]) -> None:
        """Create the family for parts of these numbers of actions."""
        super().__init__(sizes)
        self._sizes = list(sizes)
        self._starts = np.cumsum([0, *sizes[:-1]])

    def sample(self, parameters: Array, random: np.random.Generator) -> tuple[Array, Array]:
        """Return int64 [B, A] and float32 [B]."""
        parts = np.full((len(parameters), len(self._sizes), max(self._sizes)), _NEVER, np.float32)
        for part, (start, size) in enumerate(zip(self._starts, self._sizes, strict=True)):
            parts[:, part, :size] = parameters[:, start:start + size]
        actions, log_probs = _sample(parts, random)
        return actions, log_probs.sum(-1)

    def to_network(self, actions: Array) -> Array:
        """Return 1 for the action of each part and 0 for the others."""
        inputs = np.zeros((len(actions), self.num_inputs), np.float32)
        np.put_along_axis(inputs, actions + self._starts, 1.0, -1)
        return inputs


class ActionValues(Categorical):
    """
    The parameters are action values, then epsilon, or the temperature of a softmax of them.

    See EpsilonGreedy and Boltzmann in ``distributions.py``.
    """

    def __init__(self, actions: int, boltzmann: bool) -> None:
        """Create the family for this number of actions."""
        super().__init__([actions + 1])
        self.num_inputs, self._boltzmann = actions, boltzmann

    def sample(self, parameters: Array, random: np.random.Generator) -> tuple[Array, Array]:
        """Return int64 [B] and float32 [B]."""
        values, last = parameters[:, :-1], parameters[:, -1:]
        if self._boltzmann:
            return _sample(values / np.maximum(last, np.float32(1e-9)), random)
        best = _one_hot(values.argmax(-1), self.num_inputs)
        with np.errstate(divide='ignore'):
            # With epsilon 0 all others have probability 0.
            logits = np.log(last / self.num_inputs + (1 - last) * best)
        return _sample(logits, random)


class DiagonalGaussian:
    """A normal distribution in each dimension; the parameters are means, then log-stds."""

    def __init__(self, dimensions: int) -> None:
        """Create the family for actions with ``dimensions`` elements."""
        self.size, self.num_inputs = 2 * dimensions, dimensions

    def sample(self, parameters: Array, random: np.random.Generator) -> tuple[Array, Array]:
        """Return float32 [B, A] and float32 [B]."""
        mean, log_std = np.split(parameters, 2, -1)
        log_std = log_std.clip(*_LOG_STD)
        noise = random.standard_normal(mean.shape, np.float32)
        actions = mean + np.exp(log_std) * noise
        return actions, (-0.5 * (np.square(noise) + np.float32(_LOG_2PI)) - log_std).sum(-1)

    def to_environment(self, actions: Array) -> Array:
        """Return ``actions``."""
        return actions

    def to_network(self, actions: Array) -> Array:
        """Return ``actions``."""
        return actions


class SquashedGaussian(DiagonalGaussian):
    """A normal distribution whose samples tanh squashes into the environment's range."""

    def __init__(self, low: Array, high: Array) -> None:
        """Create the family for actions from ``low`` to ``high``, each [A] and finite."""
        super().__init__(len(low))
        self._center, self._scale = (high + low) / 2, (high - low) / 2

    def to_environment(self, actions: Array) -> Array:
        """Return [B, A] from low to high."""
        squashed: Array = (self._center + self._scale * np.tanh(actions)).astype(
            self._center.dtype)
        return squashed
