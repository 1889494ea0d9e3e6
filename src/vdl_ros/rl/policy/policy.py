"""The policy network: encoder, optional LSTM, action head and optional value head."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vdl_ros.common.observation_spaces import SMALLEST_IMAGE, is_image
from vdl_ros.common.tensor_file import faster_in_bfloat16
from vdl_ros.rl.data.unroll import Arrays
from vdl_ros.rl.device import CPU, computes_bfloat16, to_host
from vdl_ros.rl.policy.distributions import (
    ActionDistribution,
    DiagonalGaussian,
    EpsilonGreedy,
    make_distribution,
)
from vdl_ros.rl.policy.encoder import Encoder
from vdl_ros.rl.policy.networks import orthogonal, run_lstm
from vdl_ros.rl.policy.numpy_policy import check_weights
from vdl_ros.rl.settings import AlgorithmConfig, SacConfig, TrainConfig


class Output(NamedTuple):
    """Output of a policy for observations [..., *observation_shape].

    Attributes:
        parameters: float [..., P], of the action distribution.
        values: float [...]; with action values, the largest; 0 without a value head.
        state: float [B, S], after the last observation and before
            :meth:`Policy.append_last_action`; S is 0 if the policy has no state.
    """

    parameters: Tensor
    values: Tensor
    state: Tensor


class Policy(Encoder):
    """A network with a policy head and often a value head, or with one head of action values.

    Args:
        of_sac: whether there is no value head, and the network computes the log-std of a Gaussian,
            which else is one parameter for all observations.

    Attributes:
        distribution: action distribution of the policy head's outputs.
        state_size: S, size of the state: the LSTM's state, then the last action and reward if
            they are inputs; 0: no state.
        exploration: with action values, epsilon or temperature, [1] or [B]; not a weight.
    """

    exploration: Tensor

    def __init__(
        self, config: TrainConfig, network: str, observation_space: gymnasium.spaces.Box,
        distribution: ActionDistribution, *, of_sac: bool,
    ) -> None:
        of_values = self._of_values = isinstance(distribution, EpsilonGreedy)
        has_value, lstm_size = not of_values and not of_sac, config.lstm_size
        super().__init__(
            config, network, observation_space, separate_value=has_value and not lstm_size)
        self.distribution = distribution
        self.last_action_reward = config.last_action_reward
        last_size = distribution.num_inputs + 1 if config.last_action_reward else 0
        self._lstm_state_size = 2 * lstm_size
        self.state_size = self._lstm_state_size + last_size
        self.register_buffer('exploration', torch.zeros(1), persistent=False)
        features = self.num_features + last_size
        self.lstm: nn.LSTMCell | None = None
        if lstm_size:
            self.lstm = nn.LSTMCell(features, lstm_size)
            for name, parameter in self.lstm.named_parameters():
                (nn.init.orthogonal_ if 'weight' in name else nn.init.zeros_)(parameter)
            features = lstm_size
        own_log_std = isinstance(distribution, DiagonalGaussian) and not of_sac
        outputs = distribution.size // 2 if own_log_std else distribution.size - of_values
        self.policy_head = orthogonal(nn.Linear(features, outputs), 1.0 if of_values else 0.01)
        self.value_head = orthogonal(nn.Linear(features, 1), 1.0) if has_value else None
        self.log_std = nn.Parameter(torch.full(
            (outputs,), math.log(config.initial_std))) if own_log_std else None

    def initial_state(self, batch: int) -> Tensor:
        """Return the state before the first observation, [batch, S]."""
        return self.policy_head.weight.new_zeros(batch, self.state_size)

    def append_last_action(self, state: Tensor, actions: Tensor, rewards: Tensor) -> Tensor:
        """Return the state, [B, S], with last action and reward, if they are inputs."""
        if not self.last_action_reward:
            return state
        return torch.cat(
            [state[:, :self._lstm_state_size], self._encode_last(actions, rewards)], -1)

    def _encode_last(self, actions: Tensor, rewards: Tensor) -> Tensor:
        clipped = rewards.clamp(-1.0, 1.0).unsqueeze(-1)
        return torch.cat([self.distribution.to_network(actions), clipped], -1)

    def forward(
        self, observations: Tensor, is_reset: Tensor | None = None, state: Tensor | None = None,
        actions: Tensor | None = None, rewards: Tensor | None = None, *,
        numbers: Tensor | None = None,
    ) -> Output:
        """Return action parameters and values.

        Args:
            observations: [T, B, *observation_shape]; without a state any leading axes. uint8
                images are scaled to [0, 1], float images are as they are.
            is_reset: [T, B] bool, true where an episode starts: the state is reset there.
            state: [B, S], before the first observation; unused if S is 0.
            actions, rewards: [T - 1, B, ...] or longer, after the observations; unused if T is 1
                or the last action and reward are not inputs.
            numbers: [T * B, V], the numbers of observations that are an image and numbers; then
                ``observations`` are the images, [T, B, *image].
        """
        shape = self.observation_shape if numbers is None else self._torso_shape
        lead = observations.shape[:observations.dim() - len(shape)]
        if numbers is None:
            observations, numbers = self.split(observations)
        features, value_features = self.encode(observations, numbers)
        if self.state_size:
            assert is_reset is not None
            assert state is not None
            state, last = torch.split(
                state, [self._lstm_state_size, self.state_size - self._lstm_state_size], -1)
            if self.last_action_reward:
                rows = self._last_rows(last, is_reset, actions, rewards)
                features, value_features = (
                    torch.cat([each, rows], -1) for each in (features, value_features))
            if self.lstm is not None:
                features, state = run_lstm(self.lstm, features.reshape(*lead, -1), is_reset, state)
                value_features = features = features.flatten(0, 1)
            state = torch.cat([state, last], -1)
        elif state is None:
            state = features.new_zeros(0, 0)
        parameters = self.policy_head(features)
        if self.log_std is not None:
            parameters = torch.cat([parameters, self.log_std.expand_as(parameters)], -1)
        if self.value_head is not None:
            values = self.value_head(value_features).squeeze(-1)
        elif not self._of_values:
            values = torch.zeros_like(parameters[..., 0])
        else:
            values = parameters.amax(-1)
            parameters = torch.cat([
                parameters, self.exploration.to(parameters).expand(lead or 1).reshape(-1, 1)], -1)
        return Output(parameters.reshape(*lead, -1), values.reshape(lead), state)

    def _last_rows(
        self, last: Tensor, is_reset: Tensor, actions: Tensor | None, rewards: Tensor | None,
    ) -> Tensor:
        """Return the inputs for what preceded each observation, [T * B, E + 1]; 0 at resets."""
        rows = last[None]
        if len(is_reset) > 1:
            assert actions is not None
            assert rewards is not None
            before = slice(len(is_reset) - 1)
            rows = torch.cat([rows, self._encode_last(actions[before], rewards[before])])
        return (rows * ~is_reset.unsqueeze(-1)).flatten(0, 1)


def choose_precision(policy: Policy, precision: str) -> None:
    """Set the precision of a policy's torso by the setting ``precision``; float32 without images.

    bfloat16 has the exponent range of float32, so gradients need no scaling.
    """
    if precision == 'auto' and policy.of_images:
        precision = 'bfloat16' if _faster_in_bfloat16(policy) else 'float32'
    policy.precision = (
        torch.bfloat16 if precision == 'bfloat16' and policy.of_images else torch.float32)


# At most, of all images of a trial: 16 x 256 x 256.
_TRIAL_PIXELS = 1 << 20


def _faster_in_bfloat16(policy: Policy) -> bool:
    device = policy.policy_head.weight.device
    if device != CPU:
        return computes_bfloat16(device)
    # A batch of 16, of large images less: 16 of a megapixel take half a minute, in which nothing
    # is said. Random images would change the random state of the run.
    count = min(max(_TRIAL_PIXELS // math.prod(policy.image_shape[1:]), 1), 16)
    images = torch.full((count, *policy.image_shape), 0.5)
    with torch.no_grad():
        return faster_in_bfloat16(lambda: policy.policy_torso(images))


def weights(policy: Policy) -> Arrays:
    """Return the policy's parameters by name; of a policy on the CPU they share its memory."""
    return {name: tensor.numpy() for name, tensor in to_host(policy.state_dict()).items()}


