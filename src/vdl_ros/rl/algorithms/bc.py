"""Behaviour cloning: the most likely policy for the actions of demonstrations.

Pomerleau 1989, "ALVINN: an autonomous land vehicle in a neural network"; the loss is the mean
negative log-likelihood of the demonstrated actions. There are no rewards, so the values are not
learned. Steps come from ``rl/learning/demonstrations.py`` instead of actors.
"""

from torch import Tensor

from vdl_ros.rl.algorithms import algorithm
from vdl_ros.rl.data.batch import Batch


class Algorithm(algorithm.Algorithm):
    """One optimizer step for each batch."""

    def update(self, batch: Batch) -> dict[str, float]:
        # Before the step: demonstrations do not change, so the first statistics are good already.
        self.update_normalizer(batch)
        return self.learn(batch)

    def learn(self, batch: Batch) -> dict[str, float]:
        return self.optimizer.step(*self.loss(batch))

    def loss(self, batch: Batch) -> tuple[Tensor, algorithm.Metrics]:
        policy = self.policy
        parameters, _, _ = policy(
            batch.observations, batch.is_reset, batch.state, batch.actions, batch.rewards)
        parameters = parameters[:-1]
        mask = batch.valid.float()
        likelihood = self.mean(policy.distribution.log_prob(parameters, batch.actions), mask)
        entropy = self.mean(policy.distribution.entropy(parameters), mask)
        loss = -likelihood - self.config.entropy_cost * entropy
        return loss, {'losses/loss': loss, 'losses/log_likelihood': likelihood,
                      'losses/entropy': entropy}
