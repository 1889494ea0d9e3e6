"""DQN: action values learned from a replay of the actors' steps.

Mnih et al. 2015; double (van Hasselt et al. 2016, arXiv:1509.06461), n-step (Sutton 1988),
optionally with prioritised replay (Schaul et al. 2016, arXiv:1511.05952). Actors explore by
:func:`exploration_schedule`. As in Ape-X, n-step sums are not corrected for actions that the
policy would no longer take. With an LSTM or last_action_reward, samples are whole columns that
start from the actor's recurrent state (Kapturowski et al. 2019, R2D2); they are drawn by the
priorities of their steps, without importance weights in the loss.
"""

import copy
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from vdl_ros.rl.algorithms import algorithm
from vdl_ros.rl.data.replay import Replay, Sample
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.device import gather, send
from vdl_ros.rl.settings import DqnConfig


class Algorithm(algorithm.ReplayAlgorithm):
    """Q-learning with a target network."""

    algorithm_config: DqnConfig

    def setup(self, schema: UnrollSchema) -> None:
        super().setup(schema)
        self.target = copy.deepcopy(self.policy)
        self.target.requires_grad_(requires_grad=False)
        # Its own would be empty until the first copy.
        self.target.normalizer = self.policy.normalizer

    def update_target(self) -> None:
        """Copy the network into the target network at each period."""
        if self.optimizer.steps % self.algorithm_config.target_period == 0:
            self.target.load_state_dict(self.policy.state_dict())

    def loss(self, replay: Replay, sample: Sample) -> tuple[Tensor, algorithm.Metrics]:
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
        """Return values, targets, columns, times and mask of the sampled steps, [N] each.

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


def _q(output: Any) -> Tensor:
    """Return the action values, [..., n], without the exploration parameter."""
    q: Tensor = output.parameters[..., :-1]
    return q
