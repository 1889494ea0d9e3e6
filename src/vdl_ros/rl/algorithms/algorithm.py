"""Bases of the algorithms; an optimizer that checks that all is finite; GAE and V-trace."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vdl_ros.common.observation_spaces import MirroredBox
from vdl_ros.rl.algorithms import algorithm
from vdl_ros.rl.data.batch import Batch, transform_rewards
from vdl_ros.rl.data.replay import Replay, Sample
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.device import send
from vdl_ros.rl.distributed.collectives import Group, masked_mean, standardized
from vdl_ros.rl.policy.policy import Policy
from vdl_ros.rl.settings import AlgorithmConfig, DqnConfig, SacConfig, TrainConfig


class PolicyOptimizer:
    """The optimizer of a network that several learners train together.

    Attributes:
        learning_rate: of the next step: by the schedule, times ``learning_rate_factor``.
        steps: number of steps made.
        after_step: called after each step.
    """

    def __init__(self, network: nn.Module, config: TrainConfig, group: Group) -> None:
        self.group = group
        self.learning_rate = config.learning_rate
        self.learning_rate_factor = 1.0
        self.steps = 0
        self.after_step: Callable[[], None] = lambda: None
        self._config = config
        self._named = [(name, parameter) for name, parameter in network.named_parameters()
                       if parameter.requires_grad]
        self._parameters = [parameter for _, parameter in self._named]
        self._epsilon = 1e-5 if config.optimizer == 'adam' else config.rmsprop_epsilon
        self._optimizer: torch.optim.Optimizer
        if config.optimizer == 'adam':
            self._optimizer = torch.optim.Adam(
                self._parameters, config.learning_rate, eps=self._epsilon, fused=True)
        else:
            self._optimizer = torch.optim.RMSprop(
                self._parameters, config.learning_rate, alpha=0.99, eps=self._epsilon)

    def schedule(self, agent_steps: int) -> None:
        config = self._config
        self.learning_rate = config.learning_rate * self.learning_rate_factor
        if config.learning_rate_schedule == 'linear':
            self.learning_rate *= max(1.0 - agent_steps / config.total_steps, 0.0)

    def step(self, loss: Tensor, metrics: Mapping[str, Tensor]) -> dict[str, float]:
        """Make one step that lowers ``loss``; return the metrics' means over all learners.

        Loss and metrics, scalars by TensorBoard tag, are this learner's parts of means over all.
        With them is 'losses/grad_norm', the norm of the gradient before clipping.

        Raises:
            FloatingPointError: loss or gradient is not finite; no parameter has changed.
        """
        scalars = torch.stack([each.detach().double() for each in (loss, *metrics.values())])
        sums = self.group.all_reduce_sum(scalars)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.group.all_reduce_gradients(self._parameters)
        gradients = {name: parameter.grad for name, parameter in self._named
                     if parameter.grad is not None}
        norm = torch.linalg.vector_norm(torch.stack([
            torch.linalg.vector_norm(gradient) for gradient in gradients.values()]))
        # The sum over all learners is checked, so that all fail together; only here, because each
        # read waits for the device.
        total, *means, length = torch.cat([sums, norm.detach().double()[None]]).tolist()
        if not math.isfinite(total):
            broken = [name for name, value in metrics.items() if not torch.isfinite(value)]
            raise FloatingPointError(f'{", ".join(broken) or "loss of another learner"} '
                                     'not finite')
        if not math.isfinite(length):
            broken = [name for name, gradient in gradients.items()
                      if not torch.isfinite(gradient).all()]
            raise FloatingPointError(
                f'the gradient of {", ".join(broken) or "all parameters"} is not finite')
        # After the check: a NaN factor would spoil every gradient.
        factor = (self._config.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        for gradient in gradients.values():
            gradient.mul_(factor)
        for group in self._optimizer.param_groups:
            group['lr'] = self.learning_rate
        self._optimizer.step()
        self.steps += 1
        self.after_step()
        return dict(zip(metrics, means, strict=True)) | {'losses/grad_norm': length}

    def state(self) -> dict[str, Any]:
        return self._optimizer.state_dict()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore :meth:`state`; raise a TypeError if it is of another optimizer."""
        # torch would accept another optimizer's state and fail at the next step.
        was = 'adam' if 'betas' in state['param_groups'][0] else 'rmsprop'
        if was != self._config.optimizer:
            raise TypeError(f'optimizer {was} is not {self._config.optimizer}')
        self._optimizer.load_state_dict(dict(state))
        for group in self._optimizer.param_groups:
            group['eps'] = self._epsilon


Metrics = dict[str, Tensor]


