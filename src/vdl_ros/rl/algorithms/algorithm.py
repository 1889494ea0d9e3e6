"""What every learning algorithm is: a policy, a batch, an update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    A policy and how it learns.

    How it acts is the policy's own matter: ``policy.distribution``, whose parameters it puts out.
    Subclasses write :meth:`update`.

    Attributes:
        learns_from_host: whether batches stay in host memory, to be kept for later; else they
            come on ``device``.
        device: where the policy is, and all that meets it.
        policy: the network.
        config: settings of every algorithm.
        own: settings of this one.
        optimizer: the optimiser's steps.
        group: of the learners that share the work.
    """

    learns_from_host = False
    own: AlgorithmConfig

    def __init__(
        self, policy: Policy, config: TrainConfig, own: AlgorithmConfig, schema: UnrollSchema,
        group: Group,
    ) -> None:
        """
        Learn the parameters of ``policy`` from unrolls of ``schema``.

        Raises:
            ValueError: settings that this machine cannot serve.
        """
        self.policy, self.config, self.own, self.group = policy, config, own, group
        self.device = next(policy.parameters()).device
        self.optimizer = PolicyOptimizer(policy, config, group)

    def update(self, batch: Batch) -> dict[str, float]:
        """
        Learn from a batch.

        Returns:
            Figures by the tag that TensorBoard shows them under, as ``losses/policy``.

        Raises:
            FloatingPointError: a loss or gradient that is not finite; it names it.
        """
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold beside the policy: tensors and plain values."""
        return {'optimizer': self.optimizer.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """
        Go on from :meth:`state`.

        Raises:
            KeyError, TypeError, RuntimeError, ValueError: of another algorithm or optimiser.
        """
        self.optimizer.load_state(state['optimizer'])

    def rewards(self, batch: Batch) -> Tensor:
        """Return what losses see of rewards, float [T, B]."""
        return self.config.reward_scale * transform_rewards(
            batch.rewards, self.config.reward_transform)

    def discounts(self, batch: Batch) -> Tensor:
        """Return gamma, and 0 where the task terminated, float [T, B]."""
        return self.config.discount * (~batch.terminated).float()

    def see(self, batch: Batch) -> None:
        """Take observations into the statistics that normalise them, if any do."""
        if self.policy.normalizer is not None:
            kept = batch.observations[:-1][batch.valid]
            self.policy.normalizer.update(send(kept.flatten(1), self.device), self.group.sum)

    def mean(self, values: Tensor, mask: Tensor) -> Tensor:
        """Return this learner's part of a mean over all; see :func:`masked_mean`."""
        return masked_mean(values, mask, self.group)
