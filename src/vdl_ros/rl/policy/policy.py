"""The policy network: torso, optional LSTM, action head and optional value head."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vdl_ros.common.observation_spaces import SMALLEST_IMAGE, ImageAndVector, is_image
from vdl_ros.common.tensor_file import faster_in_bfloat16
from vdl_ros.rl.data.unroll import Arrays
from vdl_ros.rl.device import CPU, computes_bfloat16, to_host
from vdl_ros.rl.policy import distributions
from vdl_ros.rl.policy.networks import Normalizer, Smoothing, make_torso, orthogonal, run_lstm
from vdl_ros.rl.policy.numpy_policy import check_weights
from vdl_ros.rl.settings import AlgorithmConfig, DqnConfig, SacConfig, TrainConfig

__all__ = ['Output', 'Policy', 'choose_precision', 'load_weights', 'make_policy', 'weights']


# Units of the layer that joins the features of an image and numbers.
_JOINT_SIZE = 256


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


class Policy(nn.Module):
    """A network with a policy head and often a value head, or with one head of action values.

    If an observation is an image and numbers, the torso's features of the image and the numbers
    go through one more layer.

    Args:
        hidden_size: units of each layer of the mlp.
        lstm_size: cells of the LSTM; 0: none.
        last_action_reward: whether the last action and reward are inputs.
        smoothing: standard deviation of the smoothing of images, in pixels; 0: none.
        has_value: whether there is a value head; action values need none.
        has_log_std: whether the network computes the log-std of a Gaussian, which else is one
            parameter for all observations.
        initial_std: of a Gaussian whose log-std is a parameter.

    Attributes:
        distribution: action distribution of the policy head's outputs.
        network: name of the torso, see ``networks.py``.
        of_images: whether the torso is one for images.
        state_size: S, size of the state: the LSTM's state, then the last action and reward if
            they are inputs; 0: no state.
        precision: of the torso, torch.float32 or torch.bfloat16; weights and heads are float32.
        normalizer: of :meth:`numbers`, or None.
        exploration: with action values, epsilon or temperature, [1] or [B]; not a weight.
    """

    exploration: Tensor

    def __init__(
        self,
        network: str,
        observation_space: gymnasium.spaces.Box,
        distribution: distributions.ActionDistribution,
        *,
        hidden_size: int = 64,
        lstm_size: int = 0,
        last_action_reward: bool = False,
        normalize: bool = False,
        smoothing: float = 0.0,
        has_value: bool = True,
        has_log_std: bool = False,
        initial_std: float = 1.0,
    ) -> None:
        super().__init__()
        self.network = network
        self.distribution = distribution
        self.observation_shape = observation_space.shape
        mixed = self._mixed = (
            observation_space if isinstance(observation_space, ImageAndVector) else None)
        self._torso_shape = (observation_space if mixed is None else mixed.image).shape
        self.last_action_reward = last_action_reward
        last_size = distribution.num_inputs + 1 if last_action_reward else 0
        self._lstm_state_size = 2 * lstm_size
        self.state_size = self._lstm_state_size + last_size
        self.precision = torch.float32
        self.register_buffer('exploration', torch.zeros(1), persistent=False)
        self.of_images = network != 'mlp'
        self._channels_last = self.of_images and self._torso_shape[1] >= SMALLEST_IMAGE > \
            self._torso_shape[2]
        self._of_values = isinstance(distribution, distributions.EpsilonGreedy)
        shape = self.image_shape if self.of_images else (math.prod(self._torso_shape),)
        self.normalizer = Normalizer(
            shape if mixed is None else (mixed.vector_size,)) if normalize else None
        self.smoothing = Smoothing(smoothing) if smoothing and self.of_images else None
        self.policy_torso, features = make_torso(network, shape, hidden_size)
        has_value = has_value and not self._of_values
        separate = has_value and not (self.of_images or mixed is not None or lstm_size)
        self.value_torso = make_torso(network, shape, hidden_size)[0] if separate else None
        self.joint: nn.Module | None = None
        if mixed is not None:
            self.joint = nn.Sequential(
                orthogonal(nn.Linear(features + mixed.vector_size, _JOINT_SIZE)), nn.ReLU())
            features = _JOINT_SIZE
        features += last_size
        self.lstm: nn.LSTMCell | None = None
        if lstm_size:
            self.lstm = nn.LSTMCell(features, lstm_size)
            for name, parameter in self.lstm.named_parameters():
                (nn.init.orthogonal_ if 'weight' in name else nn.init.zeros_)(parameter)
            features = lstm_size
        own_log_std = isinstance(distribution, distributions.DiagonalGaussian) and not has_log_std
        outputs = distribution.size // 2 if own_log_std else distribution.size - self._of_values
        self.policy_head = orthogonal(
            nn.Linear(features, outputs), 1.0 if self._of_values else 0.01)
        self.value_head = orthogonal(nn.Linear(features, 1), 1.0) if has_value else None
        self.log_std = (
            nn.Parameter(torch.full((outputs,), math.log(initial_std))) if own_log_std else None)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """[C, H, W] of observations that are images, or of the image in them."""
        shape = self._torso_shape
        return (shape[2], *shape[:2]) if self._channels_last else shape

    @property
    def num_numbers(self) -> int:
        """V, numbers beside the image of an observation; 0 without both."""
        return 0 if self._mixed is None else self._mixed.vector_size

    def initial_state(self, batch: int) -> Tensor:
        """Return the state before the first observation, [batch, S]."""
        return self.policy_head.weight.new_zeros(batch, self.state_size)

    def append_last_action(self, state: Tensor, actions: Tensor, rewards: Tensor) -> Tensor:
        """Return the state with the last action and reward, if they are inputs of the policy.

        Args:
            state: [B, S].
            actions: [B] or [B, A].
            rewards: [B] float.
        """
        if not self.last_action_reward:
            return state
        return torch.cat(
            [state[:, :self._lstm_state_size], self._encode_last(actions, rewards)], -1)

    def _encode_last(self, actions: Tensor, rewards: Tensor) -> Tensor:
        """Return the network inputs for actions [..., (A)] and rewards [...]."""
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
            actions: [T - 1, B] or [T - 1, B, A], or longer, after the observations; unused if T
                is 1 or the last action and reward are not inputs.
            rewards: [T - 1, B] float, or longer, likewise.
            numbers: [T * B, V], the numbers of observations that are an image and numbers; then
                ``observations`` are the images, [T, B, *image].
        """
        shape = self.observation_shape if numbers is None else self._torso_shape
        lead = observations.shape[:observations.dim() - len(shape)]
        if numbers is None:
            observations, numbers = self.split(observations)
        features, value_features = self._features(observations, numbers)
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
                features, state = run_lstm(
                    self.lstm, features.reshape(*lead, -1), is_reset, state)
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

    def numbers(self, observations: Tensor) -> Tensor:
        """Return the numbers beside the image of observations, or all if the torso takes them.

        Args:
            observations: [N, *observation_shape].

        Returns:
            [N, V], or [N, inputs].
        """
        if self._mixed is None:
            return observations.flatten(1)
        # A copy, since float32 begins at every fourth byte.
        return observations[:, :self._mixed.vector_bytes].clone(
            memory_format=torch.contiguous_format).view(torch.float32)

    def split(self, observations: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the torso's observations, [N, ...], and the numbers beside them, [N, V] or None.

        Args:
            observations: [..., *observation_shape].
        """
        rows = observations.reshape(-1, *self.observation_shape)
        if self._mixed is None:
            return rows, None
        images = rows[:, self._mixed.vector_bytes:]
        if self._mixed.image.dtype == np.float32:
            images = images.clone(memory_format=torch.contiguous_format).view(torch.float32)
        return images.reshape(-1, *self._torso_shape), self.numbers(rows)

    def prepare(
        self, observations: Tensor, numbers: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the torso's inputs in its precision [N, ...] and the numbers beside them [N, V].

        Both are normalized if there is a normalizer, and images smoothed if that is set. Without
        an image and numbers the second is None.

        Args:
            numbers: those beside them, see :meth:`split`.
        """
        inputs = observations.reshape(-1, *self._torso_shape)
        if not self.of_images:
            inputs = inputs.reshape(-1, math.prod(self._torso_shape))
        elif self._channels_last:
            inputs = inputs.permute(0, 3, 1, 2)
        if self.of_images and inputs.device.type == 'cpu' and (
                torch.is_grad_enabled() or self.network == 'resnet'):
            # Convolutions are faster so; with the other networks inference gains less than the
            # copy costs.
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        normalizer = self.normalizer if self._mixed is None else None
        # Bytes are exact in both precisions; the normalizer's statistics are of unscaled bytes.
        scaled = inputs.dtype == torch.uint8 and normalizer is None
        inputs = inputs.to(self.precision)
        if scaled:
            inputs = inputs.mul_(1 / 255)
        if normalizer is not None:
            inputs = normalizer(inputs)
        if self.smoothing is not None:
            inputs = self.smoothing(inputs)
        if numbers is not None and self.normalizer is not None:
            numbers = self.normalizer(numbers)
        return inputs, numbers

    def _features(self, observations: Tensor, numbers: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return features for policy and value, [N, F] each, of the parts of observations."""
        inputs, numbers = self.prepare(observations, numbers)
        with torch.autocast(
                inputs.device.type, torch.bfloat16, enabled=self.precision == torch.bfloat16):
            features = self.policy_torso(inputs).float()
            value_features = (
                features if self.value_torso is None else self.value_torso(inputs).float())
        if self.joint is None:
            return features, value_features
        assert numbers is not None
        features = self.joint(torch.cat([features, numbers], -1))
        return features, features

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


# Batch size of the measurement that chooses the precision.
_PRECISION_BATCH = 16


def choose_precision(policy: Policy, precision: str) -> None:
    """Set the precision of a policy's torso for the device that it is on.

    Args:
        precision: 'float32', 'bfloat16', or 'auto': on a CPU the faster one, on a CUDA device
            bfloat16 if the hardware supports it. It has the exponent range of float32, so
            gradients need no scaling. Without images the precision is always float32.
    """
    if precision == 'auto' and policy.of_images:
        precision = 'bfloat16' if _faster_in_bfloat16(policy) else 'float32'
    policy.precision = (
        torch.bfloat16 if precision == 'bfloat16' and policy.of_images else torch.float32)


def _faster_in_bfloat16(policy: Policy) -> bool:
    device = policy.policy_head.weight.device
    if device != CPU:
        return computes_bfloat16(device)
    # Random images would change the random state of the run.
    images = torch.full((_PRECISION_BATCH, *policy.image_shape), 0.5)
    with torch.no_grad():
        return faster_in_bfloat16(lambda: policy.policy_torso(images))


def weights(policy: Policy) -> Arrays:
    """Return the policy's parameters by name; of a policy on the CPU they share its memory."""
    return {name: tensor.numpy() for name, tensor in to_host(policy.state_dict()).items()}


def load_weights(policy: Policy, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Copy parameters into ``policy``, which is on the CPU.

    Raises:
        ValueError: names, shapes or dtypes differ from this policy's, or not all are finite.
    """
    state = {name: tensor.numpy() for name, tensor in policy.state_dict().items()}
    check_weights({name: (each.dtype, each.shape) for name, each in state.items()}, arrays)
    with torch.no_grad():
        for name, each in state.items():
            np.copyto(each, arrays[name])


def make_policy(
    config: TrainConfig,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    algorithm_config: AlgorithmConfig | None = None,
    device: torch.device = CPU,
) -> Policy:
    """Return a policy for the spaces of one environment.

    Args:
        config: uses network, hidden_size, lstm_size, last_action_reward, precision,
            action_distribution, initial_std, normalize_observations and observation_smoothing.
            Network ``auto`` is impala for images, uint8 [C, H, W] or [H, W, C]; for precision
            see :func:`choose_precision`.
        observation_space: a Box: numbers, images, or an :class:`ImageAndVector`.
        algorithm_config: the algorithm's settings; with those of dqn the network has action
            values, with those of sac no value.
        device: device of the policy. Weights are initialized on the CPU, so that they do not
            depend on it.

    Raises:
        ValueError: a space, or a combination of network and space, that is not supported.
    """
    if not isinstance(observation_space, gymnasium.spaces.Box):
        raise ValueError(f'observation space {observation_space} is not supported: a Box')
    mixed = isinstance(observation_space, ImageAndVector)
    image = is_image(getattr(observation_space, 'image', observation_space))
    network = config.network
    if network == 'auto':
        network = 'impala' if image else 'mlp'
    if network != 'mlp' and not image:
        raise ValueError(
            f'network {network!r} needs images, uint8 [C, H, W] or [H, W, C] of at least '
            f'{SMALLEST_IMAGE} x {SMALLEST_IMAGE}; this environment has {observation_space}')
    of_sac = isinstance(algorithm_config, SacConfig)
    policy = Policy(
        network, observation_space, _distribution(config, action_space, algorithm_config),
        hidden_size=config.hidden_size, lstm_size=config.lstm_size,
        last_action_reward=config.last_action_reward,
        normalize=config.normalize_observations and (mixed or network == 'mlp'),
        smoothing=config.observation_smoothing, has_value=not of_sac, has_log_std=of_sac,
        initial_std=config.initial_std)
    choose_precision(policy.to(device), config.precision)
    return policy


def _distribution(
    config: TrainConfig, space: gymnasium.Space[Any], algorithm_config: AlgorithmConfig | None,
) -> distributions.ActionDistribution:
    """Return the family of actions; sac squashes continuous ones."""
    if isinstance(algorithm_config, DqnConfig):
        return distributions.for_values(space, algorithm_config.exploration)
    if not isinstance(algorithm_config, SacConfig):
        return distributions.for_space(space, config.action_distribution)
    parts = isinstance(space, gymnasium.spaces.MultiDiscrete)
    unbounded = isinstance(space, gymnasium.spaces.Box) and not space.is_bounded()
    if parts or unbounded:
        raise ValueError(f"algorithm: 'sac' cannot act in {space}: Discrete from 0, or a Box with "
                         f'a finite range; for other spaces one of {distributions.OF_ALL_SPACES}')
    return distributions.for_space(space, 'squashed')
