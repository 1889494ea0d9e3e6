"""PPO: several epochs of minibatches from each batch, with a clipped ratio or a KL penalty.

Schulman et al. 2017, arXiv:1707.06347: ``clip`` is equation (7), and ``kl`` equation (8), a
penalty whose weight beta adapts to how far updates go. ``hinge`` is from WALL-E: smaller changes
of beta within narrower bounds, a steep term beyond twice the target, and a learning rate that
changes where beta cannot. Advantages are by GAE. Ratios are to the policy that acted; the
divergence is from the policy at the start of the update, the same with ``synchronous``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vdl_ros.rl.algorithms import algorithm
from vdl_ros.rl.algorithms.algorithm import gae
from vdl_ros.rl.data.batch import Batch
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.device import send
from vdl_ros.rl.distributed.collectives import Group, explained_variance
from vdl_ros.rl.policy.networks import Normalizer
from vdl_ros.rl.settings import PpoConfig


@dataclass(frozen=True, kw_only=True)
class _Form:
    """Constants of a form.

    Attributes:
        tolerance: beta changes where the divergence is off by this factor.
        factor: by which beta changes, and the learning rate with it.
        hinge: weight of the squared excess over twice the target, eta.
        spare: the learning rate changes where beta is above this, or below its inverse.
    """

    tolerance: float
    factor: float
    lowest: float
    highest: float
    hinge: float = 0.0
    spare: float = float('inf')


_FORMS = {
    'clip': _Form(tolerance=float('inf'), factor=1.0, lowest=1.0, highest=1.0),
    'kl': _Form(tolerance=1.5, factor=2.0, lowest=1e-4, highest=100.0),
    'hinge': _Form(tolerance=2.0, factor=1.5, lowest=1 / 35, highest=35.0, hinge=50.0, spare=30.0),
}
# The hinge begins at this many times the target.
_HINGE_AT = 2.0
_LEARNING_RATE_FACTOR = (0.1, 10.0)


class KlPenalty:
    """The penalty of one algorithm; ``clip`` has none."""

    def __init__(self, config: PpoConfig) -> None:
        self.beta = self.learning_rate_factor = 1.0
        self._form, self._target = _FORMS[config.ppo_form], config.ppo_kl_target

    def __call__(self, kl: Tensor, group: Group) -> Tensor:
        """Return the penalty for ``kl``, scalars: this learner's parts of the sums over all."""
        penalty = self.beta * kl
        if self._form.hinge:
            # The square of the sum over all learners, not a sum of squares.
            all_kl = group.all_reduce_sum(kl.detach())
            excess = (all_kl - _HINGE_AT * self._target).clamp(min=0.0)
            penalty = penalty + self._form.hinge * excess * (
                2.0 * (kl - kl.detach()) + excess / group.size)
        return penalty

    def adapt(self, kl: float) -> None:
        """Raise beta if the policy went further than the target, ``kl``; lower it if less far."""
        form = self._form
        smallest, largest = _LEARNING_RATE_FACTOR
        if kl > form.tolerance * self._target:
            self.beta = min(self.beta * form.factor, form.highest)
            if self.beta > form.spare:
                self.learning_rate_factor = max(self.learning_rate_factor / form.factor, smallest)
        elif kl < self._target / form.tolerance:
            self.beta = max(self.beta / form.factor, form.lowest)
            if self.beta < 1.0 / form.spare:
                self.learning_rate_factor = min(self.learning_rate_factor * form.factor, largest)

    def state(self) -> dict[str, float]:
        return {'beta': self.beta, 'learning_rate_factor': self.learning_rate_factor}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore :meth:`state`, as far as this form changes it; the run may have had another."""
        form = self._form
        self.beta = min(max(float(state['beta']), form.lowest), form.highest)
        if form.hinge:
            self.learning_rate_factor = float(state.get('learning_rate_factor', 1.0))


# Far above what ratios to a policy of a few updates ago reach.
_MAX_LOG_RATIO = 10.0
# An update ends early once the divergence is this many times ppo_kl_target.
_STOP_FACTOR = 4.0


@dataclass(frozen=True, kw_only=True)
class PpoBatch(Batch):
    """A batch with its targets, computed once before the first epoch.

    Attributes:
        old_parameters: [T, B, P] float, of the action distribution at the start of the update.
        advantages, returns: [T, B] float; returns are the value targets.
    """

    old_parameters: Tensor
    advantages: Tensor
    returns: Tensor

    def flattened(self) -> 'PpoBatch':
        """Return the T * B steps as columns of length 1, without the last observations."""
        others = ('observations', 'is_reset', 'state', 'sources')
        tensors = {name: each.flatten(0, 1)[None] for name, each in vars(self).items()
                   if name not in others}
        valid = self.valid.flatten()
        return PpoBatch(
            observations=self.observations[:-1].flatten(0, 1)[None],
            # With T = 1 only the entries that make a step invalid matter.
            is_reset=torch.stack([torch.zeros_like(valid), ~valid]),
            state=self.state.new_zeros(len(valid), 0), **tensors)


class Algorithm(algorithm.Algorithm):
    """Several epochs of minibatches from each batch."""

    algorithm_config: PpoConfig

    def setup(self, schema: UnrollSchema) -> None:
        self.penalty = KlPenalty(self.algorithm_config)
        self.returns = (
            Normalizer().to(self.device) if self.algorithm_config.normalize_returns else None)

    def learn(self, batch: Batch) -> dict[str, float]:
        algorithm_config = self.algorithm_config
        data, explained = self.add_targets(batch)
        # Minibatches are of single steps; with an LSTM or last_action_reward of whole columns.
        if not self.policy.state_size:
            data = data.flattened()
        columns = data.rewards.shape[1]
        # All learners make the same number of steps.
        minibatches = self.group.all_reduce_min(min(algorithm_config.ppo_minibatches, columns))
        self.planned = algorithm_config.ppo_epochs * minibatches
        sums: dict[str, float] = {}
        count = kl = 0.0
        for _ in range(algorithm_config.ppo_epochs):
            # The CPU's random numbers, because the checkpoint holds their state.
            order = send(torch.randperm(columns), self.device)
            for index in order.tensor_split(minibatches):
                loss, parts = self.loss(data.columns(index))
                metrics = self.optimizer.step(
                    loss, {**parts, 'losses/explained_variance': explained})
                for name, value in metrics.items():
                    sums[name] = sums.get(name, 0.0) + value
                count += 1
                kl = metrics['losses/approx_kl']
                if self.is_interrupted():
                    break
            if kl > _STOP_FACTOR * algorithm_config.ppo_kl_target or self.is_interrupted():
                break
        # The divergence is measured before each step, so with a single step it is always 0.
        if count > 1:
            self.penalty.adapt(kl)
            self.optimizer.learning_rate_factor = self.penalty.learning_rate_factor
        return {**{name: value / count for name, value in sums.items()},
                'losses/last_kl': kl, 'losses/kl_beta': self.penalty.beta,
                'losses/minibatches': count}

    @torch.no_grad()
    def add_targets(self, batch: Batch) -> tuple[PpoBatch, Tensor]:
        """Return the batch with its targets, and this learner's part of the explained variance."""
        parameters, values, _ = self.policy(
            batch.observations, batch.is_reset, batch.state, batch.actions, batch.rewards)
        if self.returns is not None:
            values = self.returns.undo(values)
        advantages = gae(self.discounts(batch), self.rewards(batch), values, batch.valid,
                         self.config.gae_lambda)
        returns = advantages + values[:-1]
        explained = explained_variance(
            values[:-1], returns, batch.valid, self.group) / self.group.size
        if self.returns is not None:
            self.returns.update(returns[batch.valid], self.group.all_reduce_sum)
            returns = self.returns(returns)
        return PpoBatch(
            **vars(batch), old_parameters=parameters[:-1], returns=returns,
            advantages=self.normalized(advantages, batch.valid.float())), explained

    def loss(self, batch: PpoBatch) -> tuple[Tensor, algorithm.Metrics]:
        policy, clip = self.policy, self.algorithm_config.ppo_clip
        steps = len(batch.rewards)
        parameters, values, _ = policy(
            batch.observations[:steps], batch.is_reset[:steps], batch.state, batch.actions,
            batch.rewards)
        mask = batch.valid.float()
        # An infinite ratio has a gradient of NaN, also where it is clipped.
        ratio = (policy.distribution.log_prob(parameters, batch.actions)
                 - batch.behaviour_log_probs).clamp(max=_MAX_LOG_RATIO).exp()
        advantages = batch.advantages
        kl = self.mean(policy.distribution.kl(batch.old_parameters, parameters), mask)
        if self.algorithm_config.ppo_form == 'clip':
            clipped = ratio.clamp(1 - clip, 1 + clip)
            policy_loss = -self.mean(
                torch.minimum(ratio * advantages, clipped * advantages), mask)
        else:
            policy_loss = -self.mean(ratio * advantages, mask) + self.penalty(kl, self.group)
        outside = ((ratio - 1).abs() > clip).float()
        meant = values if self.returns is None else self.returns.undo(values)
        return self.actor_critic_loss(
            policy_loss, batch.returns, values, parameters, mask, approx_kl=kl,
            clipfrac=self.mean(outside, mask), mean_value=self.mean(meant, mask))

    def state(self) -> dict[str, Any]:
        return {**super().state(), **self.penalty.state(),
                'returns': {} if self.returns is None else self.returns.state_dict()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        if self.returns is None and state.get('returns'):
            raise ValueError('normalize_returns: false is not allowed: its values are normalised')
        self.penalty.load_state(state)
        self.optimizer.learning_rate_factor = self.penalty.learning_rate_factor
        if self.returns is not None:
            self.returns.load_state_dict(state['returns'])
