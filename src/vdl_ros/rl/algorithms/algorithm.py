"""Base class of the learning algorithms: a batch in, optimizer steps and metrics out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from vdl_ros.rl.algorithm_config import AlgorithmConfig
from vdl_ros.rl.algorithms.optimizer import PolicyOptimizer
from vdl_ros.rl.data.batch import Batch, transform_rewards
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.device import send
from vdl_ros.rl.distributed.collectives import Group, masked_mean
from vdl_ros.rl.policy.policy import Policy
from vdl_ros.rl.train_config import TrainConfig

__all__ = ['Algorithm', 'Metrics']

Metrics = dict[str, Tensor]


class Algorithm:
    """
    Base class of the learning algorithms; subclasses implement :meth:`update`.

    Attributes:
        learns_from_host: whether batches stay in host memory, as for a replay; else they are on
            ``device``.
        device: device of the policy and of all tensors that are computed with it.
        policy: the network.
        config: settings of every algorithm.
        algorithm_config: settings of this algorithm.
        optimizer: the optimizer of the policy's parameters.
        group: the learners that share the work.
    """

    learns_from_host = False
    algorithm_config: AlgorithmConfig

    def __init__(
        self, policy: Policy, config: TrainConfig, algorithm_config: AlgorithmConfig,
        schema: UnrollSchema, group: Group,
    ) -> None:
        """
        Learn the parameters of ``policy`` from unrolls of ``schema``.

        Raises:
            ValueError: settings that do not fit this machine.
        """
        self.policy, self.config, self.group = policy, config, group
        self.algorithm_config = algorithm_config
        self.device = next(policy.parameters()).device
        self.optimizer = PolicyOptimizer(policy, config, group)

    def update(self, batch: Batch) -> dict[str, float]:
        """
        Learn from a batch.

        Returns:
            Metrics by TensorBoard tag, such as ``losses/policy_loss``.

        Raises:
            FloatingPointError: a loss or gradient is not finite; the message names it.
        """
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Return the checkpoint's state beside the policy: tensors and plain values."""
        return {'optimizer': self.optimizer.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """
        Restore :meth:`state`.

        Raises:
            KeyError, TypeError, RuntimeError, ValueError: state of another algorithm or optimizer.
        """
        self.optimizer.load_state(state['optimizer'])

    def replay_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what is learned from again, for a file; {} of an algorithm without replay."""
        return {}

    def load_replay_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """
        Restore :meth:`replay_arrays`.

        Raises:
            ValueError: arrays of another replay, or damaged ones.
        """
        raise NotImplementedError

    def rewards(self, batch: Batch) -> Tensor:
        """Return the transformed and scaled rewards of the loss, float [T, B]."""
        return self.config.reward_scale * transform_rewards(
            batch.rewards, self.config.reward_transform)

    def discounts(self, batch: Batch) -> Tensor:
        """Return gamma, and 0 where the task terminated, float [T, B]."""
        return self.config.discount * (~batch.terminated).float()

    def update_normalizer(self, batch: Batch) -> None:
        """Add the batch's observations to the normalizer's statistics, if there is one."""
        if self.policy.normalizer is not None:
            kept = batch.observations[:-1][batch.valid]
            self.policy.normalizer.update(
                send(self.policy.numbers(kept), self.device), self.group.all_reduce_sum)

    def mean(self, values: Tensor, mask: Tensor) -> Tensor:
        """Return this learner's part of a mean over all learners; see :func:`masked_mean`."""
        return masked_mean(values, mask, self.group)
