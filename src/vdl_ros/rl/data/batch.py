"""Batches of unrolls as time-major tensors, and the transformation of rewards."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from vdl_ros.rl.data.unroll import Unroll, UnrollSchema
from vdl_ros.rl.device import send

B = TypeVar('B', bound='Batch')


@dataclass(frozen=True)
class Source:
    """The unroll that columns of a batch come from.

    Attributes:
        sequence: number of the unroll; the actor's next one continues it.
        num_envs: number of columns, in the order of the actor's environments.
    """

    start_id: int
    sequence: int
    num_envs: int


@dataclass(frozen=True)
class Batch:
    """Unrolls concatenated along the batch axis, time-major.

    Attributes:
        observations: [T + 1, B, ...].
        actions: int64 [T, B] or [T, B, A], or float32 [T, B, A].
        rewards: [T, B] float32, from the environment.
        terminated, truncated: [T, B] bool.
        is_reset: [T + 1, B] bool, true where an observation is the first of an episode.
        behaviour_log_probs: [T, B] float32.
        intervened: [T, B] bool, where a person chose the action.
        state: [B, S] float32, state of the policy before the first observation; S may be 0.
        sources: the unrolls of the columns, in order.
    """

    observations: Tensor
    actions: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    is_reset: Tensor
    behaviour_log_probs: Tensor
    intervened: Tensor
    state: Tensor
    sources: tuple[Source, ...] = ()

    @property
    def valid(self) -> Tensor:
        """[T, B] bool; False for steps in which the environment only reset itself."""
        return ~self.is_reset[1:]

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {name: each for name, each in vars(self).items() if isinstance(each, Tensor)}

    def on(self: B, device: torch.device) -> B:
        """Return the batch on a device; copies may be under way."""
        if self.actions.device == device:
            return self
        sent = {name: send(each, device) for name, each in self.tensors.items()}
        return replace(self, **sent, sources=self.sources)

    def columns(self: B, index: Tensor) -> B:
        """Return the columns of ``index``, int64 [N], without their sources."""
        columns = {name: each[:, index] for name, each in self.tensors.items() if name != 'state'}
        return replace(self, **columns, state=self.state[index], sources=())


def make_batch(unrolls: Sequence[Unroll], schema: UnrollSchema) -> Batch:
    """Concatenate unrolls along the batch axis, in host memory; every array is copied once."""
    space = schema.observation_space
    total = sum(unroll.num_envs for unroll in unrolls)
    observations = np.empty((schema.unroll_length + 1, total, *space.shape), space.dtype)
    start = 0
    for unroll in unrolls:
        stop = start + unroll.num_envs
        schema.decode_into(unroll.arrays, observations[:, start:stop])
        start = stop

    def joined(name: str, axis: int = 1) -> Tensor:
        return torch.from_numpy(
            np.concatenate([unroll.arrays[name] for unroll in unrolls], axis=axis))

    # Most unrolls have none, of environments that are no robots.
    persons = [unroll.arrays.get('intervened', np.zeros_like(unroll.arrays['terminated']))
               for unroll in unrolls]

    return Batch(
        torch.from_numpy(observations), joined('actions'), joined('rewards'), joined('terminated'),
        joined('truncated'), joined('is_reset'), joined('behaviour_log_probs'),
        torch.from_numpy(np.concatenate(persons, 1)),
        joined('state', 0) if schema.state_size else torch.zeros(total, 0),
        tuple(Source(unroll.start_id, unroll.sequence, unroll.num_envs)
              for unroll in unrolls))


def transform_rewards(rewards: Tensor, how: str) -> Tensor:
    """Return rewards by the setting ``reward_transform``, as in the IMPALA release."""
    return rewards.clamp(-1.0, 1.0) if how == 'abs_one' else rewards
