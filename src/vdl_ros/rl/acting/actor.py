"""The actor: steps B environments with a copy of the policy and records unrolls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from vdl_ros.common.quoting import quoted
from vdl_ros.common.thread_timer import ThreadTimer
from vdl_ros.rl.acting.env_stepper import EnvStepper
from vdl_ros.rl.data.episode_returns import EpisodeCounter, FinishedEpisode, adversary_of
from vdl_ros.rl.data.unroll import Arrays, UnrollSchema, add_extras
from vdl_ros.rl.device import to_host
from vdl_ros.rl.policy.policy import Policy

__all__ = ['Actor', 'load_weights', 'weights']


def weights(policy: Policy) -> Arrays:
    """Return the policy's parameters by name; of a policy on the CPU they share its memory."""
    return {name: tensor.numpy() for name, tensor in to_host(policy.state_dict()).items()}


def load_weights(policy: Policy, arrays: Mapping[str, NDArray[Any]]) -> None:
    """
    Copy parameters into ``policy``.

    Raises:
        ValueError: names, shapes or dtypes differ from this policy's, or not all are finite.
    """
    state = policy.state_dict()
    if state.keys() != arrays.keys():
        names = quoted(sorted(state.keys() ^ arrays.keys()))
        raise ValueError(f'weights: names {names} are missing or unknown')
    for name, tensor in state.items():
        array = arrays[name]
        if tuple(array.shape) != tuple(tensor.shape) or array.dtype != tensor.numpy().dtype:
            raise ValueError(f'weights: {name}: {array.dtype} {array.shape} is not '
                             f'{tensor.numpy().dtype} {tuple(tensor.shape)}')
        if array.dtype.kind == 'f' and not np.isfinite(array).all():
            raise ValueError(f'weights: {name}: not all finite')
    with torch.no_grad():
        for name, tensor in state.items():
            np.copyto(tensor.numpy(), arrays[name])


class Actor:
    """
    B environments and a policy that acts in them.

    Consecutive unrolls overlap by one observation: x_T of one is x_0 of the next.

    Attributes:
        envs: the environments.
        policy: the copy of the policy.
        policy_version: version of its weights, -1 before the first :meth:`load`.
    """

    def __init__(
        self,
        envs: VectorEnv,
        policy: Policy,
        schema: UnrollSchema,
        seed: int,
        timer: ThreadTimer | None = None,
        exploration: Callable[[int], float] = lambda agent_steps: 0.0,
    ) -> None:
        """
        Reset the environments.

        Args:
            envs: the environments.
            policy: chooses the actions.
            schema: schema of the unrolls.
            seed: of the first episodes and of sampling.
            timer: timer of the thread that calls :meth:`unroll`.
            exploration: schedule, see ``exploration.py``.

        Raises:
            UnrollError: its unrolls would be too large.
        """
        schema.check_size(envs.num_envs)
        self.envs = envs
        self.policy = policy.eval()
        self.policy_version = -1
        self._schema = schema
        self._timer = timer or ThreadTimer()
        self._exploration = exploration
        self._state = policy.initial_state(envs.num_envs)
        torch.manual_seed(seed)
        self._stepper = EnvStepper(envs, seed)
        # Of the unroll that is recorded, and its next step.
        self._arrays: Arrays = {}
        self._observations: NDArray[Any] = np.empty(0)
        self._step = 0
        self._episodes = EpisodeCounter(envs.num_envs)

    @property
    def state(self) -> Tensor:
        """State of the policy, [B, S]."""
        return self._state

    def load(
        self, arrays: Mapping[str, NDArray[Any]], version: int, agent_steps: int = 0,
    ) -> None:
        """
        Load the weights of a published policy.

        Args:
            arrays: the weights.
            version: version of the policy.
            agent_steps: steps that the learner has learned from.

        Raises:
            ValueError: weights of another network.
        """
        load_weights(self.policy, arrays)
        self.policy_version = version
        self.policy.exploration = torch.tensor([self._exploration(agent_steps)])

    @torch.inference_mode()
    def unroll(self) -> tuple[Arrays, list[FinishedEpisode]]:
        """Step T times; return the arrays of ``unroll.py`` and the episodes that ended."""
        with self._timer('encode'):
            is_complete = False
            while not is_complete:
                actions = self.begin_step()
                with self._timer('step'):
                    outcome = self.envs.step(actions)
                is_complete = self.end_step(outcome)
            return self.finish()

    def begin_step(self) -> NDArray[Any]:
        """
        Return actions for the environments, [B] or [B, A]; call it in ``torch.inference_mode()``.

        With :meth:`end_step` and :meth:`finish` it is for environments that several actors step
        together; :meth:`unroll` calls them too.
        """
        t, stepper = self._step, self._stepper
        if not t:
            self._arrays = self._schema.empty(self.envs.num_envs)
            self._observations = self._arrays.pop('observations')
            self._observations[0], self._arrays['is_reset'][0] = (
                stepper.observation, stepper.is_reset)
            if self.policy.state_size:
                self._arrays['state'][...] = self._state.numpy()
        arrays = self._arrays
        with self._timer('infer'):
            actions, log_probs = self.choose(self._observations[t], arrays['is_reset'][t])
        arrays['actions'][t], arrays['behaviour_log_probs'][t] = actions, log_probs
        return stepper.clip(self.policy.distribution.to_environment(arrays['actions'][t]))

    def end_step(self, outcome: tuple[Any, ...]) -> bool:
        """
        Record what the environments returned; call it in ``torch.inference_mode()``.

        Returns:
            Whether there are T steps.
        """
        arrays, t = self._arrays, self._step
        (self._observations[t + 1], arrays['rewards'][t], arrays['terminated'][t],
         arrays['truncated'][t], arrays['is_reset'][t + 1], extras) = self._stepper.record(outcome)
        add_extras(arrays, extras, t)
        self._state = self.policy.append_last_action(
            self._state, torch.from_numpy(arrays['actions'][t]),
            torch.from_numpy(arrays['rewards'][t]))
        self._step += 1
        return self._step == self._schema.unroll_length

    def finish(self) -> tuple[Arrays, list[FinishedEpisode]]:
        """Return the unroll of the last T steps, as :meth:`unroll`."""
        arrays, self._step = self._arrays, 0
        is_reset = arrays['is_reset']
        finished = self._episodes.add(
            arrays['rewards'], arrays['terminated'], arrays['truncated'], is_reset,
            arrays.get('success'), adversary_of(arrays))
        return arrays | self._schema.encode(self._observations, is_reset), finished

    def choose(
        self, observations: NDArray[Any], is_reset: NDArray[Any],
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """
        Sample actions and update the state; call it in ``torch.inference_mode()``.

        Args:
            observations: [B, ...].
            is_reset: [B] bool, true where an episode starts.

        Returns:
            Actions, int64 [B] or [B, A], or float32 [B, A], and their log-probabilities, float32
            [B].
        """
        distribution = self.policy.distribution
        if self.policy.state_size:
            # [None]: T = 1.
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
