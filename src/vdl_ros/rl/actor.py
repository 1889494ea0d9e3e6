"""The actor: steps B environments with a copy of the policy and cuts what happens into unrolls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from vdl_ros.rl.episodes import EpisodeCounter, FinishedEpisode
from vdl_ros.rl.networks import Policy
from vdl_ros.rl.stepper import Stepper
from vdl_ros.rl.unroll import Arrays, UnrollSchema

__all__ = ['Actor', 'load_weights', 'weights']


def weights(policy: Policy) -> Arrays:
    """Return the policy's parameters by name, as arrays that share their memory."""
    return {name: tensor.detach().numpy() for name, tensor in policy.state_dict().items()}


def load_weights(policy: Policy, arrays: Mapping[str, NDArray[Any]]) -> None:
    """
    Copy parameters into ``policy``.

    Raises:
        ValueError: names, shapes or dtypes that are not this policy's.
    """
    own = policy.state_dict()
    if own.keys() != arrays.keys():
        raise ValueError(
            f'weights: names {sorted(own.keys() ^ arrays.keys())} are missing or unknown')
    for name, tensor in own.items():
        array = arrays[name]
        if tuple(array.shape) != tuple(tensor.shape) or array.dtype != tensor.numpy().dtype:
            raise ValueError(f'weights: {name}: {array.dtype} {array.shape} is not '
                             f'{tensor.numpy().dtype} {tuple(tensor.shape)}')
    with torch.no_grad():
        for name, tensor in own.items():
            np.copyto(tensor.numpy(), arrays[name])


class Actor:
    """
    B environments and a policy that acts in them.

    Consecutive unrolls overlap by one observation: x_T of one is x_0 of the next.
    """

    def __init__(
        self,
        envs: VectorEnv,
        policy: Policy,
        schema: UnrollSchema,
        seed: int,
    ) -> None:
        """Reset the environments; ``seed`` is of their first episodes and of the sampling."""
        self.envs = envs
        self.policy = policy.eval()
        self.policy_version = -1
        self._schema = schema
        torch.manual_seed(seed)
        self._stepper = Stepper(envs, seed)
        self._episodes = EpisodeCounter(envs.num_envs)

    def load(self, arrays: Mapping[str, NDArray[Any]], version: int) -> None:
        """
        Take over a published policy.

        Raises:
            ValueError: weights of another network.
        """
        load_weights(self.policy, arrays)
        self.policy_version = version

    @torch.inference_mode()
    def unroll(self) -> tuple[Arrays, list[FinishedEpisode]]:
        """Act for T steps; return the arrays of ``unroll.py`` and the episodes that ended."""
        stepper, policy = self._stepper, self.policy
        arrays = self._schema.empty(self.envs.num_envs)
        observations, is_reset = arrays.pop('observations'), arrays['is_reset']
        observations[0], is_reset[0] = stepper.observation, stepper.is_reset
        for t in range(self._schema.unroll_length):
            parameters, _ = policy(torch.from_numpy(observations[t]))
            action = policy.distribution.sample(parameters)
            log_prob = policy.distribution.log_prob(parameters, action)
            arrays['actions'][t] = action.numpy()
            arrays['behaviour_log_probs'][t] = log_prob.numpy()
            (observations[t + 1], arrays['rewards'][t], arrays['terminated'][t],
             arrays['truncated'][t], is_reset[t + 1]) = stepper.step(arrays['actions'][t])
        finished = self._episodes.add(
            arrays['rewards'], arrays['terminated'], arrays['truncated'], is_reset)
        return arrays | self._schema.encode(observations, is_reset), finished

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()
