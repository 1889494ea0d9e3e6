"""
DQN: the values of actions, learned from what was done long ago as well.

Mnih et al. 2015; double (van Hasselt et al. 2016, arXiv:1509.06461), n-step (Sutton 1988), with
prioritised replay (Schaul et al. 2016, arXiv:1511.05952) if asked. The replay is here, beside the
learner; actors explore by the values that they are sent (``exploration.py``). n-step sums are not
corrected for actions that the policy would no longer take, as in Ape-X. With an LSTM whole
columns are learned from, from the state that the actor had (Kapturowski et al. 2019, R2D2); these
are drawn by the priorities of their steps, and the loss does not make up for it. Of several
learners each draws from a replay of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from vdl_ros.rl.algorithm_config import DqnConfig
from vdl_ros.rl.algorithms import algorithm
from vdl_ros.rl.batch import Batch
from vdl_ros.rl.config import TrainConfig
from vdl_ros.rl.group import Group
from vdl_ros.rl.policy import Policy
from vdl_ros.rl.replay import Replay, Sample
from vdl_ros.rl.unroll import UnrollSchema

__all__ = ['Algorithm']


class Algorithm(algorithm.Algorithm):
    """As many steps of the optimiser as the new steps of a batch are worth."""

    own: DqnConfig

    def __init__(
        self, policy: Policy, config: TrainConfig, own: DqnConfig, schema: UnrollSchema,
        group: Group,
    ) -> None:
        """
        Learn the parameters of ``policy``, whose numbers are values of actions.

        Raises:
            ValueError: a replay that is larger than the memory.
        """
        super().__init__(policy, config, own, schema, group)
        self.target = copy.deepcopy(policy)
        self.target.requires_grad_(requires_grad=False)
        self._replay = Replay(
            schema, own.replay_size, config.discount, own.n_step,
            own.priority_exponent if own.prioritized else 0.0)
        self._owed = 0.0

    def update(self, batch: Batch) -> dict[str, float]:
        """See :meth:`algorithm.Algorithm.update`."""
        own, group, replay = self.own, self.group, self._replay
        replay.add(batch, self.rewards(batch))
        self.see(batch)
        ready = float(replay.steps >= own.replay_start)
        # All learners make the same number of steps, or they would wait for each other for ever.
        ready, new = group.sum(torch.tensor([ready, float(batch.valid.sum())])).tolist()
        if ready < group.size:
            return {}
        self._owed += new / group.size * own.replay_ratio / own.replay_batch
        sums: dict[str, float] = {}
        count = int(self._owed)
        self._owed -= count
        for _ in range(count):
            sample = replay.draw(own.replay_batch)
            loss, parts = self.loss(replay, sample)
            norm = self.descent.step(loss, parts)
            for name, value in self.told(parts, grad_norm=norm).items():
                sums[name] = sums.get(name, 0.0) + value / count
            if self.descent.steps % own.target_period == 0:
                self.target.load_state_dict(self.policy.state_dict())
        return {**sums, 'losses/replayed_steps': float(replay.steps)}

    def loss(self, replay: Replay, sample: Sample) -> tuple[Tensor, algorithm.Metrics]:
        """Return the loss to minimise and its parts, each a scalar; note the errors."""
        if self.policy.state_size:
            values, targets, columns, times, mask = self._of_columns(replay, sample)
        else:
            values, targets, columns, times, mask = self._of_steps(replay, sample)
        errors = targets - values
        weights = mask
        if self.own.prioritized and not self.policy.state_size:
            # Beta of the paper; the largest weight is 1.
            weights = (sample.odds * replay.steps) ** -self.own.importance_exponent
            weights = weights / weights.max()
        if self.own.prioritized:
            chosen = mask.bool()
            replay.weigh(columns[chosen], times[chosen], errors.detach()[chosen])
        loss = self.mean(weights * functional.smooth_l1_loss(
            values, targets, reduction='none'), mask)
        return loss, {
            'losses/total': loss, 'losses/mean_q': self.mean(values, mask),
            'losses/mean_target': self.mean(targets, mask),
            'losses/td_error': self.mean(errors.abs(), mask)}

    def _of_steps(self, replay: Replay, sample: Sample) -> tuple[Tensor, ...]:
        """Return values, targets, columns, times and mask, [N] each, of the steps drawn."""
        column, time = sample.column, sample.time
        later = replay.times[column, time]
        q = _q(self.policy(replay.observations[column, time]))
        values = q.gather(-1, replay.actions[column, time].unsqueeze(-1)).squeeze(-1)
        with torch.no_grad():
            following = replay.observations[column, later]
            q_target = _q(self.target(following))
            best = _q(self.policy(following)) if self.own.double_q else q_target
        targets = self._targets(q_target, best, replay.returns[column, time],
                                replay.factors[column, time])
        return values, targets, column, time, torch.ones_like(values)

    def _of_columns(self, replay: Replay, sample: Sample) -> tuple[Tensor, ...]:
        """Return the same, [T, N] each, of whole columns that hold the steps drawn."""
        steps = replay.actions.shape[1]
        column = sample.column[:max(len(sample.column) // steps, 1)]
        observations = replay.observations[column].movedim(0, 1)
        is_reset, state = replay.is_reset[column].T, replay.state[column]
        q = _q(self.policy(observations, is_reset, state))
        values = q[:-1].gather(-1, replay.actions[column].T.unsqueeze(-1)).squeeze(-1)
        with torch.no_grad():
            q_target = _q(self.target(observations, is_reset, state))
        best = q.detach() if self.own.double_q else q_target
        later = replay.times[column].T.unsqueeze(-1).expand(-1, -1, q.shape[-1])
        targets = self._targets(q_target.gather(0, later), best.gather(0, later),
                                replay.returns[column].T, replay.factors[column].T)
        times = torch.arange(steps)[:, None].expand_as(values)
        return (values, targets, column.expand_as(values), times,
                replay.valid[column].T.float())

    @staticmethod
    def _targets(q_target: Tensor, best: Tensor, returns: Tensor, factors: Tensor) -> Tensor:
        """Return what values should be: the target network's of the best action, later."""
        chosen = best.argmax(-1, keepdim=True)
        return returns + factors * q_target.gather(-1, chosen).squeeze(-1)

    def state(self) -> dict[str, Any]:
        """See :meth:`algorithm.Algorithm.state`; the replay is not kept, but filled anew."""
        return {**super().state(), 'target': self.target.state_dict(),
                'steps': self.descent.steps}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """See :meth:`algorithm.Algorithm.load_state`."""
        super().load_state(state)
        self.target.load_state_dict(state['target'])
        self.descent.steps = int(state['steps'])


def _q(output: Any) -> Tensor:
    """Return the values of actions, [..., n], without what is beside them."""
    q: Tensor = output.parameters[..., :-1]
    return q