class Mirror:
    """Steps of a task that is the same in a mirror, half of them as they look there.

    So each step teaches for both sides (Mittal et al. 2024, arXiv:2403.04359). ``chunk`` is the
    number of steps whose actions are one.
    """

    def __init__(
        self, space: MirroredBox, schema: UnrollSchema, chunk: int, device: torch.device,
    ) -> None:
        self._signs = torch.from_numpy(space.signs).to(device)
        changes = torch.from_numpy(space.action_signs).repeat(chunk) < 0
        # What a part and its mirror image add up to.
        sums = torch.from_numpy(schema.action_sizes - 1) if schema.action_sizes.size else (
            torch.zeros(len(changes)))
        self._changes, self._sums = changes.to(device), sums.to(device)

    def __call__(self, actions: Tensor, *observations: Tensor) -> tuple[Tensor, ...]:
        """Return actions, [..., A] or [...], and observations, [..., V] each."""
        leading = observations[0].shape[:-1]
        chosen = torch.rand(*leading, 1, device=actions.device) < 0.5
        parts = actions.reshape(*leading, -1)
        parts = torch.where(chosen & self._changes, self._sums - parts, parts)
        return parts.reshape(actions.shape), *(
            torch.where(chosen, self._signs * each, each) for each in observations)


class Algorithm:
    """Base class of the learning algorithms; subclasses implement :meth:`learn`.

    ``learns_from_host`` says whether batches stay in host memory, as for a replay; else they are
    on ``device``, as the policy is. An update of many optimizer steps ends between two once
    ``is_interrupted``; never one of several learners, which make the same number. ``planned`` are
    those of the update under way, at most. Those of a replay give up the rest of their optimizer
    steps once it ``is_awaited``: new steps have arrived of a robot that waits for nobody.
    """

    learns_from_host = False
    planned = 1
    algorithm_config: AlgorithmConfig

    def __init__(
        self, policy: Policy, config: TrainConfig, algorithm_config: AlgorithmConfig,
        schema: UnrollSchema, group: Group,
    ) -> None:
        self.policy, self.config, self.group = policy, config, group
        self.algorithm_config = algorithm_config
        self.is_interrupted: Callable[[], bool] = lambda: False
        self.is_awaited: Callable[[], bool] = lambda: False
        self.device = next(policy.parameters()).device
        self.optimizer = PolicyOptimizer(policy, config, group)
        self._has_statistics = policy.normalizer is None
        space = schema.observation_space
        self._mirror = Mirror(space, schema, policy.chunk, self.device) if isinstance(
            space, MirroredBox) else None
        self.setup(schema)

    def setup(self, schema: UnrollSchema) -> None:
        """Make what the algorithm has beside policy and optimizer."""

    def update(self, batch: Batch) -> dict[str, float]:
        """Learn from a batch, and then add its observations to the statistics.

        The first batch is for the statistics alone: what the policy learned without them would
        be another policy with them.

        Returns:
            Metrics by TensorBoard tag, such as ``losses/policy_loss``.

        Raises:
            FloatingPointError: a loss or gradient is not finite; the message names it.
        """
        # Each look at the count waits for the device.
        if not self._has_statistics and self.policy.normalizer is not None:
            self._has_statistics = True
            if not self.policy.normalizer.count:
                self.update_normalizer(batch)
                return {}
        metrics = self.learn(batch)
        self.update_normalizer(batch)
        return metrics

    def warm_up(self) -> None:
        """Make the optimizer steps that are due before anybody acts."""

    def learn(self, batch: Batch) -> dict[str, float]:
        """Make the optimizer steps of :meth:`update`, and return its metrics."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Return the checkpoint's state beside the policy: tensors and plain values."""
        return {'optimizer': self.optimizer.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore :meth:`state`; KeyError, TypeError, RuntimeError or ValueError: of another."""
        self.optimizer.load_state(state['optimizer'])

    def replay_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what is learned from again, for a file; {} of an algorithm without replay."""
        return {}

    def load_replay_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore :meth:`replay_arrays`; raise a ValueError if they are of another or damaged."""
        raise NotImplementedError

    def mirrored(self, actions: Tensor, *observations: Tensor) -> tuple[Tensor, ...]:
        """Return the arguments, half of the steps as in a mirror if the task has one."""
        return self._mirror(actions, *observations) if self._mirror else (actions, *observations)

    def rewards(self, batch: Batch) -> Tensor:
        """Return the transformed and scaled rewards of the loss, float [T, B]."""
        return self.config.reward_scale * transform_rewards(
            batch.rewards, self.config.reward_transform)

    def discounts(self, batch: Batch) -> Tensor:
        """Return gamma, and 0 where the task terminated, float [T, B]."""
        return self.config.discount * (~batch.terminated).float()

    def normalized(self, advantages: Tensor, mask: Tensor) -> Tensor:
        return standardized(
            advantages, mask, self.group) if self.config.normalize_advantages else advantages

    def actor_critic_loss(
        self, policy_loss: Tensor, returns: Tensor, values: Tensor, parameters: Tensor,
        mask: Tensor, **others: Tensor,
    ) -> tuple[Tensor, Metrics]:
        """Return the sum of the losses of policy and values and the entropy bonus; its metrics.

        All but ``policy_loss`` are [T, B, ...]; ``others`` are further metrics.
        """
        value_loss = 0.5 * self.mean((returns - values).square(), mask)
        entropy = self.mean(self.policy.distribution.entropy(parameters), mask)
        loss = (policy_loss + self.config.baseline_cost * value_loss
                - self.config.entropy_cost * entropy)
        metrics = {'loss': loss, 'policy_loss': policy_loss, 'value_loss': value_loss,
                   'entropy': entropy, 'mean_value': self.mean(values, mask), **others}
        return loss, {f'losses/{name}': each for name, each in metrics.items()}

    def update_normalizer(self, batch: Batch) -> None:
        """Add the batch's observations to the normalizer's statistics, if there is one."""
        if self.policy.normalizer is not None:
            kept = batch.observations[:-1][batch.valid]
            self.policy.normalizer.update(
                send(self.policy.numbers(kept), self.device), self.group.all_reduce_sum)

    def mean(self, values: Tensor, mask: Tensor) -> Tensor:
        """Return this learner's part of a mean over all learners; see :func:`masked_mean`."""
        return masked_mean(values, mask, self.group)


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
        count = int(self._pending_updates)
        self._pending_updates -= count
        return self._make_steps(count) | metrics

    def _make_steps(self, count: int) -> dict[str, float]:
        """Make so many optimizer steps; return the means of their metrics."""
        sums: dict[str, float] = {}
        self.planned, made = count, 0
        while made < count and not self.is_interrupted() and not (made and self.is_awaited()):
            sample = self._replay.sample(self._sample_size)
            for name, value in self.optimizer.step(*self.loss(self._replay, sample)).items():
                sums[name] = sums.get(name, 0.0) + value
            self.update_target()
            made += 1
        means = {name: total / made for name, total in sums.items()}
        return means | {'losses/optimizer_steps': float(made)} if made else means

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


@torch.no_grad()
def gae(
    discounts: Tensor, rewards: Tensor, values: Tensor, valid: Tensor, lambda_: float,
) -> Tensor:
    """Return advantages, float [T, B].

    A step that is not valid has no advantage and cuts the sum of the step before it; so a time
    limit bootstraps from the value of the last observation, and a termination, whose discount is
    0, from nothing. Value targets are advantages plus ``values[:-1]``.

    Args:
        discounts: [T, B] float, gamma, and 0 where the task terminated.
        rewards: [T, B] float.
        values: [T + 1, B] float, V(x_0) ... V(x_T).
        valid: [T, B] bool.
    """
    mask = valid.to(values.dtype)
    deltas = rewards + discounts * values[1:] - values[:-1]
    advantages = torch.zeros_like(deltas)
    following = torch.zeros_like(deltas[0])
    for t in range(len(rewards) - 1, -1, -1):
        following = mask[t] * (deltas[t] + lambda_ * discounts[t] * following)
        advantages[t] = following
    return advantages


@torch.no_grad()
def vtrace(
    log_rhos: Tensor, discounts: Tensor, rewards: Tensor, values: Tensor, valid: Tensor, *,
    rho_clip: float = 1.0, c_clip: float = 1.0, lambda_: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Return value targets, ``vs`` of the paper, and advantages, both [T, B].

    The advantages are ``rho_t (r_t + gamma_t vs_{t+1} - V(x_t))``. A step that is not valid (an
    environment that resets itself ignores one action) has its value as its target, no advantage,
    and cuts the trace of the step before it, as in :func:`gae`.

    Args:
        log_rhos: [T, B] float, log pi(a|x) - log mu(a|x).
        discounts, rewards, values, valid: as of :func:`gae`.
        rho_clip, c_clip: rho-bar and c-bar.
        lambda_: factor of the trace coefficients, of the paper's remark 2.
    """
    mask = valid.to(values.dtype)
    rhos = log_rhos.exp()
    clipped_rhos = rhos.clamp(max=rho_clip) * mask
    traces = lambda_ * discounts * rhos.clamp(max=c_clip) * mask
    deltas = clipped_rhos * (rewards + discounts * values[1:] - values[:-1])

    corrections = torch.zeros_like(values)
    for t in range(len(rewards) - 1, -1, -1):
        corrections[t] = deltas[t] + traces[t] * corrections[t + 1]
    targets = values + corrections
    advantages = clipped_rhos * (rewards + discounts * targets[1:] - values[:-1])
    return targets[:-1], advantages
