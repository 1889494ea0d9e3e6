"""The learner: a policy, an optimiser, and one update from a batch of unrolls."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from vdl_ros.rl.actor import weights
from vdl_ros.rl.config import TrainConfig
from vdl_ros.rl.impala import Batch, impala_loss
from vdl_ros.rl.networks import Policy, make_policy
from vdl_ros.rl.phases import Phases
from vdl_ros.rl.unroll import Arrays, Unroll, UnrollSchema

__all__ = ['Learner', 'make_batch']


def make_batch(unrolls: Sequence[Unroll], schema: UnrollSchema) -> Batch:
    """Put unrolls side by side: every array is copied once, into its place in the batch."""
    steps = schema.unroll_length
    space = schema.observation_space
    total = sum(unroll.num_envs for unroll in unrolls)
    observations = np.empty((steps + 1, total, *space.shape), space.dtype)
    start = 0
    for unroll in unrolls:
        stop = start + unroll.num_envs
        schema.decode_into(unroll.arrays, observations[:, start:stop])
        start = stop

    def joined(name: str) -> torch.Tensor:
        return torch.from_numpy(
            np.concatenate([unroll.arrays[name] for unroll in unrolls], axis=1))

    return Batch(
        torch.from_numpy(observations), joined('actions'), joined('rewards'),
        joined('terminated'), ~joined('is_reset')[1:], joined('behaviour_log_probs'))


class Learner:
    """
    Learns a policy from unrolls.

    Attributes:
        policy: the network.
        version: number of updates made.
        agent_steps: valid steps learned from.
    """

    def __init__(
        self,
        config: TrainConfig,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        frames_per_observation: int = 1,
        phases: Phases | None = None,
    ) -> None:
        """
        Make the network with weights drawn by ``config.seed``.

        Args:
            config: settings of the learning.
            observation_space: of one environment.
            action_space: of one environment.
            frames_per_observation: pictures stacked in one observation.
            phases: the clock of the thread that learns.

        Raises:
            ValueError: spaces the network cannot serve.
        """
        torch.manual_seed(config.seed)
        self.config = config
        self.policy = make_policy(
            config.network, observation_space, action_space, config.hidden_size,
            config.precision)
        self.schema = UnrollSchema(
            observation_space, action_space, config.unroll_length, frames_per_observation)
        self.version = 0
        self.agent_steps = 0
        self._phases = phases or Phases()
        self._optimizer: torch.optim.Optimizer
        self._epsilon = 1e-5 if config.optimizer == 'adam' else config.rmsprop_epsilon
        if config.optimizer == 'adam':
            self._optimizer = torch.optim.Adam(
                self.policy.parameters(), config.learning_rate, eps=self._epsilon)
        else:
            self._optimizer = torch.optim.RMSprop(
                self.policy.parameters(), config.learning_rate, alpha=0.99,
                eps=self._epsilon)

    def update(self, unrolls: Sequence[Unroll]) -> dict[str, float]:
        """
        Learn from one batch; return the loss's parts and the gradient's norm.

        Raises:
            UnrollError: an unroll whose frames do not fit together.
            FloatingPointError: the loss or its gradient is not finite; nothing was changed.
        """
        with self._phases('decode'):
            batch = make_batch(unrolls, self.schema)
        with self._phases('learn'):
            return self._learn(batch)

    def _learn(self, batch: Batch) -> dict[str, float]:
        loss, parts = impala_loss(self.policy, batch, self.config)
        if not torch.isfinite(loss):
            broken = [name for name, value in parts.items() if not torch.isfinite(value)]
            raise FloatingPointError(
                f'update {self.version}: {", ".join(broken)} not finite')
        for group in self._optimizer.param_groups:
            group['lr'] = self.learning_rate
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self.policy.parameters(), self.config.max_grad_norm)
        if not torch.isfinite(norm):
            raise FloatingPointError(f'update {self.version}: the gradient is not finite')
        self._optimizer.step()
        self.version += 1
        self.agent_steps += int(batch.valid.sum())
        metrics = {name: float(value) for name, value in parts.items()}
        metrics['losses/grad_norm'] = float(norm)
        metrics['charts/learning_rate'] = self.learning_rate
        return metrics

    @property
    def learning_rate(self) -> float:
        """The step size at this point of the schedule."""
        if self.config.learning_rate_schedule == 'constant':
            return self.config.learning_rate
        left = 1.0 - self.agent_steps / self.config.total_steps
        return self.config.learning_rate * max(left, 0.0)

    def weights(self) -> Arrays:
        """Return the policy's parameters; valid until the next update."""
        return weights(self.policy)

    def copy_policy(self) -> Policy:
        """Return another policy of the same network, to act while this one learns."""
        return copy.deepcopy(self.policy)

    def state(self) -> dict[str, Any]:
        """Return everything that a checkpoint must hold to go on from here."""
        return {
            'policy': self.policy.state_dict(),
            'optimizer': self._optimizer.state_dict(),
            'version': self.version,
            'agent_steps': self.agent_steps,
            'torch_rng': torch.get_rng_state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """
        Go on from a checkpoint's state.

        Raises:
            ValueError: the state of another network or optimiser.
        """
        try:
            # torch would load the one into the other, and fail at the next update.
            was = 'adam' if 'betas' in state['optimizer']['param_groups'][0] else 'rmsprop'
            if was != self.config.optimizer:
                raise TypeError(f'optimizer {was} is not {self.config.optimizer}')
            self.policy.load_state_dict(state['policy'])
            self._optimizer.load_state_dict(state['optimizer'])
            for group in self._optimizer.param_groups:
                group['eps'] = self._epsilon
            torch.set_rng_state(state['torch_rng'])
            self.version = int(state['version'])
            self.agent_steps = int(state['agent_steps'])
        except (IndexError, KeyError, RuntimeError, TypeError) as error:
            # torch's first line only says that there is an error.
            reason = ' '.join(str(error).split())[:200]
            raise ValueError(f'checkpoint: not of this network: {reason}') from None
