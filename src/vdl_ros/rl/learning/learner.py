"""The learner: a policy and an algorithm that learns it, counted in versions and agent steps."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import torch

from vdl_ros.common.thread_timer import ThreadTimer
from vdl_ros.rl.acting.actor import weights
from vdl_ros.rl.algorithm_config import AlgorithmConfig, make_algorithm_config
from vdl_ros.rl.algorithms import make_algorithm
from vdl_ros.rl.data.batch import Batch, make_batch
from vdl_ros.rl.data.unroll import Arrays, Unroll, UnrollSchema
from vdl_ros.rl.device import CPU, memory_of
from vdl_ros.rl.distributed.collectives import Group
from vdl_ros.rl.policy.policy import Policy, choose_precision, make_policy
from vdl_ros.rl.runs.checkpoint import pack, unpack
from vdl_ros.rl.train_config import TrainConfig

__all__ = ['Learner']


class Learner:
    """
    Learns a policy from unrolls.

    Attributes:
        config: settings of the learning.
        own: settings of its algorithm.
        policy: the network.
        algorithm: how it learns.
        schema: what unrolls look like.
        group: of the learners that share the work.
        device: what it computes on.
        version: number of updates made.
        agent_steps: valid steps learned from, by all learners.
    """

    def __init__(
        self,
        config: TrainConfig,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        frames_per_observation: int = 1,
        phases: ThreadTimer | None = None,
        *,
        own: AlgorithmConfig | None = None,
        group: Group | None = None,
        device: torch.device = CPU,
    ) -> None:
        """
        Make the network with weights drawn by ``config.seed``.

        Args:
            config: settings of the learning.
            observation_space: of one environment.
            action_space: of one environment.
            frames_per_observation: pictures stacked in one observation.
            phases: the clock of the thread that learns.
            own: settings of the algorithm; its defaults if they are not given.
            group: of the learners that share the work; this one alone if it is not given.
            device: what it computes on; see :func:`choose_device`.

        Raises:
            ValueError: spaces the network or the algorithm cannot serve.
        """
        torch.manual_seed(config.seed)
        self.config, self.own = config, own or make_algorithm_config(config, {})
        self.group = group or Group()
        self.device = device
        self.policy = make_policy(config, observation_space, action_space, self.own, device)
        self.schema = UnrollSchema(
            observation_space, action_space, config.unroll_length, frames_per_observation,
            self.policy.state_size)
        self.algorithm = make_algorithm(
            self.policy, config, self.own, self.schema, self.group)
        self._memory = memory_of(CPU if self.algorithm.learns_from_host else device)
        self.version = 0
        self.agent_steps = 0
        self._phases = phases or ThreadTimer()

    def update(self, unrolls: Sequence[Unroll]) -> dict[str, float]:
        """
        Learn from unrolls; see :meth:`decode` and :meth:`learn`.

        Raises:
            UnrollError, FloatingPointError: as these.
        """
        return self.learn(self.decode(unrolls))

    def decode(self, unrolls: Sequence[Unroll]) -> Batch:
        """
        Return unrolls as one batch.

        Raises:
            UnrollError: an unroll whose frames do not fit together.
        """
        with self._phases('decode'):
            return make_batch(unrolls, self.schema, self._memory)

    def learn(self, batch: Batch) -> dict[str, float]:
        """
        Learn from one batch, and from those of the other learners; return what is told of it.

        Raises:
            FloatingPointError: the loss or its gradient is not finite; it names what.
            GroupError: another learner is gone.
        """
        with self._phases('learn'):
            self._memory.wait_for_copies(batch.tensors)
            optimizer = self.algorithm.optimizer
            optimizer.schedule(self.agent_steps)
            try:
                metrics = self.algorithm.update(batch)
            except FloatingPointError as error:
                raise FloatingPointError(f'update {self.version}: {error}') from None
            self.version += 1
            self.agent_steps += int(self.group.sum(batch.valid.sum()))
            metrics['charts/learning_rate'] = optimizer.learning_rate
            return metrics

    def broadcast_state(self) -> None:
        """
        Go on from the state of the first learner: all call this at the same time.

        Raises:
            ValueError: the first one has another network, algorithm or optimiser.
            GroupError: another learner is gone.
        """
        if self.group.size == 1:
            return
        state = self.group.broadcast(b'' if self.group.rank else pack(self.state()))
        if self.group.rank:
            self.load_state(unpack(state))

    def weights(self) -> Arrays:
        """Return the policy's parameters; valid until the next update."""
        return weights(self.policy)

    def copy_policy(self) -> Policy:
        """
        Return another policy of the same network, to act while this one learns.

        It acts where all actors do, on the CPU, and so may compute in another precision.
        """
        policy = copy.deepcopy(self.policy)
        if self.device != CPU:
            choose_precision(policy.to(CPU), self.config.precision)
        return policy

    def state(self) -> dict[str, Any]:
        """Return everything that a checkpoint must hold to go on from here."""
        return {
            'policy': self.policy.state_dict(),
            'algorithm': self.algorithm.state(),
            'version': self.version,
            'agent_steps': self.agent_steps,
            'torch_rng': torch.get_rng_state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """
        Go on from a checkpoint's state.

        Raises:
            ValueError: the state of another network, algorithm or optimiser.
        """
        try:
            self.algorithm.load_state(state['algorithm'])
            self.policy.load_state_dict(state['policy'])
            torch.set_rng_state(state['torch_rng'])
            self.version = int(state['version'])
            self.agent_steps = int(state['agent_steps'])
        except (IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            # torch's first line only says that there is an error.
            reason = ' '.join(str(error).split())[:200]
            raise ValueError(f'checkpoint: not of this network: {reason}') from None
