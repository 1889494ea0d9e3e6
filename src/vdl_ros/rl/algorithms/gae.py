"""
Generalised advantage estimation (GAE), for on-policy actions.

Schulman et al. 2016, arXiv:1506.02438, equation (16). With lambda 1 these are the
n-step returns of A3C (Mnih et al. 2016, arXiv:1602.01783) to the end of the unroll, less the
value.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ['gae']


@torch.no_grad()
def gae(
    discounts: Tensor, rewards: Tensor, values: Tensor, valid: Tensor, lambda_: float,
) -> Tensor:
    """
    Return advantages, float [T, B].

    As in V-trace, a step that is not valid has no advantage and cuts the sum of the step before
    it; so a time limit bootstraps from the value of the last observation, and a termination,
    whose discount is 0, from nothing. Value targets are advantages plus ``values[:-1]``.

    Args:
        discounts: [T, B] float, gamma, and 0 where the task terminated.
        rewards: [T, B] float.
        values: [T + 1, B] float, V(x_0) ... V(x_T).
        valid: [T, B] bool.
        lambda_: lambda, 0 to 1.

    Raises:
        ValueError: shapes that do not match.
    """
    steps = tuple(rewards.shape)
    for name, tensor, shape in (
            ('discounts', discounts, steps), ('valid', valid, steps),
            ('values', values, (steps[0] + 1, *steps[1:]))):
        if tuple(tensor.shape) != shape:
            raise ValueError(f'{name}: shape {tuple(tensor.shape)} is not {shape}')
    mask = valid.to(values.dtype)
    deltas = rewards + discounts * values[1:] - values[:-1]
    advantages = torch.zeros_like(deltas)
    following = torch.zeros_like(deltas[0])
    for t in range(steps[0] - 1, -1, -1):
        following = mask[t] * (deltas[t] + lambda_ * discounts[t] * following)
        advantages[t] = following
    return advantages
