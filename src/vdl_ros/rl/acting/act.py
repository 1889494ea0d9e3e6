"""A policy as a function from observations to actions, by PyTorch."""

from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vdl_ros.rl.policy.policy import Policy


class Act:
    """A policy as a function from observations [B, ...] to actions [B, ...] in the space."""

    def __init__(
        self, policy: Policy, action_space: gymnasium.Space[Any], *, deterministic: bool,
    ) -> None:
        self._policy = policy.eval()
        self._choose = policy.distribution.mode if deterministic else policy.distribution.sample
        self._box = action_space if isinstance(action_space, gymnasium.spaces.Box) else None
        #: State of the policy after the last observation, [B, S].
        self.state = policy.initial_state(0)
        self._actions = torch.empty(0)

    @torch.inference_mode()
    def __call__(
        self, observations: NDArray[Any], is_reset: NDArray[Any] | None = None,
        rewards: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Return actions.

        Args:
            observations: [B, ...].
            is_reset: [B] bool, where an episode starts; default: nowhere. The state is reset
                there, and everywhere when B changes.
            rewards: [B] float, of the previous actions; default: 0.
        """
        batch = len(observations)
        if len(self.state) != batch:
            self.state = self._policy.initial_state(batch)
        else:
            self.state = self.next_state(np.zeros(batch) if rewards is None else rewards)
        resets = np.zeros(batch, np.bool_) if is_reset is None else is_reset
        parameters, _, self.state = self._policy(
            torch.from_numpy(np.ascontiguousarray(observations))[None],
            torch.from_numpy(resets)[None], self.state)
        self._actions = self._choose(parameters[0])
        actions: NDArray[Any] = self._policy.distribution.to_environment(self._actions.numpy())
        return actions if self._box is None else np.clip(actions, self._box.low, self._box.high)

    @torch.inference_mode()
    def next_state(self, rewards: NDArray[Any]) -> Tensor:
        """Return the state before the next observation, by the rewards [B] of the last actions."""
        return self._policy.append_last_action(
            self.state, self._actions, torch.from_numpy(np.asarray(rewards, np.float32)))
