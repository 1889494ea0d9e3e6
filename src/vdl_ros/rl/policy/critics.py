"""Critics: networks of the value of an observation and an action, beside a policy's."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vdl_ros.rl.policy.networks import make_torso, orthogonal
from vdl_ros.rl.policy.policy import Policy

__all__ = ['Critics']


class Critics(nn.Module):
    """
    Two critics whose smaller value is used (Fujimoto et al. 2018, arXiv:1802.09477).

    Each has a torso of its own for images, as the policy's, and two ReLU layers over the torso's
    features, or the numbers, and the action. The policy prepares their inputs, so they see
    normalized observations as it does.
    """

    def __init__(self, policy: Policy, hidden_size: int, actions: int, outputs: int) -> None:
        """
        Make critics for the inputs of a policy.

        Args:
            policy: whose :meth:`Policy.prepare` makes the inputs.
            hidden_size: units of each of the two layers.
            actions: A, numbers of an action; 0: actions are not inputs.
            outputs: values of one critic: 1, or one for each action.
        """
        super().__init__()
        self._critics = nn.ModuleList(
            _Critic(policy, hidden_size, actions, outputs) for _ in range(2))

    def forward(
        self, inputs: Tensor, numbers: Tensor | None, actions: Tensor | None = None,
    ) -> Tensor:
        """
        Return the values, float [2, N, outputs].

        Args:
            inputs: [N, ...], from :meth:`Policy.prepare`.
            numbers: [N, V] or None, likewise.
            actions: float [N, A], if actions are inputs.
        """
        return torch.stack([critic(inputs, numbers, actions) for critic in self._critics])


class _Critic(nn.Module):
    def __init__(self, policy: Policy, hidden_size: int, actions: int, outputs: int) -> None:
        super().__init__()
        self.torso: nn.Module | None = None
        if policy.of_images:
            self.torso, features = make_torso(policy.network, policy.image_shape, hidden_size)
        else:
            features = math.prod(policy.image_shape)
        self.layers = nn.Sequential(
            orthogonal(nn.Linear(features + policy.num_numbers + actions, hidden_size)),
            nn.ReLU(), orthogonal(nn.Linear(hidden_size, hidden_size)), nn.ReLU(),
            orthogonal(nn.Linear(hidden_size, outputs), 1.0))

    def forward(self, inputs: Tensor, numbers: Tensor | None, actions: Tensor | None) -> Tensor:
        features = inputs
        if self.torso is not None:
            with torch.autocast(inputs.device.type, torch.bfloat16,
                                enabled=inputs.dtype == torch.bfloat16):
                features = self.torso(inputs)
        rest = [each for each in (numbers, actions) if each is not None]
        values: Tensor = self.layers(torch.cat([features.float(), *rest], -1))
        return values
