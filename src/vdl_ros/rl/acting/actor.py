"""The actor: steps B environments with a copy of the policy and cuts what happens into unrolls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from vdl_ros.common.thread_timer import ThreadTimer
from vdl_ros.rl.acting.environment_stepper import Stepper
from vdl_ros.rl.data.episode_returns import EpisodeCounter, FinishedEpisode
from vdl_ros.rl.data.unroll import Arrays, UnrollSchema
from vdl_ros.rl.device import to_host
from vdl_ros.rl.policy.policy import Policy

__all__ = ['Actor', 'load_weights', 'weights']


def weights(policy: Policy) -> Arrays:
    """Return the policy's parameters by name; on the CPU, as arrays that share their memory."""
    return {name: tensor.numpy() for name, tensor in to_host(policy.state_dict()).items()}


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
        phases: ThreadTimer | None = None,
        explore: Callable[[int], float] = lambda agent_steps: 0.0,
    ) -> None:
        """
        Reset the environments.

        Args:
            envs: the environments.
            policy: acts.
            schema: what the unrolls must look like.
            seed: of the first episodes and of the sampling.
            phases: the clock of the thread that acts.
            explore: see ``exploration.py``.
        """
        self.envs = envs
        self.policy = policy.eval()
        self.policy_version = -1
        self._schema = schema
        self._phases = phases or ThreadTimer()
        self._explore = explore
        self._state = policy.initial_state(envs.num_envs)
        torch.manual_seed(seed)
        self._stepper = Stepper(envs, seed)
        self._episodes = EpisodeCounter(envs.num_envs)

    def load(
        self, arrays: Mapping[str, NDArray[Any]], version: int, agent_steps: int = 0,
    ) -> None:
        """
        Take over a published policy.

        Args:
            arrays: its weights.
            version: its number.
            agent_steps: that the learner has learned from.

        Raises:
            ValueError: weights of another network.
        """
        load_weights(self.policy, arrays)
        self.policy_version = version
        self.policy.exploration = torch.tensor([self._explore(agent_steps)])

    @torch.inference_mode()
    def unroll(self) -> tuple[Arrays, list[FinishedEpisode]]:
        """Act for T steps; return the arrays of ``unroll.py`` and the episodes that ended."""
        stepper, phases = self._stepper, self._phases
        with phases('encode'):
            arrays = self._schema.empty(self.envs.num_envs)
            observations, is_reset = arrays.pop('observations'), arrays['is_reset']
            observations[0], is_reset[0] = stepper.observation, stepper.is_reset
            if self.policy.state_size:
                arrays['state'][...] = self._state.numpy()
            for t in range(self._schema.unroll_length):
                with phases('infer'):
                    actions, log_probs = self.choose(observations[t], is_reset[t])
                arrays['actions'][t], arrays['behaviour_log_probs'][t] = actions, log_probs
                with phases('step'):
                    step = stepper.step(
                        self.policy.distribution.to_environment(arrays['actions'][t]))
                (observations[t + 1], arrays['rewards'][t], arrays['terminated'][t],
                 arrays['truncated'][t], is_reset[t + 1]) = step
                self._state = self.policy.told(
                    self._state, torch.from_numpy(arrays['actions'][t]),
                    torch.from_numpy(arrays['rewards'][t]))
            finished = self._episodes.add(
                arrays['rewards'], arrays['terminated'], arrays['truncated'], is_reset)
            return arrays | self._schema.encode(observations, is_reset), finished

    def choose(
        self, observations: NDArray[Any], is_reset: NDArray[Any],
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """
        Draw actions, and remember the observations; call it in ``torch.inference_mode()``.

        Args:
            observations: [B, ...].
            is_reset: [B] bool, where an episode begins.

        Returns:
            Actions, [B] int64 or [B, A] float32, and their log-probabilities, [B] float32.
        """
        distribution = self.policy.distribution
        if self.policy.state_size:
            # A row of time of its own: T is 1.
            parameters, _, self._state = self.policy(
                torch.from_numpy(observations)[None], torch.from_numpy(is_reset)[None],
                self._state)
            parameters = parameters[0]
        else:
            parameters = self.policy(torch.from_numpy(observations)).parameters
        actions = distribution.sample(parameters)
        return actions.numpy(), distribution.log_prob(parameters, actions).numpy()

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()
