"""
Compares an exported policy with PyTorch: on random observations and on those of episodes.

Both get the same observations, resets and rewards, and each keeps its own state.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from vdl_ros.common.observation_spaces import ImageAndVector
from vdl_ros.onnx_policy.onnx_policy import ActionError, OnnxFileError, OnnxPolicy
from vdl_ros.rl.acting.env_stepper import EnvStepper
from vdl_ros.rl.policy.distributions import EpsilonGreedy
from vdl_ros.rl.policy.policy import Policy
from vdl_ros.saved_policy import SavedPolicy

__all__ = ['TOLERANCE', 'Parity', 'check_parity']

#: Largest difference, of numbers above 1 relative to them.
TOLERANCE = 1e-5
_STEPS = 32
# Limit of random numbers: spaces are often unbounded, and statistics of observations are not.
_LIMIT = 10.0


class Parity(NamedTuple):
    """Largest difference from PyTorch, as of ``TOLERANCE``, of a number of observations."""

    difference: float
    observations: int


def check_parity(saved: SavedPolicy, exported: OnnxPolicy, envs: Any) -> Parity:
    """
    Compare both policies.

    Args:
        saved: the policy by PyTorch.
        exported: the same by onnxruntime.
        envs: B of its environments; they are reset and stepped.

    Raises:
        OnnxFileError: the difference is too large, or actions are not those of the parameters.
    """
    batch = envs.num_envs
    random = np.random.default_rng(0)
    both = _Both(saved, exported)
    for step in range(_STEPS):
        both.step(_random(envs.single_observation_space, batch, random),
                  np.full(batch, not step) | (random.random(batch) < 0.1),
                  random.normal(size=batch).astype(np.float32))
    stepper = EnvStepper(envs, seed=0)
    rewards = np.zeros(batch, np.float32)
    for _ in range(_STEPS):
        actions = both.step(stepper.observation, stepper.is_reset, rewards)
        rewards = stepper.step(actions).reward
    return Parity(both.difference, 2 * _STEPS * batch)


class _Both:
    """Both policies, and the largest difference so far."""

    def __init__(self, saved: SavedPolicy, exported: OnnxPolicy) -> None:
        self._policy: Policy = copy.deepcopy(saved.policy)
        self._policy.precision = torch.float32
        self._space, self._exported = saved.action_space, exported
        self._state: torch.Tensor | None = None
        self._chosen = torch.empty(0)
        self.difference = 0.0

    @torch.inference_mode()
    def step(
        self, observations: NDArray[Any], is_reset: NDArray[np.bool_], rewards: NDArray[Any],
    ) -> NDArray[Any]:
        """Return the actions for observations [B, ...], if both policies agree."""
        policy = self._policy
        if self._state is None:
            self._state = policy.initial_state(len(observations))
        else:
            self._state = policy.append_last_action(
                self._state, self._chosen, torch.from_numpy(rewards))
        expected = policy(torch.from_numpy(np.ascontiguousarray(observations))[None],
                          torch.from_numpy(is_reset)[None], self._state)
        self._state = expected.state
        try:
            found = self._exported.step(observations, is_reset, rewards)
        except ActionError as error:
            raise OnnxFileError(str(error)) from None
        parameters = expected.parameters[0].numpy()
        if isinstance(policy.distribution, EpsilonGreedy):
            parameters = parameters[:, :-1]
        self._compare('parameters', parameters, found.parameters)
        self._compare('value', expected.values[0].numpy(), found.values)
        # By its own parameters: of two likely actions either may be the likeliest.
        self._chosen = policy.distribution.mode(torch.from_numpy(
            np.concatenate([found.parameters, expected.parameters[0, :, -1:].numpy()], -1)
            if isinstance(policy.distribution, EpsilonGreedy) else found.parameters))
        actions = policy.distribution.to_environment(self._chosen.numpy())
        if isinstance(self._space, gymnasium.spaces.Box):
            actions = np.clip(actions, self._space.low, self._space.high)
        self._compare('action', actions, found.actions)
        if policy.state_size:
            after = policy.append_last_action(
                expected.state, self._chosen, torch.zeros(len(observations)))
            self._compare('next_state', after.numpy(), found.state)
        return actions

    def _compare(self, name: str, expected: NDArray[Any], found: NDArray[Any]) -> None:
        if expected.shape != found.shape:
            raise OnnxFileError(f'{name}: {list(found.shape)} is not {list(expected.shape)}')
        away = np.abs(expected - found) / np.maximum(np.abs(expected), 1.0)
        self.difference = max(self.difference, float(away.max(initial=0.0)))
        # Not the other way round: NaN is no agreement.
        if not self.difference <= TOLERANCE:
            raise OnnxFileError(f'{name}: differs from PyTorch by {self.difference:.2g}, more '
                                f'than {TOLERANCE:g}')


def _random(
    space: gymnasium.spaces.Box, batch: int, random: np.random.Generator,
) -> NDArray[Any]:
    """Return random observations [B, ...]."""
    if isinstance(space, ImageAndVector):
        rows = np.zeros((batch, *space.shape), np.uint8)
        images, numbers = space.split(rows)
        images[...] = _values(space.image, images.shape, random)
        numbers[...] = random.normal(size=numbers.shape)
        return rows
    return _values(space, (batch, *space.shape), random)


def _values(
    space: gymnasium.spaces.Box, shape: tuple[int, ...], random: np.random.Generator,
) -> NDArray[Any]:
    """Return random values of a space; of numbers, those up to a limit."""
    if space.dtype == np.uint8:
        return random.integers(0, 256, shape, np.uint8)
    low, high = np.maximum(space.low, -_LIMIT), np.minimum(space.high, _LIMIT)
    return random.uniform(low, np.maximum(high, low), shape).astype(space.dtype)
