"""Behaviour cloning: the most likely policy for the actions of demonstrations.

Pomerleau 1989, "ALVINN: an autonomous land vehicle in a neural network"; the loss is the mean
negative log-likelihood of the demonstrated actions. There are no rewards, so the values are not
learned. Steps come from ``rl/learning/demonstrations.py`` instead of actors, each with the actions
of as many steps as a chunk has.
"""

from torch import Tensor

from vdl_ros.rl.algorithms import algorithm
from vdl_ros.rl.data.batch import Batch
from vdl_ros.rl.policy.distributions import Categorical


class Algorithm(algorithm.Algorithm):
    """One optimizer step for each batch."""

    def update(self, batch: Batch) -> dict[str, float]:
        # Before the step: demonstrations do not change, so the first statistics are good already.
        self.update_normalizer(batch)
        return self.learn(batch)

    def learn(self, batch: Batch) -> dict[str, float]:
        return self.optimizer.step(*self.loss(batch))

    def loss(self, batch: Batch) -> tuple[Tensor, algorithm.Metrics]:
        distribution = self.policy.distribution
        taken, observations = self.mirrored(batch.actions, batch.observations[:-1])
        parameters = self.policy.chunks(observations)
        shape = () if type(distribution) is Categorical else (-1,)
        actions = taken.reshape(*taken.shape[:2], self.policy.chunk, *shape)
        mask = batch.valid.float()
        likelihood, entropy = (self.mean(each.mean(-1), mask) for each in (
            distribution.log_prob(parameters, actions), distribution.entropy(parameters)))
        loss = -likelihood - self.config.entropy_cost * entropy
        return loss, {'losses/loss': loss, 'losses/log_likelihood': likelihood,
                      'losses/entropy': entropy}
