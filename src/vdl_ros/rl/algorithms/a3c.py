"""A3C and A2C: policy gradient on n-step or generalised advantages.

Mnih et al. 2016, arXiv:1602.01783. Asynchronous (A3C): each batch gives an optimizer step when it
arrives, although the acting policy is an update or more behind; as with the paper's asynchronous
workers, nothing corrects for that. ``synchronous`` (A2C): every actor waits for the step that its
unrolls are part of, so each unroll is of the newest policy. Advantages are n-step with
``gae_lambda`` 1, as in the paper, and GAE below 1. The paper sums over an unroll; here each term
is a mean over valid steps.
"""

from torch import Tensor

from vdl_ros.rl.algorithms import algorithm
from vdl_ros.rl.algorithms.algorithm import gae
from vdl_ros.rl.data.batch import Batch


class Algorithm(algorithm.Algorithm):
    """One optimizer step for each batch."""

    def learn(self, batch: Batch) -> dict[str, float]:
        return self.optimizer.step(*self.loss(batch))

    def loss(self, batch: Batch) -> tuple[Tensor, algorithm.Metrics]:
        policy = self.policy
        parameters, values, _ = policy(
            batch.observations, batch.is_reset, batch.state, batch.actions, batch.rewards)
        parameters = parameters[:-1]
        log_pi = policy.distribution.log_prob(parameters, batch.actions)
        advantages = gae(self.discounts(batch), self.rewards(batch), values.detach(),
                         batch.valid, self.config.gae_lambda)
        returns = advantages + values[:-1].detach()
        mask = batch.valid.float()
        policy_loss = -self.mean(log_pi * self.normalized(advantages, mask), mask)
        return self.actor_critic_loss(
            policy_loss, returns, values[:-1], parameters, mask,
            approx_kl=self.mean(batch.behaviour_log_probs - log_pi, mask))