def load_weights(policy: Policy, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Copy checked parameters, see :func:`check_weights`, into ``policy``, on the CPU."""
    state = {name: tensor.numpy() for name, tensor in policy.state_dict().items()}
    check_weights({name: (each.dtype, each.shape) for name, each in state.items()}, arrays)
    with torch.no_grad():
        for name, each in state.items():
            np.copyto(each, arrays[name])


def make_policy(
    config: TrainConfig, observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any], algorithm_config: AlgorithmConfig | None = None,
    device: torch.device = CPU,
) -> Policy:
    """Return a policy for the spaces of one environment; ValueError: one that is not supported.

    Weights are initialized on the CPU, so that they do not depend on the device. With the settings
    of dqn the network has action values, with those of sac no value.
    """
    if not isinstance(observation_space, gymnasium.spaces.Box):
        raise ValueError(f'observation space {observation_space} is not supported: a Box')
    image = is_image(getattr(observation_space, 'image', observation_space))
    network = config.network
    if network == 'auto':
        network = 'impala' if image else 'mlp'
    if network != 'mlp' and not image:
        raise ValueError(
            f'network {network!r} needs images, uint8 [C, H, W] or [H, W, C] of at least '
            f'{SMALLEST_IMAGE} x {SMALLEST_IMAGE}; this environment has {observation_space}')
    policy = Policy(
        config, network, observation_space,
        make_distribution(action_space, config, algorithm_config),
        of_sac=isinstance(algorithm_config, SacConfig))
    choose_precision(policy.to(device), config.precision)
    return policy
