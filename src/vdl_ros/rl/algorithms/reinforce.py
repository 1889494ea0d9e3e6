"""REINFORCE: policy gradient on the returns of whole episodes, which are joined from unrolls.

Williams 1992, "Simple statistical gradient-following algorithms for connectionist reinforcement
learning", with a learned baseline. A termination is not bootstrapped; a time limit bootstraps from
the baseline. An episode that began under an older policy is a little off-policy.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from vdl_ros.rl.algorithms import algorithm
from vdl_ros.rl.data.batch import Batch, transform_rewards
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.device import send
from vdl_ros.rl.settings import ReinforceConfig

# Unfinished episodes kept; beyond it, the one without data for longest is dropped.
_MAX_PENDING = 65_536


@dataclass(frozen=True)
class Episode:
    """One whole episode of L steps.

    Attributes:
        observations: [L + 1, ...].
        actions: [L] or [L, A].
        rewards: [L] float32.
        terminated: whether the environment ended it; else a time limit did, or it was cut.
    """

    observations: Tensor
    actions: Tensor
    rewards: Tensor
    terminated: bool


@dataclass
class _Pending:
    """The first part of an episode; ``next`` is the number of the unroll that continues it."""

    next: int
    parts: list[tuple[Tensor, Tensor, Tensor]]
    steps: int


class EpisodeAssembly:
    """Joins the columns of consecutive unrolls to whole episodes; ``cut`` were too long."""

    def __init__(self, longest: int) -> None:
        self.cut = 0
        self._longest = longest
        self._pending: dict[tuple[int, int], _Pending] = {}

    def add(self, batch: Batch) -> list[Episode]:
        """Return the whole episodes that ended in a batch.

        Episodes that are incomplete because an unroll was lost are left out.
        """
        found: list[Episode] = []
        column = 0
        for source in batch.sources:
            for number in range(source.num_envs):
                key = source.start_id, number
                pending = self._pending.pop(key, None)
                if pending is not None and pending.next != source.sequence:
                    pending = None
                rest = self._walk(batch, column, pending, found)
                if rest is not None:
                    rest.next = source.sequence + 1
                    self._pending[key] = rest
                column += 1
        while len(self._pending) > _MAX_PENDING:
            del self._pending[next(iter(self._pending))]
        return found

    def _walk(
        self, batch: Batch, column: int, pending: _Pending | None, found: list[Episode],
    ) -> _Pending | None:
        """Go through one column; return the unfinished episode at its end."""
        steps = len(batch.rewards)
        starts = torch.nonzero(batch.is_reset[:steps, column]).flatten().tolist()
        done = batch.terminated[:, column] | batch.truncated[:, column]
        ends = torch.nonzero(done & batch.valid[:, column]).flatten().tolist()
        if starts[:1] == [0]:
            pending = None
        elif pending is not None:
            starts.insert(0, 0)
        for start, following in pairwise([*starts, steps]):
            episode, pending = pending or _Pending(0, [], 0), None
            end = next((each for each in ends if start <= each < following), None)
            if end is None and batch.is_reset[following, column]:
                # It was broken off: a robot was lost.
                continue
            stop = following if end is None else end + 1
            stop = min(stop, start + self._longest - episode.steps)
            # Copies: a view would keep the whole batch in memory until the episode ends.
            episode.parts.append((
                batch.observations[start:stop + 1, column].clone(),
                batch.actions[start:stop, column].clone(),
                batch.rewards[start:stop, column].clone()))
            episode.steps += stop - start
            if stop - 1 == end or episode.steps == self._longest:
                self.cut += stop - 1 != end
                found.append(_join(episode, bool(batch.terminated[stop - 1, column])))
            else:
                pending = episode
        return pending


def _join(pending: _Pending, terminated: bool) -> Episode:
    observations, actions, rewards = zip(*pending.parts, strict=True)
    # The last observation of a part is the first of the next.
    return Episode(
        torch.cat([*(each[:-1] for each in observations), observations[-1][-1:]]),
        torch.cat(actions), torch.cat(rewards), terminated)


class Algorithm(algorithm.Algorithm):
    """One optimizer step whenever enough episodes have ended."""

    learns_from_host = True
    algorithm_config: ReinforceConfig

    def setup(self, schema: UnrollSchema) -> None:
        self._assembly = EpisodeAssembly(self.algorithm_config.longest_episode)
        self._ended: list[Episode] = []

    def learn(self, batch: Batch) -> dict[str, float]:
        self._ended += self._assembly.add(batch)
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
        config, policy = self.config, self.policy
        with_baseline = self.algorithm_config.reinforce_baseline
        # Padded to the longest of N episodes, L steps.
        observations, actions, rewards, mask = (send(pad_sequence(each), self.device) for each in (
            [each.observations for each in episodes], [each.actions for each in episodes],
            [each.rewards for each in episodes],
            [torch.ones(len(each.rewards)) for each in episodes]))
        steps, count = rewards.shape
        is_reset = torch.zeros(steps + 1, count, dtype=torch.bool, device=self.device)
        parameters, values, _ = policy(
            observations, is_reset, policy.initial_state(count), actions, rewards)
        parameters = parameters[:-1]
        returns = self._returns(episodes, rewards, values.detach())
        advantages = returns
        if with_baseline:
            advantages = returns - values[:-1].detach()
        log_pi = policy.distribution.log_prob(parameters, actions)
        policy_loss = -self.mean(log_pi * self.normalized(advantages, mask), mask)
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
