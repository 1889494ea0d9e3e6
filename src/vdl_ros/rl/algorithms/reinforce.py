"""
REINFORCE: policy gradient on the discounted returns of whole episodes.

Williams 1992, "Simple statistical gradient-following algorithms for connectionist reinforcement
learning", with a learned baseline. A termination is not bootstrapped; a time limit bootstraps from
the baseline. Episodes are assembled from the actors' unrolls, so an episode that began under an
older policy is a little off-policy; with ``synchronous`` by as many updates as it has unrolls.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vdl_ros.rl.algorithm_config import ReinforceConfig
from vdl_ros.rl.algorithms import algorithm
from vdl_ros.rl.data.batch import Batch, transform_rewards
from vdl_ros.rl.data.episode_assembly import Episode, EpisodeAssembly, pad
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.device import send
from vdl_ros.rl.distributed.collectives import Group, standardized
from vdl_ros.rl.policy.policy import Policy
from vdl_ros.rl.train_config import TrainConfig

__all__ = ['Algorithm']


class Algorithm(algorithm.Algorithm):
    """One optimizer step whenever enough episodes have ended."""

    learns_from_host = True
    algorithm_config: ReinforceConfig

    def __init__(
        self, policy: Policy, config: TrainConfig, algorithm_config: ReinforceConfig,
        schema: UnrollSchema, group: Group,
    ) -> None:
        """Learn the parameters of ``policy``."""
        super().__init__(policy, config, algorithm_config, schema, group)
        self._assembly = EpisodeAssembly(algorithm_config.longest_episode)
        self._ended: list[Episode] = []

    def update(self, batch: Batch) -> dict[str, float]:
        """See :meth:`algorithm.Algorithm.update`."""
        self._ended += self._assembly.add(batch)
        metrics = self._learn()
        self.update_normalizer(batch)
        return metrics

    def _learn(self) -> dict[str, float]:
        # All learners make a step, or none does.
        ready = self.group.all_reduce_sum(torch.tensor(
            float(len(self._ended) >= self.algorithm_config.reinforce_episodes)))
        if float(ready) < self.group.size:
            return {}
        episodes, self._ended = self._ended, []
        metrics = self.optimizer.step(*self.loss(episodes))
        ended, cut = self.group.all_reduce_sum(torch.tensor(
            [len(episodes), self._assembly.cut], dtype=torch.float64)).tolist()
        return metrics | {'losses/episodes': ended, 'losses/cut_episodes': cut}

    def loss(self, episodes: list[Episode]) -> tuple[Tensor, algorithm.Metrics]:
        """Return the loss to minimise, a scalar, and its metrics."""
        config, policy = self.config, self.policy
        with_baseline = self.algorithm_config.reinforce_baseline
        observations, actions, rewards, mask = (
            send(each, self.device) for each in pad(episodes))
        steps, count = rewards.shape
        is_reset = torch.zeros(steps + 1, count, dtype=torch.bool, device=self.device)
        parameters, values, _ = policy(
            observations, is_reset, policy.initial_state(count), actions, rewards)
        parameters = parameters[:-1]
        returns = self._returns(episodes, rewards, values.detach())
        advantages = returns
        if with_baseline:
            advantages = returns - values[:-1].detach()
        if config.normalize_advantages:
            advantages = standardized(advantages, mask, self.group)
        log_pi = policy.distribution.log_prob(parameters, actions)
        policy_loss = -self.mean(log_pi * advantages, mask)
        value_loss = 0.5 * self.mean((returns - values[:-1]).square(), mask)
        entropy = self.mean(policy.distribution.entropy(parameters), mask)
        loss = policy_loss - config.entropy_cost * entropy
        if with_baseline:
            loss = loss + config.baseline_cost * value_loss
        return loss, {
            'losses/loss': loss, 'losses/policy_loss': policy_loss,
            'losses/value_loss': value_loss, 'losses/entropy': entropy,
            'losses/mean_return': self.mean(returns, mask)}

    def _returns(self, episodes: list[Episode], rewards: Tensor, values: Tensor) -> Tensor:
        """Return discounted sums of rewards to the end of each episode, float [L, N]."""
        config = self.config
        rewards = config.reward_scale * transform_rewards(rewards, config.reward_transform)
        lengths = send(torch.tensor([len(each.rewards) for each in episodes]), self.device)
        goes_on = send(torch.tensor([not each.terminated for each in episodes]), self.device)
        beyond = torch.zeros(len(episodes), device=self.device)
        if self.algorithm_config.reinforce_baseline:
            beyond = goes_on.float() * values.gather(0, lengths[None])[0]
        returns = torch.zeros_like(rewards)
        for t in range(len(rewards) - 1, -1, -1):
            returns[t] = (rewards[t] + config.discount * beyond) * (t < lengths)
            beyond = torch.where(t < lengths, returns[t], beyond)
        return returns
