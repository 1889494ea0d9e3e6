"""The actor whose policy PyTorch computes: every network, and those that an attack follows."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from vdl_ros.common.metrics import ThreadTimer
from vdl_ros.rl.acting.actor import Actor
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.policy.policy import Policy, load_weights


class TorchActor(Actor):
    """An actor whose policy PyTorch computes; ``seed`` is also of sampling."""

    policy: Policy
    state: Tensor

    def __init__(
        self, envs: VectorEnv, policy: Policy, schema: UnrollSchema, seed: int,
        timer: ThreadTimer | None = None,
        exploration: Callable[[int], float] = lambda agent_steps: 0.0,
    ) -> None:
        super().__init__(envs, policy.eval(), schema, seed, timer, exploration)
        torch.manual_seed(seed)
        self._actions = torch.empty(0)

    def use(self, arrays: Mapping[str, NDArray[Any]], exploration: float) -> None:
        load_weights(self.policy, arrays)
        self.policy.exploration = torch.tensor([exploration])

    @torch.inference_mode()
    def choose(
        self, observations: NDArray[Any], is_reset: NDArray[Any],
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        distribution = self.policy.distribution
        if self.policy.state_size:
            # [None]: T = 1.
            parameters, _, self.state = self.policy(
                torch.from_numpy(observations)[None], torch.from_numpy(is_reset)[None], self.state)
            parameters = parameters[0]
        else:
            parameters = self.policy(torch.from_numpy(observations)).parameters
        actions = self._actions = distribution.sample(parameters)
        return actions.numpy(), distribution.log_prob(parameters, actions).numpy()

    @torch.inference_mode()
    def next_state(self, rewards: NDArray[Any]) -> Tensor:
        """Return the state before the next observation, by the rewards [B] of the last actions."""
        return self.policy.append_last_action(
            self.state, self._actions, torch.from_numpy(np.asarray(rewards, np.float32)))

    @torch.inference_mode()
    def append_last_action(self, actions: NDArray[Any], rewards: NDArray[Any]) -> None:
        self.state = self.policy.append_last_action(
            self.state, torch.from_numpy(actions), torch.from_numpy(rewards))
