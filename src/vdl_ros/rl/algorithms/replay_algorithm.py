"""Base class of the algorithms that learn from a replay of the actors' steps.

Each of several learners has its own replay, and all wait until every replay holds enough. The
replay is in host memory, because a GPU has less; samples are sent to the policy's device. It is
not part of a checkpoint: without ``save_replay`` a resumed run fills it anew.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vdl_ros.rl.algorithms import algorithm
from vdl_ros.rl.data.batch import Batch
from vdl_ros.rl.data.replay import Replay, Sample
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.settings import DqnConfig, SacConfig


class ReplayAlgorithm(algorithm.Algorithm):
    """For each batch as many optimizer steps as ``replay_ratio`` gives for its new steps.

    Subclasses make ``target``, the network or networks that bootstrap values come from, and
    implement :meth:`loss` and :meth:`update_target`.
    """

    learns_from_host = True
    algorithm_config: DqnConfig | SacConfig
    target: nn.Module

    def setup(self, schema: UnrollSchema) -> None:
        own = self.algorithm_config
        exponent = 0.0
        if isinstance(own, DqnConfig) and own.prioritized:
            exponent = own.priority_exponent
        self._replay = Replay(schema, own.replay_size, self.config.discount, own.n_step, exponent,
                              self.group.size)
        # Samples of one optimizer step, and the number of environment steps in them.
        self._sample_size = self._sampled_steps = own.replay_batch
        if self.policy.state_size:
            self._sample_size = max(own.replay_batch // schema.unroll_length, 1)
            self._sampled_steps = self._sample_size * schema.unroll_length
        self._pending_updates = 0.0

    def update(self, batch: Batch) -> dict[str, float]:
        self._replay.add(batch, self.rewards(batch))
        # Before the steps: it does not matter with which statistics actors acted.
        self.update_normalizer(batch)
        return self.learn(batch)

    def learn(self, batch: Batch) -> dict[str, float]:
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
        count = self.planned = int(self._pending_updates)
        self._pending_updates -= count
        made = 0
        while made < count and not self.is_interrupted() and not (made and self.is_awaited()):
            sample = replay.sample(self._sample_size)
            for name, value in self.optimizer.step(*self.loss(replay, sample)).items():
                sums[name] = sums.get(name, 0.0) + value
            self.update_target()
            made += 1
        if made:
            metrics['losses/optimizer_steps'] = float(made)
        return {name: total / made for name, total in sums.items()} | metrics

    def loss(self, replay: Replay, sample: Sample) -> tuple[Tensor, algorithm.Metrics]:
        """Return the loss to minimise, a scalar, and its metrics; update the priorities."""
        raise NotImplementedError

    def update_target(self) -> None:
        """Update the target after an optimizer step."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        return {**super().state(), 'target': self.target.state_dict(),
                'steps': self.optimizer.steps}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.target.load_state_dict(state['target'])
        self.optimizer.steps = int(state['steps'])

    def replay_arrays(self) -> dict[str, NDArray[Any]]:
        return {**self._replay.arrays(), 'pending_updates': np.array(self._pending_updates)}

    def load_replay_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        pending = arrays.get('pending_updates', np.zeros(0))
        if pending.shape or pending.dtype != np.float64 or not 0 <= pending < 1:
            raise ValueError('pending_updates: not a number from 0 to 1')
        self._replay.load_arrays(
            {name: array for name, array in arrays.items() if name != 'pending_updates'})
        self._pending_updates = float(pending)
