"""The actor whose policy NumPy computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from vdl_ros.common.thread_timer import ThreadTimer
from vdl_ros.rl.acting.actor import Actor
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.policy.numpy_policy import NumpyPolicy

__all__ = ['NumpyActor']


class NumpyActor(Actor):
    """
    See :class:`Actor`.

    Attributes:
        policy: the copy of the policy.
        state: its state, float32 [B, S].
    """

    def __init__(
        self,
        envs: VectorEnv,
        policy: NumpyPolicy,
        schema: UnrollSchema,
        seed: int,
        timer: ThreadTimer | None = None,
        exploration: Callable[[int], float] = lambda agent_steps: 0.0,
        stream: int = 0,
    ) -> None:
        """
        Reset the environments, and the state.

        Args:
            envs: the environments.
            policy: chooses the actions, after the first :meth:`load`.
            schema: schema of the unrolls.
            seed: of the first episodes and of sampling.
            timer: see :class:`Actor`.
            exploration: see :class:`Actor`.
            stream: number of the random numbers of this seed; actors that share a world and its
                seed have different ones.
        """
        super().__init__(envs, schema, seed, timer, exploration)
        self.policy = policy
        self.state = policy.initial_state(envs.num_envs)
        self._random = np.random.default_rng([seed, stream])

    def use(self, arrays: Mapping[str, NDArray[Any]], exploration: float) -> None:
        """See :meth:`Actor.use`."""
        self.policy.load(arrays)
        self.policy.exploration = exploration

    def choose(
        self, observations: NDArray[Any], is_reset: NDArray[Any],
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """See :meth:`Actor.choose`."""
        parameters, self.state = self.policy.forward(observations, is_reset, self.state)
        return self.policy.distribution.sample(parameters, self._random)

    def to_environment(self, actions: NDArray[Any]) -> NDArray[Any]:
        """See :meth:`Actor.to_environment`."""
        return self.policy.distribution.to_environment(actions)

    def recorded_state(self) -> NDArray[Any]:
        """See :meth:`Actor.recorded_state`."""
        return self.state

    def append_last_action(self, actions: NDArray[Any], rewards: NDArray[Any]) -> None:
        """See :meth:`Actor.append_last_action`."""
        self.state = self.policy.append_last_action(self.state, actions, rewards)
