"""The part of a policy that an ONNX file holds, as a module that PyTorch can export."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn
from torch.nn import functional

from vdl_ros.rl.policy.distributions import EpsilonGreedy, SquashedGaussian
from vdl_ros.rl.policy.policy import Policy

__all__ = ['PolicyGraph']


class PolicyGraph(nn.Module):
    """
    One step of a policy, from observations to the most likely actions, in float32.

    Normalization, scaling of images and smoothing are part of it.
    """

    def __init__(self, policy: Policy, action_space: gymnasium.Space[Any]) -> None:
        """Copy a policy; ``action_space`` is that of one environment."""
        super().__init__()
        self.policy = policy = copy.deepcopy(policy).eval()
        policy.precision = torch.float32
        if policy.lstm is not None:
            policy.lstm = _Cell.like(policy.lstm)
        self._greedy = isinstance(policy.distribution, EpsilonGreedy)
        box = action_space if isinstance(action_space, gymnasium.spaces.Box) else None
        self._bounds = None if box is None else (
            torch.from_numpy(box.low).float(), torch.from_numpy(box.high).float())

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """
        Return parameters [B, P], actions [B] or [B, A], values [B] and, if it has one, the state.

        Args:
            inputs: observations [B, ...], or images [B, ...] and numbers [B, V]; then the state
                [B, S], if the policy has one.
        """
        policy = self.policy
        state = inputs[-1] if policy.state_size else None
        observations = inputs[:len(inputs) - (state is not None)]
        is_reset = observations[0].new_zeros((1, observations[0].shape[0]), dtype=torch.bool)
        output = policy(observations[0][None], is_reset, state,
                        numbers=observations[1] if len(observations) > 1 else None)
        parameters = output.parameters[0]
        chosen = policy.distribution.mode(parameters)
        # Exploration is no property of the most likely action.
        found = (parameters[:, :-1] if self._greedy else parameters, self._to_environment(chosen),
                 output.values[0])
        if state is None:
            return found
        return (*found, policy.append_last_action(
            output.state, chosen, torch.zeros_like(output.values[0])))

    def _to_environment(self, actions: Tensor) -> Tensor:
        """Return actions as ``distribution.to_environment`` does, within the bounds."""
        if self._bounds is None:
            return actions
        low, high = self._bounds
        if isinstance(self.policy.distribution, SquashedGaussian):
            actions = (low + high) / 2 + (high - low) / 2 * torch.tanh(actions)
        return torch.minimum(torch.maximum(actions, low), high)


class _Cell(nn.LSTMCell):
    """An LSTM cell of operators that the exporter knows; it cannot export PyTorch's."""

    @classmethod
    def like(cls, cell: nn.LSTMCell) -> _Cell:
        """Return a cell with the weights of another one."""
        made = cls(cell.input_size, cell.hidden_size)
        made.load_state_dict(cell.state_dict())
        return made

    def forward(
        self, inputs: Tensor, state: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return hidden and cell state, [B, H] each, for inputs [B, F]."""
        assert state is not None
        hidden, cell = state
        gates = functional.linear(inputs, self.weight_ih, self.bias_ih) + functional.linear(
            hidden, self.weight_hh, self.bias_hh)
        enter, forget, new, leave = torch.split(gates, self.hidden_size, -1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
        return leave.sigmoid() * cell.tanh(), cell
