"""
DQN: action values learned from a replay of the actors' steps.

Mnih et al. 2015; double (van Hasselt et al. 2016, arXiv:1509.06461), n-step (Sutton 1988),
optionally with prioritised replay (Schaul et al. 2016, arXiv:1511.05952). Actors explore by the
schedule in ``exploration.py``. As in Ape-X, n-step sums are not corrected for actions that the
policy would no longer take. With an LSTM or last_action_reward, samples are whole columns that
start from the actor's recurrent state (Kapturowski et al. 2019, R2D2); they are drawn by the
priorities of their steps, without importance weights in the loss. Each of several learners has its
own replay, and all wait until every replay holds enough. The replay is in host memory, because a
GPU has less; samples are sent to the policy's device.
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
    """For each batch as many optimizer steps as ``replay_ratio`` gives for its new steps."""

    learns_from_host = True
    algorithm_config: DqnConfig

    def __init__(
        self, policy: Policy, config: TrainConfig, algorithm_config: DqnConfig,
        schema: UnrollSchema, group: Group,
    ) -> None:
        """
        Learn the parameters of ``policy``, whose outputs are action values.

        Raises:
            ValueError: the replay is larger than this learner's share of the memory.
        """
        super().__init__(policy, config, algorithm_config, schema, group)
        self.target = copy.deepcopy(policy)
        self.target.requires_grad_(requires_grad=False)
        self._replay = Replay(
            schema, algorithm_config.replay_size, config.discount, algorithm_config.n_step,
            algorithm_config.priority_exponent if algorithm_config.prioritized else 0.0,
            group.size)
        # Samples of one optimizer step, and the number of environment steps in them.
        self._sample_size = self._sampled_steps = algorithm_config.replay_batch
        if policy.state_size:
            self._sample_size = max(algorithm_config.replay_batch // schema.unroll_length, 1)
            self._sampled_steps = self._sample_size * schema.unroll_length
        self._pending_updates = 0.0

    def update(self, batch: Batch) -> dict[str, float]:
        """See :meth:`algorithm.Algorithm.update`."""
        self._replay.add(batch, self.rewards(batch))
        metrics = self._learn(batch)
        self.update_normalizer(batch)
        return metrics

    def _learn(self, batch: Batch) -> dict[str, float]:
        """Make the optimizer steps that are due after a batch was added to the replay."""
        algorithm_config, group, replay = self.algorithm_config, self.group, self._replay
        steps = replay.steps
        # Resets are not steps, so a full replay may hold fewer than replay_start.
        ready = steps >= algorithm_config.replay_start or (replay.full and steps > 0)
        # Sampled columns include resets, so resets count here too.
        new = batch.valid.numel() if self.policy.state_size else int(batch.valid.sum())
        # All learners make the same number of steps; else they would wait for each other for ever.
        all_ready, all_new = group.all_reduce_sum(
            torch.tensor([float(ready), float(new)])).tolist()
        metrics = {'losses/replayed_steps': float(steps)}
        if all_ready < group.size:
            return metrics
        self._pending_updates += (
            all_new / group.size * algorithm_config.replay_ratio / self._sampled_steps)
        sums: dict[str, float] = {}
        count = int(self._pending_updates)
        self._pending_updates -= count
        for _ in range(count):
            sample = replay.sample(self._sample_size)
            for name, value in self.optimizer.step(*self.loss(replay, sample)).items():
                sums[name] = sums.get(name, 0.0) + value / count
            if self.optimizer.steps % algorithm_config.target_period == 0:
                self.target.load_state_dict(self.policy.state_dict())
        return {**sums, **metrics}

    def loss(self, replay: Replay, sample: Sample) -> tuple[Tensor, algorithm.Metrics]:
        """Return the loss to minimise, a scalar, and its metrics; update the priorities."""
        if self.policy.state_size:
            values, targets, columns, times, mask = self._column_targets(replay, sample)
        else:
            values, targets, columns, times, mask = self._step_targets(replay, sample)
        errors = targets - values
        weights = mask
        if self.algorithm_config.prioritized and not self.policy.state_size:
            # Beta of the paper; the largest weight is 1.
            exponent = -self.algorithm_config.importance_exponent
            weights = (sample.probabilities * replay.steps) ** exponent
            weights = send(weights / weights.max(), self.device)
        if self.algorithm_config.prioritized:
            replay.update_priorities(columns, times, errors.detach().cpu())
        loss = self.mean(weights * functional.smooth_l1_loss(
            values, targets, reduction='none'), mask)
        return loss, {
            'losses/loss': loss, 'losses/q_values': self.mean(values, mask),
            'losses/mean_target': self.mean(targets, mask),
            'losses/td_error': self.mean(errors.abs(), mask)}

    def _step_targets(self, replay: Replay, sample: Sample) -> tuple[Tensor, ...]:
        """
        Return values, targets, columns, times and mask of the sampled steps, [N] each.

        Columns and times are indices into the replay, in host memory.
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
            best = _q(self.policy(following)) if self.algorithm_config.double_q else q_target
        targets = self._targets(q_target, best, returns, factors)
        return values, targets, column, time, torch.ones_like(values)

    def _column_targets(self, replay: Replay, sample: Sample) -> tuple[Tensor, ...]:
        """Return the same of the sampled columns, [T, N] each."""
        steps, column = replay.actions.shape[1], sample.column
        observations = gather(replay.observations, (column,), self.device).movedim(0, 1)
        is_reset, actions, rewards, later, returns, factors, valid = (
            send(each[column], self.device).T for each in (
                replay.is_reset, replay.actions, replay.rewards, replay.times, replay.returns,
                replay.factors, replay.valid))
        state = send(replay.state[column], self.device)
        inputs = observations, is_reset, state, actions, rewards
        q = _q(self.policy(*inputs))
        values = q[:-1].gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        with torch.no_grad():
            q_target = _q(self.target(*inputs))
        best = q.detach() if self.algorithm_config.double_q else q_target
        later = later.unsqueeze(-1).expand(-1, -1, q.shape[-1])
        targets = self._targets(q_target.gather(0, later), best.gather(0, later),
                                returns, factors)
        times = torch.arange(steps)[:, None].expand(values.shape)
        return values, targets, column.expand(values.shape), times, valid.float()

    @staticmethod
    def _targets(q_target: Tensor, best: Tensor, returns: Tensor, factors: Tensor) -> Tensor:
        """Return n-step targets: returns plus the target network's value of the best action."""
        chosen = best.argmax(-1, keepdim=True)
        return returns + factors * q_target.gather(-1, chosen).squeeze(-1)

    def state(self) -> dict[str, Any]:
        """See :meth:`algorithm.Algorithm.state`; the replay is not saved; it is filled anew."""
        return {**super().state(), 'target': self.target.state_dict(),
                'steps': self.optimizer.steps}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """See :meth:`algorithm.Algorithm.load_state`."""
        super().load_state(state)
        self.target.load_state_dict(state['target'])
        self.optimizer.steps = int(state['steps'])


def _q(output: Any) -> Tensor:
    """Return the action values, [..., n], without the exploration parameter."""
    q: Tensor = output.parameters[..., :-1]
    return q
