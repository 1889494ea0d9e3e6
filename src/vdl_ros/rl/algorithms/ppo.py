"""
PPO: several epochs over one batch, with a policy that is kept near the one that acted.

Schulman et al. 2017, arXiv:1707.06347: equation (7), the clipped ratio, or equation (8), a
penalty on the divergence whose weight beta adapts; advantages by GAE. Ratios are to the policy
that acted, whose log-probabilities came with the unrolls; the divergence is from the policy at
the start of the update, of which all is known. Both are the same policy with ``synchronous``.
Otherwise actors go on meanwhile, and ``max_version_lag`` says how old an unroll may be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vdl_ros.rl.algorithm_config import PpoConfig
from vdl_ros.rl.algorithms import algorithm
from vdl_ros.rl.algorithms.gae import gae
from vdl_ros.rl.data.batch import Batch
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.device import send
from vdl_ros.rl.distributed.collectives import Group, standardized
from vdl_ros.rl.policy.normalizer import Normalizer
from vdl_ros.rl.policy.policy import Policy
from vdl_ros.rl.train_config import TrainConfig

__all__ = ['Algorithm']

# The paper's section 4: beta is changed by this factor where the divergence is off by another.
_FACTOR, _TOLERANCE = 2.0, 1.5
_BETA = (1e-4, 100.0)
# A batch is left early where the policy has gone so many times further than is aimed at.
_TOO_FAR = 4.0


@dataclass(frozen=True)
class _Targets:
    """What is learned from each step of a batch, float [T, B]; ``parameters`` [T, B, P]."""

    parameters: Tensor
    advantages: Tensor
    returns: Tensor


class Algorithm(algorithm.Algorithm):
    """Several epochs of minibatches from each batch."""

    own: PpoConfig

    def __init__(
        self, policy: Policy, config: TrainConfig, own: PpoConfig, schema: UnrollSchema,
        group: Group,
    ) -> None:
        """Learn the parameters of ``policy``."""
        super().__init__(policy, config, own, schema, group)
        self.beta = 1.0
        self.returns = Normalizer().to(self.device) if own.normalize_returns else None

    def update(self, batch: Batch) -> dict[str, float]:
        """See :meth:`algorithm.Algorithm.update`."""
        targets = self._targets(batch)
        sums: dict[str, float] = {}
        count = kl = 0.0
        for _ in range(self.own.ppo_epochs):
            for part, index in self._minibatches(batch):
                loss, parts = self.loss(part, _Targets(
                    *(index(each) for each in vars(targets).values())))
                told = self.optimizer.step(loss, parts)
                for name, value in told.items():
                    sums[name] = sums.get(name, 0.0) + value
                count += 1
                kl = told['losses/kl']
            if kl > _TOO_FAR * self.own.ppo_kl_target:
                break
        # The divergence is measured before each step: of the first it is always 0.
        if count > 1:
            self._adapt(kl)
        self.see(batch)
        return {**{name: value / count for name, value in sums.items()},
                'losses/last_kl': kl, 'losses/kl_beta': self.beta, 'losses/minibatches': count}

    @torch.no_grad()
    def _targets(self, batch: Batch) -> _Targets:
        parameters, values, _ = self.policy(
            batch.observations, batch.is_reset, batch.state, batch.actions, batch.rewards)
        if self.returns is not None:
            values = self.returns.undo(values)
        advantages = gae(self.discounts(batch), self.rewards(batch), values, batch.valid,
                         self.config.gae_lambda)
        returns = advantages + values[:-1]
        if self.returns is not None:
            self.returns.update(returns[batch.valid], self.group.sum)
            returns = self.returns(returns)
        if self.config.normalize_advantages:
            advantages = standardized(advantages, batch.valid.float(), self.group)
        return _Targets(parameters[:-1], advantages, returns)

    def _minibatches(self, batch: Batch) -> Iterator[tuple[Batch, Any]]:
        """
        Yield parts of ``batch``, with a function that takes the same part of its targets.

        Steps are drawn one by one, but with an LSTM or last_action_reward whole columns.
        """
        if self.policy.state_size:
            for columns in self._draw(batch.rewards.shape[1]):
                yield batch.columns(columns), lambda each, columns=columns: each[:, columns]
            return
        flat = _one_row(batch)
        for steps in self._draw(flat.rewards.shape[1]):
            yield flat.columns(steps), lambda each, steps=steps: each.flatten(0, 1)[None, steps]

    def _draw(self, count: int) -> tuple[Tensor, ...]:
        """Return all numbers below ``count`` in as many random parts as all learners make."""
        parts = self.group.least(min(self.own.ppo_minibatches, count))
        # By the CPU's random numbers: their state is in the checkpoint.
        return send(torch.randperm(count), self.device).tensor_split(parts)

    def loss(self, batch: Batch, targets: _Targets) -> tuple[Tensor, algorithm.Metrics]:
        """Return the loss to minimise and its parts, each a scalar."""
        config, own, policy = self.config, self.own, self.policy
        steps = len(batch.rewards)
        parameters, values, _ = policy(
            batch.observations[:steps], batch.is_reset[:steps], batch.state, batch.actions,
            batch.rewards)
        mask = batch.valid.float()
        ratio = (policy.distribution.log_prob(parameters, batch.actions)
                 - batch.behaviour_log_probs).exp()
        advantages = targets.advantages
        kl = self.mean(policy.distribution.kl(targets.parameters, parameters), mask)
        if own.ppo_form == 'clip':
            clipped = ratio.clamp(1 - own.ppo_clip, 1 + own.ppo_clip)
            surrogate = self.mean(torch.minimum(ratio * advantages, clipped * advantages), mask)
            policy_loss = -surrogate
        else:
            policy_loss = -self.mean(ratio * advantages, mask) + self.beta * kl
        value_loss = 0.5 * self.mean((targets.returns - values).square(), mask)
        entropy = self.mean(policy.distribution.entropy(parameters), mask)
        loss = policy_loss + config.baseline_cost * value_loss - config.entropy_cost * entropy
        outside = ((ratio - 1).abs() > own.ppo_clip).float()
        return loss, {
            'losses/total': loss, 'losses/policy': policy_loss, 'losses/value': value_loss,
            'losses/entropy': entropy, 'losses/kl': kl,
            'losses/clipped': self.mean(outside, mask),
            'losses/mean_value': self.mean(values, mask)}

    def _adapt(self, kl: float) -> None:
        """Make the penalty stronger where the policy went too far, and weaker where not."""
        if self.own.ppo_form != 'kl':
            return
        if kl > _TOLERANCE * self.own.ppo_kl_target:
            self.beta *= _FACTOR
        elif kl < self.own.ppo_kl_target / _TOLERANCE:
            self.beta /= _FACTOR
        self.beta = min(max(self.beta, _BETA[0]), _BETA[1])

    def state(self) -> dict[str, Any]:
        """See :meth:`algorithm.Algorithm.state`."""
        return {**super().state(), 'beta': self.beta,
                'returns': {} if self.returns is None else self.returns.state_dict()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """See :meth:`algorithm.Algorithm.load_state`."""
        super().load_state(state)
        self.beta = float(state['beta'])
        if self.returns is not None:
            self.returns.load_state_dict(state['returns'])


def _one_row(batch: Batch) -> Batch:
    """Return all steps of a batch side by side: T is 1, and the last observation is left out."""
    flat = {name: getattr(batch, name).flatten(0, 1)[None] for name in (
        'actions', 'rewards', 'terminated', 'truncated', 'behaviour_log_probs')}
    valid = batch.valid.flatten()
    # Of is_reset only what makes a step valid is of use in one row.
    resets = torch.stack([torch.zeros_like(valid), ~valid])
    return Batch(observations=batch.observations[:-1].flatten(0, 1)[None], is_reset=resets,
                 state=batch.state.new_zeros(len(valid), 0), **flat)
