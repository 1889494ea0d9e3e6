"""IMPALA: policy gradient on V-trace advantages, for trajectories of somewhat older policies.

Espeholt et al. 2018, arXiv:1802.01561, section 4.2. The paper sums over a batch; here each term
is a mean over valid steps, so that the step size does not depend on T and B.
"""

from torch import Tensor

from vdl_ros.rl.algorithms import algorithm
from vdl_ros.rl.algorithms.algorithm import vtrace
from vdl_ros.rl.data.batch import Batch
from vdl_ros.rl.settings import ImpalaConfig


class Algorithm(algorithm.Algorithm):
    """One optimizer step for each batch."""

    algorithm_config: ImpalaConfig

    def learn(self, batch: Batch) -> dict[str, float]:
        return self.optimizer.step(*self.loss(batch))

    def loss(self, batch: Batch) -> tuple[Tensor, algorithm.Metrics]:
        policy, own = self.policy, self.algorithm_config
        parameters, values, _ = policy(
            batch.observations, batch.is_reset, batch.state, batch.actions, batch.rewards)
        parameters = parameters[:-1]
        log_pi = policy.distribution.log_prob(parameters, batch.actions)
        log_rhos = (log_pi - batch.behaviour_log_probs).detach()
        targets, advantages = vtrace(
            log_rhos, self.discounts(batch), self.rewards(batch), values.detach(), batch.valid,
            rho_clip=own.rho_clip, c_clip=own.c_clip, lambda_=own.vtrace_lambda)
        mask = batch.valid.float()
        policy_loss = -self.mean(log_pi * self.normalized(advantages, mask), mask)
        return self.actor_critic_loss(
            policy_loss, targets, values[:-1], parameters, mask,
            mean_rho=self.mean(log_rhos.exp(), mask))
