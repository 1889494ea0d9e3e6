"""The actor: steps B environments with a copy of the policy and cuts what happens into unrolls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from vdl_ros.rl.episodes import EpisodeCounter, FinishedEpisode
from vdl_ros.rl.networks import Policy
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
        self._box = isinstance(envs.single_action_space, gymnasium.spaces.Box)
        torch.manual_seed(seed)
        observation, _ = envs.reset(seed=seed)
        # Fresh arrays for every unroll: a message may still be under way with the last one.
        self._observation = np.array(observation)
        self._is_reset = np.ones(envs.num_envs, np.bool_)
        self._done = np.zeros(envs.num_envs, np.bool_)
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
        steps, batch = self._schema.unroll_length, self.envs.num_envs
        space = self.envs.single_observation_space
        action_space = self.envs.single_action_space
        observations = np.empty((steps + 1, batch, *(space.shape or ())), space.dtype)
        actions = np.empty(
            (steps, batch, *(action_space.shape or ())), np.float32 if self._box else np.int64)
        arrays: Arrays = {
            'is_reset': np.empty((steps + 1, batch), np.bool_),
            'actions': actions,
            'rewards': np.empty((steps, batch), np.float32),
            'terminated': np.empty((steps, batch), np.bool_),
            'truncated': np.empty((steps, batch), np.bool_),
            'behaviour_log_probs': np.empty((steps, batch), np.float32),
        }
        observations[0], arrays['is_reset'][0] = self._observation, self._is_reset
        distribution = self.policy.distribution
        for t in range(steps):
            parameters, _ = self.policy(torch.from_numpy(observations[t]))
            action = distribution.sample(parameters)
            log_prob = distribution.log_prob(parameters, action)
            actions[t] = action.numpy()
            arrays['behaviour_log_probs'][t] = log_prob.numpy()
            (observations[t + 1], arrays['rewards'][t], terminated, truncated, _
             ) = self.envs.step(self._to_env(actions[t]))
            arrays['terminated'][t], arrays['truncated'][t] = terminated, truncated
            # The environment resets itself in the step after an episode's last one.
            arrays['is_reset'][t + 1] = self._done
            self._done = np.logical_or(terminated, truncated)
        self._observation = observations[steps].copy()
        self._is_reset = arrays['is_reset'][steps].copy()
        finished = self._episodes.add(
            arrays['rewards'], arrays['terminated'],
            arrays['truncated'], arrays['is_reset'])
        arrays |= self._schema.encode(observations, arrays['is_reset'])
        return arrays, finished

    def _to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Return actions that the environment takes: within its box."""
        if not self._box:
            return actions
        space = self.envs.single_action_space
        assert isinstance(space, gymnasium.spaces.Box)
        clipped: NDArray[Any] = np.clip(actions, space.low, space.high)
        return clipped

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()
