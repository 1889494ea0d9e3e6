"""
A3C and A2C: policy gradient on the advantages of what was just done.

Mnih et al. 2016, arXiv:1602.01783. Asynchronous, the learner makes a step from each batch as it
comes, though the policy that acted is an update or more behind, and corrects nothing: what the
asynchronous workers of the paper do to their shared parameters. With ``synchronous`` every actor
waits for the step that its unrolls are part of (A2C), and each is of the newest policy.
Advantages are n-step with ``gae_lambda`` 1, as in the paper, or GAE below. The paper sums over
an unroll; here each term is a mean over valid steps.
"""

from __future__ import annotations

from torch import Tensor

from vdl_ros.rl.algorithms import algorithm
from vdl_ros.rl.algorithms.gae import gae
from vdl_ros.rl.data.batch import Batch
from vdl_ros.rl.distributed.collectives import standardized

__all__ = ['Algorithm']


class Algorithm(algorithm.Algorithm):
    """One step of the optimiser from each batch."""

    def update(self, batch: Batch) -> dict[str, float]:
        """See :meth:`algorithm.Algorithm.update`."""
        loss, parts = self.loss(batch)
        told = self.optimizer.step(loss, parts)
        self.see(batch)
        return told

    def loss(self, batch: Batch) -> tuple[Tensor, algorithm.Metrics]:
        """Return the loss to minimise and its parts, each a scalar."""
        config, policy = self.config, self.policy
        parameters, values, _ = policy(
            batch.observations, batch.is_reset, batch.state, batch.actions, batch.rewards)
        parameters = parameters[:-1]
        log_pi = policy.distribution.log_prob(parameters, batch.actions)
        advantages = gae(self.discounts(batch), self.rewards(batch), values.detach(),
                         batch.valid, config.gae_lambda)
        returns = advantages + values[:-1].detach()
        mask = batch.valid.float()
        if config.normalize_advantages:
            advantages = standardized(advantages, mask, self.group)
        policy_loss = -self.mean(log_pi * advantages, mask)
        value_loss = 0.5 * self.mean((returns - values[:-1]).square(), mask)
        entropy = self.mean(policy.distribution.entropy(parameters), mask)
        loss = policy_loss + config.baseline_cost * value_loss - config.entropy_cost * entropy
        return loss, {
            'losses/total': loss, 'losses/policy': policy_loss, 'losses/value': value_loss,
            'losses/entropy': entropy,
            'losses/kl': self.mean(batch.behaviour_log_probs - log_pi, mask),
            'losses/mean_value': self.mean(values[:-1], mask)}
