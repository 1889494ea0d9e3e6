"""Steps of an optimiser: their size, clipped gradients, and nothing that is not finite."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vdl_ros.rl.distributed.collectives import Group
from vdl_ros.rl.train_config import TrainConfig

__all__ = ['PolicyOptimizer']


class PolicyOptimizer:
    """
    An optimiser over the parameters of a network.

    Attributes:
        group: of the learners that share the work.
        learning_rate: of the next step.
        steps: made so far.
    """

    def __init__(self, network: nn.Module, config: TrainConfig, group: Group) -> None:
        """Make the optimiser that ``config`` names."""
        self.group = group
        self.learning_rate = config.learning_rate
        self.steps = 0
        self._config = config
        self._named = [(name, parameter) for name, parameter in network.named_parameters()
                       if parameter.requires_grad]
        self._parameters = [parameter for _, parameter in self._named]
        self._epsilon = 1e-5 if config.optimizer == 'adam' else config.rmsprop_epsilon
        self._optimizer: torch.optim.Optimizer
        if config.optimizer == 'adam':
            self._optimizer = torch.optim.Adam(
                self._parameters, config.learning_rate, eps=self._epsilon)
        else:
            self._optimizer = torch.optim.RMSprop(
                self._parameters, config.learning_rate, alpha=0.99, eps=self._epsilon)

    def schedule(self, agent_steps: int) -> None:
        """Set the size of the steps to come."""
        config = self._config
        self.learning_rate = config.learning_rate
        if config.learning_rate_schedule == 'linear':
            self.learning_rate *= max(1.0 - agent_steps / config.total_steps, 0.0)

    def step(self, loss: Tensor, parts: Mapping[str, Tensor]) -> dict[str, float]:
        """
        Go one step down ``loss``.

        Args:
            loss: this learner's part of the mean over all.
            parts: what it is made of, scalars by metric's name, parts of means like it.

        Returns:
            Those means over all learners, and as 'losses/grad_norm' the length of the gradient
            before it was clipped.

        Raises:
            FloatingPointError: loss or gradient is not finite; no parameter was changed.
        """
        scalars = torch.stack([each.detach().double() for each in (loss, *parts.values())])
        sums = self.group.sum(scalars)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.group.add_gradients(self._parameters)
        gradients = {name: parameter.grad for name, parameter in self._named
                     if parameter.grad is not None}
        norm = torch.linalg.vector_norm(torch.stack([
            torch.linalg.vector_norm(gradient) for gradient in gradients.values()]))
        # One learner's loss may be finite while another's is not: all must agree. It is looked at
        # only now, with the gradient, because a device is waited for at every look.
        total, *means, length = torch.cat([sums, norm.detach().double()[None]]).tolist()
        if not math.isfinite(total):
            broken = [name for name, value in parts.items() if not torch.isfinite(value)]
            raise FloatingPointError(f'{", ".join(broken) or "loss of another learner"} '
                                     'not finite')
        if not math.isfinite(length):
            broken = [name for name, gradient in gradients.items()
                      if not torch.isfinite(gradient).all()]
            raise FloatingPointError(
                f'the gradient of {", ".join(broken) or "all parameters"} is not finite')
        # Not before: a factor that is NaN would break every gradient.
        factor = (self._config.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        for gradient in gradients.values():
            gradient.mul_(factor)
        for group in self._optimizer.param_groups:
            group['lr'] = self.learning_rate
        self._optimizer.step()
        self.steps += 1
        return dict(zip(parts, means, strict=True)) | {'losses/grad_norm': length}

    def state(self) -> dict[str, Any]:
        """Return the optimiser's state."""
        return self._optimizer.state_dict()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """
        Go on from :meth:`state`.

        Raises:
            TypeError: of another optimiser.
        """
        # torch would load the one into the other, and fail at the next update.
        was = 'adam' if 'betas' in state['param_groups'][0] else 'rmsprop'
        if was != self._config.optimizer:
            raise TypeError(f'optimizer {was} is not {self._config.optimizer}')
        self._optimizer.load_state_dict(dict(state))
        for group in self._optimizer.param_groups:
            group['eps'] = self._epsilon
