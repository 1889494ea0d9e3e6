"""Advantages and targets of values: GAE and V-trace."""

import torch
from torch import Tensor


@torch.no_grad()
def gae(
    discounts: Tensor, rewards: Tensor, values: Tensor, valid: Tensor, lambda_: float,
) -> Tensor:
    """Return advantages, float [T, B].

    A step that is not valid has no advantage and cuts the sum of the step before it; so a time
    limit bootstraps from the value of the last observation, and a termination, whose discount is
    0, from nothing. Value targets are advantages plus ``values[:-1]``.

    Args:
        discounts: [T, B] float, gamma, and 0 where the task terminated.
        rewards: [T, B] float.
        values: [T + 1, B] float, V(x_0) ... V(x_T).
        valid: [T, B] bool.
    """
    mask = valid.to(values.dtype)
    deltas = rewards + discounts * values[1:] - values[:-1]
    advantages = torch.zeros_like(deltas)
    following = torch.zeros_like(deltas[0])
    for t in range(len(rewards) - 1, -1, -1):
        following = mask[t] * (deltas[t] + lambda_ * discounts[t] * following)
        advantages[t] = following
    return advantages


@torch.no_grad()
def vtrace(
    log_rhos: Tensor, discounts: Tensor, rewards: Tensor, values: Tensor, valid: Tensor, *,
    rho_clip: float = 1.0, c_clip: float = 1.0, lambda_: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Return value targets, ``vs`` of the paper, and advantages, both [T, B].

    The advantages are ``rho_t (r_t + gamma_t vs_{t+1} - V(x_t))``. A step that is not valid (an
    environment that resets itself ignores one action) has its value as its target, no advantage,
    and cuts the trace of the step before it, as in :func:`gae`.

    Args:
        log_rhos: [T, B] float, log pi(a|x) - log mu(a|x).
        discounts, rewards, values, valid: as of :func:`gae`.
        rho_clip, c_clip: rho-bar and c-bar.
        lambda_: factor of the trace coefficients, of the paper's remark 2.
    """
    mask = valid.to(values.dtype)
    rhos = log_rhos.exp()
    clipped_rhos = rhos.clamp(max=rho_clip) * mask
    traces = lambda_ * discounts * rhos.clamp(max=c_clip) * mask
    deltas = clipped_rhos * (rewards + discounts * values[1:] - values[:-1])

    corrections = torch.zeros_like(values)
    for t in range(len(rewards) - 1, -1, -1):
        corrections[t] = deltas[t] + traces[t] * corrections[t + 1]
    targets = values + corrections
    advantages = clipped_rhos * (rewards + discounts * targets[1:] - values[:-1])
    return targets[:-1], advantages
