"""
DQN: the values of actions, learned from what was done long ago as well.

Mnih et al. 2015; double (van Hasselt et al. 2016, arXiv:1509.06461), n-step (Sutton 1988), with
prioritised replay (Schaul et al. 2016, arXiv:1511.05952) if asked. The replay is here, beside the
learner; actors explore by the values that they are sent (``exploration.py``). n-step sums are not
corrected for actions that the policy would no longer take, as in Ape-X. With an LSTM or
last_action_reward whole columns are learned from, from the state that the actor had (Kapturowski
et al. 2019, R2D2); these are drawn by the priorities of their steps, and the loss does not make up
for it. Of several learners each draws from a replay of its own, and all wait until each has enough
in it. It lies in host memory, since a GPU's is smaller; what is drawn is sent to where the policy
is.
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
from vdl_ros.rl.data.batch import Batch
from vdl_ros.rl.data.replay import Replay, Sample
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.device import gather, send
from vdl_ros.rl.distributed.collectives import Group
from vdl_ros.rl.policy.policy import Policy
from vdl_ros.rl.train_config import TrainConfig

__all__ = ['Algorithm']


class Algorithm(algorithm.Algorithm):
    """As many steps of the optimiser as the new steps of a batch are worth."""

    learns_from_host = True
    own: DqnConfig

    def __init__(
        self, policy: Policy, config: TrainConfig, own: DqnConfig, schema: UnrollSchema,
        group: Group,
    ) -> None:
        """
        Learn the parameters of ``policy``, whose numbers are values of actions.

        Raises:
            ValueError: a replay that is larger than this learner's part of the memory.
        """
        super().__init__(policy, config, own, schema, group)
        self.target = copy.deepcopy(policy)
        self.target.requires_grad_(requires_grad=False)
        self._replay = Replay(
            schema, own.replay_size, config.discount, own.n_step,
            own.priority_exponent if own.prioritized else 0.0, group.size)
        # What one step of the optimiser draws, and how many steps of the environment these are.
        self._draws = self._drawn = own.replay_batch
        if policy.state_size:
            self._draws = max(own.replay_batch // schema.unroll_length, 1)
            self._drawn = self._draws * schema.unroll_length
        self._owed = 0.0

    def update(self, batch: Batch) -> dict[str, float]:
        """See :meth:`algorithm.Algorithm.update`."""
        self._replay.add(batch, self.rewards(batch))
        told = self._learn(batch)
        self.see(batch)
        return told

    def _learn(self, batch: Batch) -> dict[str, float]:
        """Make the steps that the batch, which is in the replay, is worth."""
        own, group, replay = self.own, self.group, self._replay
        steps = replay.steps
        # A full one may never hold as many: where environments reset there is no step.
        ready = steps >= own.replay_start or (replay.full and steps > 0)
        # Columns are drawn with the resets in them, and so these count on both sides.
        new = batch.valid.numel() if self.policy.state_size else int(batch.valid.sum())
        # All learners make the same number of steps, or they would wait for each other for ever.
        all_ready, all_new = group.sum(torch.tensor([float(ready), float(new)])).tolist()
        told = {'losses/replayed_steps': float(steps)}
        if all_ready < group.size:
            return told
        self._owed += all_new / group.size * own.replay_ratio / self._drawn
        sums: dict[str, float] = {}
        count = int(self._owed)
        self._owed -= count
        for _ in range(count):
            sample = replay.sample(self._draws)
            loss, parts = self.loss(replay, sample)
            for name, value in self.optimizer.step(loss, parts).items():
                sums[name] = sums.get(name, 0.0) + value / count
            if self.optimizer.steps % own.target_period == 0:
                self.target.load_state_dict(self.policy.state_dict())
        return {**sums, **told}

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
            weights = (sample.probabilities * replay.steps) ** -self.own.importance_exponent
            weights = send(weights / weights.max(), self.device)
        if self.own.prioritized:
            replay.update_priorities(columns, times, errors.detach().cpu())
        loss = self.mean(weights * functional.smooth_l1_loss(
            values, targets, reduction='none'), mask)
        return loss, {
            'losses/total': loss, 'losses/mean_q': self.mean(values, mask),
            'losses/mean_target': self.mean(targets, mask),
            'losses/td_error': self.mean(errors.abs(), mask)}

    def _of_steps(self, replay: Replay, sample: Sample) -> tuple[Tensor, ...]:
        """
        Return values, targets, columns, times and mask, [N] each, of the steps drawn.

        Columns and times, places in the replay, are in host memory.
        """
        column, time = sample.column, sample.time
        later = replay.times[column, time]
        actions, returns, factors = (send(each[column, time], self.device) for each in (
            replay.actions, replay.returns, replay.factors))
        q = _q(self.policy(gather(replay.observations, (column, time), self.device)))
        values = q.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        with torch.no_grad():
            following = gather(replay.observations, (column, later), self.device)
            q_target = _q(self.target(following))
            best = _q(self.policy(following)) if self.own.double_q else q_target
        targets = self._targets(q_target, best, returns, factors)
        return values, targets, column, time, torch.ones_like(values)

    def _of_columns(self, replay: Replay, sample: Sample) -> tuple[Tensor, ...]:
        """Return the same, [T, N] each, of the whole columns that the steps drawn are in."""
        steps, column = replay.actions.shape[1], sample.column
        observations = gather(replay.observations, (column,), self.device).movedim(0, 1)
        is_reset, actions, rewards, later, returns, factors, valid = (
            send(each[column], self.device).T for each in (
                replay.is_reset, replay.actions, replay.rewards, replay.times, replay.returns,
                replay.factors, replay.valid))
        state = send(replay.state[column], self.device)
        shown = observations, is_reset, state, actions, rewards
        q = _q(self.policy(*shown))
        values = q[:-1].gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        with torch.no_grad():
            q_target = _q(self.target(*shown))
        best = q.detach() if self.own.double_q else q_target
        later = later.unsqueeze(-1).expand(-1, -1, q.shape[-1])
        targets = self._targets(q_target.gather(0, later), best.gather(0, later),
                                returns, factors)
        times = torch.arange(steps)[:, None].expand(values.shape)
        return values, targets, column.expand(values.shape), times, valid.float()

    @staticmethod
    def _targets(q_target: Tensor, best: Tensor, returns: Tensor, factors: Tensor) -> Tensor:
        """Return what values should be: the target network's of the best action, later."""
        chosen = best.argmax(-1, keepdim=True)
        return returns + factors * q_target.gather(-1, chosen).squeeze(-1)

    def state(self) -> dict[str, Any]:
        """See :meth:`algorithm.Algorithm.state`; the replay is not kept, but filled anew."""
        return {**super().state(), 'target': self.target.state_dict(),
                'steps': self.optimizer.steps}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """See :meth:`algorithm.Algorithm.load_state`."""
        super().load_state(state)
        self.target.load_state_dict(state['target'])
        self.optimizer.steps = int(state['steps'])


def _q(output: Any) -> Tensor:
    """Return the values of actions, [..., n], without what is beside them."""
    q: Tensor = output.parameters[..., :-1]
    return q
