"""
The IMPALA loss: policy gradient on V-trace advantages, value regression, entropy.

Espeholt et al. 2018, arXiv:1802.01561, section 4.2. The paper sums over a batch; here each term
is a mean over valid steps, so that the step size does not depend on T and B.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vdl_ros.rl.config import TrainConfig
from vdl_ros.rl.networks import Policy
from vdl_ros.rl.vtrace import vtrace

__all__ = ['Batch', 'impala_loss', 'standardized', 'transform_rewards']


@dataclass(frozen=True)
class Batch:
    """
    Unrolls side by side, time-major.

    Attributes:
        observations: [T + 1, B, ...].
        actions: [T, B] int64 or [T, B, A] float32.
        rewards: [T, B] float32, as the environment gave them.
        terminated: [T, B] bool.
        valid: [T, B] bool; False for a step whose action the environment ignored.
        behaviour_log_probs: [T, B] float32.
    """

    observations: Tensor
    actions: Tensor
    rewards: Tensor
    terminated: Tensor
    valid: Tensor
    behaviour_log_probs: Tensor


def transform_rewards(rewards: Tensor, how: str) -> Tensor:
    """
    Return what the loss sees of rewards.

    abs_one clips to [-1, 1]; soft_asymmetric is 5 tanh(r / 5), negative ones times 0.3 (both of
    the IMPALA release); none leaves them.
    """
    if how == 'abs_one':
        return rewards.clamp(-1.0, 1.0)
    if how == 'soft_asymmetric':
        squashed = 5.0 * torch.tanh(rewards / 5.0)
        return torch.where(rewards < 0, 0.3 * squashed, squashed)
    return rewards


def standardized(values: Tensor, mask: Tensor) -> Tensor:
    """Return values of mean 0 and deviation 1 where ``mask``, [T, B] float of 0 and 1, is 1."""
    count = mask.sum().clamp(min=1.0)
    centered = values - (values * mask).sum() / count
    deviation = ((centered * mask).square().sum() / count).sqrt()
    return centered / (deviation + 1e-8) * mask


def impala_loss(
    policy: Policy, batch: Batch, config: TrainConfig,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss to minimise and its parts, each a scalar."""
    parameters, values = policy(batch.observations)
    parameters = parameters[:-1]
    log_probs = policy.distribution.log_prob(parameters, batch.actions)
    trace = vtrace(
        (log_probs - batch.behaviour_log_probs).detach(),
        config.discount * (~batch.terminated).float(),
        config.reward_scale * transform_rewards(batch.rewards, config.reward_transform),
        values.detach(), batch.valid, rho_clip=config.rho_clip, c_clip=config.c_clip)
    mask = batch.valid.float()
    count = mask.sum().clamp(min=1.0)
    advantages = trace.advantages
    if config.normalize_advantages:
        advantages = standardized(advantages, mask)
    policy_loss = -(log_probs * advantages * mask).sum() / count
    value_loss = 0.5 * ((trace.targets - values[:-1]).square() * mask).sum() / count
    entropy = (policy.distribution.entropy(parameters) * mask).sum() / count
    loss = policy_loss + config.baseline_cost * value_loss - config.entropy_cost * entropy
    with torch.no_grad():
        rhos = (log_probs - batch.behaviour_log_probs).exp()
        parts = {
            'losses/total': loss.detach(),
            'losses/policy': policy_loss.detach(),
            'losses/value': value_loss.detach(),
            'losses/entropy': entropy.detach(),
            'losses/mean_rho': (rhos * mask).sum() / count,
            'losses/mean_value': (values[:-1] * mask).sum() / count,
        }
    return loss, parts
