"""What an attack sees of a network: its output and a loss, in float32, differentiable."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vdl_ros.rl.policy.distributions import Categorical, DiagonalGaussian, EpsilonGreedy
from vdl_ros.rl.policy.policy import Output, Policy

__all__ = ['PolicyVictim', 'Seen', 'Victim']


class Seen(NamedTuple):
    """
    What a policy sees in a step of B environments.

    Attributes:
        image: float32 [B, ...], the image scaled to [0, 1], or all numbers.
        numbers: float32 [B, V], numbers beside an image; None if there are none.
        is_reset: bool [B], where an episode starts.
        state: float32 [B, S], the state of the policy before.
    """

    image: Tensor
    numbers: Tensor | None
    is_reset: Tensor
    state: Tensor

    def rows(self, index: Tensor) -> Seen:
        """Return what is seen in the environments of ``index``, int64 [N]."""
        return Seen(*(None if each is None else each[index] for each in self))  # type: ignore[arg-type]


class Victim(Protocol):
    """A network whose inputs are perturbed; of each method, see :class:`PolicyVictim`."""

    @property
    def has_state(self) -> bool:
        """Whether the network is recurrent."""

    @property
    def unit(self) -> Tensor:
        """Unit of perturbations, float32, of the image's shape or []."""

    @property
    def is_flat_at_best(self) -> bool:
        """Whether the gradient of :meth:`loss` is 0 at the image itself."""

    def initial_state(self, batch: int) -> Tensor:
        """Return the state before the first observation, [batch, S]."""

    def output(self, image: Tensor, seen: Seen) -> Output:
        """Return the output for ``image``, [B, ...], instead of the one seen."""

    def best_actions(self, output: Output) -> Tensor:
        """Return what the network decides, [B] or [B, A]."""

    def loss(self, output: Output, actions: Tensor) -> Tensor:
        """Return what an attack makes larger, float [B]."""

    def append_last_action(self, state: Tensor, actions: NDArray[Any], rewards: Any) -> Tensor:
        """Return ``state`` [B, S] with actions and rewards of the last step."""


class PolicyVictim:
    """
    A policy whose observations are perturbed, or whose gradients are used for that.

    It shares the policy's weights, and computes in float32 where the policy may act in bfloat16.
    """

    def __init__(self, policy: Policy) -> None:
        """Look at ``policy``, a policy on the CPU."""
        self._policy = copy.deepcopy(policy).requires_grad_(False)
        # In the same memory, so that weights which the policy loads count here too.
        shared = dict(policy.named_parameters()) | dict(policy.named_buffers())
        for name, tensor in (*self._policy.named_parameters(), *self._policy.named_buffers()):
            tensor.data = shared[name].data
        self._policy.precision = torch.float32
        self.has_state = policy.state_size > 0

    def initial_state(self, batch: int) -> Tensor:
        """Return the state before the first observation, [batch, S]."""
        return self._policy.initial_state(batch).detach()

    @property
    def unit(self) -> Tensor:
        """Unit of perturbations, float32, of the image's shape or []: what epsilon is of."""
        normalizer = self._policy.normalizer
        if normalizer is None or self._policy.joint is not None:
            return torch.ones(())
        return normalizer.deviation.float().reshape(self._policy.observation_shape)

    def output(self, image: Tensor, seen: Seen) -> Output:
        """Return the policy's output for ``image``, [B, ...], instead of the one seen."""
        output = self._policy(
            image[None], seen.is_reset[None], seen.state, numbers=seen.numbers)
        return Output(output.parameters[0], output.values[0], output.state)

    def best_actions(self, output: Output) -> Tensor:
        """Return the most likely actions, [B] or [B, A]."""
        return self._policy.distribution.mode(output.parameters.detach())

    def loss(self, output: Output, actions: Tensor) -> Tensor:
        """
        Return what an attack makes larger, float [B]: how unlikely ``actions`` are.

        For one discrete action it is m, the logarithm of the odds against it. The cross-entropy
        is log(1 + e^m), so its gradient has the same direction, but it is rounded to 0 where a
        policy is sure. For others it is the negative logarithm of the probability, or density.
        Action values count as logits, as by Huang et al. 2017, arXiv:1702.02284.
        """
        distribution, logits = self._policy.distribution, output.parameters
        if isinstance(distribution, EpsilonGreedy):
            logits = logits[..., :-1]
        elif type(distribution) is not Categorical:
            return -distribution.log_prob(logits, actions)
        index = actions.unsqueeze(-1)
        others = logits.scatter(-1, index, -torch.inf).logsumexp(-1)
        return others - logits.gather(-1, index).squeeze(-1)

    @property
    def is_flat_at_best(self) -> bool:
        """Whether the gradient of :meth:`loss` is 0 where the best actions were chosen."""
        return isinstance(self._policy.distribution, DiagonalGaussian)

    def append_last_action(self, state: Tensor, actions: NDArray[Any], rewards: Any) -> Tensor:
        """Return ``state`` [B, S] with actions and rewards [B], if they are inputs."""
        return self._policy.append_last_action(
            state, torch.from_numpy(np.asarray(actions)),
            torch.from_numpy(np.asarray(rewards, np.float32)))
