"""The learner: a policy and the algorithm that trains it; counts its updates and agent steps."""

import copy
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from vdl_ros.common.metrics import ThreadTimer
from vdl_ros.rl.algorithms import make_algorithm
from vdl_ros.rl.data.batch import Batch, make_batch
from vdl_ros.rl.data.unroll import Arrays, Unroll, UnrollSchema
from vdl_ros.rl.device import CPU
from vdl_ros.rl.distributed.collectives import DeltaExchange, Group
from vdl_ros.rl.learning.demonstrations import repeated
from vdl_ros.rl.policy.policy import Policy, choose_precision, make_policy, weights
from vdl_ros.rl.runs.checkpoint import load_initial_weights, pack, unpack
from vdl_ros.rl.settings import AlgorithmConfig, TrainConfig, make_algorithm_config

# Purposes of random numbers.
_LEARNING, _ACTING = range(2)


class Learner:
    """Learns a policy from unrolls.

    ``init`` is a checkpoint with the first weights, or ''; ``agent_steps`` are the valid steps
    learned from, by all learners. ValueError: spaces that the network or the algorithm does not
    support, or a checkpoint that cannot be read or is of another network.
    """

    def __init__(
        self, config: TrainConfig, observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any], frames_per_observation: int = 1,
        timer: ThreadTimer | None = None, *, algorithm_config: AlgorithmConfig | None = None,
        group: Group | None = None, device: torch.device = CPU, init: str = '',
    ) -> None:
        torch.manual_seed(config.seed)
        self.config = config
        self.algorithm_config = algorithm_config or make_algorithm_config(config, {})
        self.group = group or Group()
        self.device = device
        self.policy = make_policy(
            config, observation_space, action_space, self.algorithm_config, device)
        if init:
            load_initial_weights(Path(init), self.policy, config)
        chunk = self.policy.chunk
        # The state of chunks is only for acting.
        self.schema = UnrollSchema(
            observation_space, repeated(action_space, chunk), config.unroll_length,
            frames_per_observation, self.policy.state_size if chunk == 1 else 0)
        by_delta = config.exchange == 'delta' and self.group.size > 1
        self.algorithm = make_algorithm(
            self.policy, config, self.algorithm_config, self.schema,
            Group() if by_delta else self.group)
        self._exchange = (DeltaExchange(self.policy, config.exchange_period, self.group)
                          if by_delta else None)
        self._batch_device = CPU if self.algorithm.learns_from_host else device
        self.version = 0
        self.agent_steps = 0
        self._seed = config.seed
        self._timer = timer or ThreadTimer()

    def update(self, unrolls: Sequence[Unroll]) -> dict[str, float]:
        return self.learn(self.make_batch(unrolls))

    def make_batch(self, unrolls: Sequence[Unroll]) -> Batch:
        """Return unrolls, whose arrays the schema has checked, as one batch."""
        with self._timer('decode'):
            return make_batch(unrolls, self.schema).on(self._batch_device)

    def learn(self, batch: Batch) -> dict[str, float]:
        """Make one update from this learner's batch and those of the others; return metrics.

        With ``freeze`` only the steps are counted. Raises FloatingPointError if a loss or gradient
        is not finite, and GroupError if another learner is gone.
        """
        with self._timer('learn'):
            optimizer = self.algorithm.optimizer
            optimizer.schedule(self.agent_steps)
            metrics: dict[str, float] = {}
            failure = ''
            if not self.config.freeze:
                try:
                    with self._forked_rng():
                        torch.manual_seed(self._seed_for(_LEARNING))
                        metrics = self.algorithm.update(batch)
                except FloatingPointError as error:
                    failure = str(error)
            # Learners that step alone (exchange: delta) also fail alone, and end together.
            steps, failures = self.group.all_reduce_sum(
                torch.tensor([int(batch.valid.sum()), bool(failure)])).tolist()
            if failures:
                raise FloatingPointError(
                    f'update {self.version}: {failure or "of another learner, which says why"}')
            if not self.config.freeze:
                if self._exchange is not None:
                    self._exchange.after_update()
                self.version += 1
            self.agent_steps += steps
            metrics['charts/learning_rate'] = optimizer.learning_rate
            return metrics

    def warm_up(self) -> None:
        """Learn from demonstrations before anybody acts; FloatingPointError: as :meth:`learn`."""
        if not self.config.freeze:
            with self._timer('learn'), self._forked_rng():
                torch.manual_seed(self._seed_for(_LEARNING))
                self.algorithm.warm_up()

    def _forked_rng(self) -> AbstractContextManager[None]:
        """Return a context after which PyTorch's random state is what it was before."""
        on_cpu = self.device.type == 'cpu'
        return torch.random.fork_rng(
            [] if on_cpu else [self.device], device_type='cuda' if on_cpu else self.device.type)

    def _seed_for(self, purpose: int) -> int:
        """Return the seed of this learner's random numbers from this update on.

        Each of several learners draws others, and the same ones after the run is resumed.
        """
        numbers = [self._seed, self.group.rank, self.version, purpose]
        return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])

    def broadcast_state(self) -> None:
        """Load the state of learner 0; all learners call this at the same time.

        ValueError: learner 0 has another network. GroupError: another learner is gone.
        """
        if self.group.size == 1:
            return
        state = self.group.broadcast(b'' if self.group.rank else pack(self.state()))
        if self.group.rank:
            self.load_state(unpack(state))
            # Not the stream of learner 0, by which it may choose the actions of its actors.
            torch.manual_seed(self._seed_for(_ACTING))
        if self._exchange is not None:
            self._exchange.restart()

    def weights(self) -> Arrays:
        """Return the policy's parameters; valid until the next update."""
        return weights(self.policy)

    def copy_policy(self) -> Policy:
        """Return a copy of the policy on the CPU, to act while this one learns."""
        policy = copy.deepcopy(self.policy)
        if self.device != CPU:
            # Its precision may differ from that on another device.
            choose_precision(policy.to(CPU), self.config.precision)
        return policy

    def state(self) -> dict[str, Any]:
        return {
            'policy': self.policy.state_dict(), 'algorithm': self.algorithm.state(),
            'version': self.version, 'agent_steps': self.agent_steps, 'seed': self._seed,
            'torch_rng': torch.get_rng_state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore :meth:`state`; ValueError: it is of another network, algorithm or optimizer."""
        try:
            self.algorithm.load_state(state['algorithm'])
            self.policy.load_state_dict(state['policy'])
            torch.set_rng_state(state['torch_rng'])
            self.version = int(state['version'])
            self.agent_steps = int(state['agent_steps'])
            # Older checkpoints do not have it.
            self._seed = int(state.get('seed', self._seed))
        except (IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            # torch's first line only says that there is an error.
            reason = ' '.join(str(error).split())[:200]
            raise ValueError(f'checkpoint: not of this network: {reason}') from None
