"""The policy network: encoder, optional LSTM, action head and optional value head."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from vdl_ros.common.observation_spaces import SMALLEST_IMAGE, ImageAndVector, is_image
from vdl_ros.common.tensor_file import faster_in_bfloat16
from vdl_ros.rl.data.unroll import Arrays
from vdl_ros.rl.device import CPU, computes_bfloat16, to_host
from vdl_ros.rl.policy import networks
from vdl_ros.rl.policy.distributions import (
    ActionDistribution,
    DiagonalGaussian,
    EpsilonGreedy,
    make_distribution,
)
from vdl_ros.rl.policy.numpy_policy import check_weights
from vdl_ros.rl.settings import AlgorithmConfig, BcConfig, SacConfig, TrainConfig

# Units of the layer that joins the features of an image and numbers.
_JOINT_SIZE = 256
# The coefficient m of temporal ensembling.
_DECAY = 0.01


class Encoder(nn.Module):
    """Torsos with normalization and smoothing before them.

    If an observation is an image and numbers, the torso's features of the image and the numbers
    go through one more layer.

    Args:
        separate_value: whether the value has a torso of its own, which a network of images lacks.

    Attributes:
        of_images: whether the torso is one for images.
        num_features: F.
        precision: of the torso, torch.float32 or torch.bfloat16; weights and heads are float32.
        normalizer: of :meth:`numbers`, or None.
    """

    def __init__(
        self, config: TrainConfig, network: str, observation_space: gymnasium.spaces.Box, *,
        separate_value: bool,
    ) -> None:
        super().__init__()
        self.network, self.observation_shape = network, observation_space.shape
        mixed = self._mixed = (
            observation_space if isinstance(observation_space, ImageAndVector) else None)
        self._torso_shape = (observation_space if mixed is None else mixed.image).shape
        self.precision = torch.float32
        self.of_images = network != 'mlp'
        self._channels_last = self.of_images and self._torso_shape[1] >= SMALLEST_IMAGE > \
            self._torso_shape[2]
        shape = self.image_shape if self.of_images else (math.prod(self._torso_shape),)
        self.normalizer: networks.Normalizer | None = None
        if config.normalize_observations and (mixed is not None or not self.of_images):
            self.normalizer = networks.Normalizer(shape if mixed is None else (mixed.vector_size,))
        self.smoothing: networks.Smoothing | None = None
        if config.observation_smoothing and self.of_images:
            self.smoothing = networks.Smoothing(config.observation_smoothing)
        self.policy_torso, self.num_features = networks.make_torso(
            network, shape, config.hidden_size)
        self.num_torso_features = self.num_features
        self.value_torso: nn.Module | None = None
        if separate_value and not self.of_images and mixed is None:
            self.value_torso, _ = networks.make_torso(network, shape, config.hidden_size)
        self.joint: nn.Module | None = None
        if mixed is not None:
            self.joint = nn.Sequential(networks.orthogonal(nn.Linear(
                self.num_features + mixed.vector_size, _JOINT_SIZE)), nn.ReLU())
            self.num_features = _JOINT_SIZE

    @property
    def image_shape(self) -> tuple[int, ...]:
        """[C, H, W] of observations that are images, or of the image in them."""
        shape = self._torso_shape
        return (shape[2], *shape[:2]) if self._channels_last else shape

    @property
    def num_numbers(self) -> int:
        """V, numbers beside the image of an observation; 0 without both."""
        return 0 if self._mixed is None else self._mixed.vector_size

    def numbers(self, observations: Tensor) -> Tensor:
        """Return the numbers beside the images of observations [N, ...], float [N, V].

        Without an image and numbers, these are the observations themselves, [N, inputs].
        """
        if self._mixed is None:
            # One number may be without an axis.
            return observations.flatten(1) if observations.dim() > 1 else observations[:, None]
        # A copy, since float32 begins at every fourth byte.
        return observations[:, :self._mixed.vector_bytes].clone(
            memory_format=torch.contiguous_format).view(torch.float32)

    def split(self, observations: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the torso's observations, [N, ...], and the numbers beside them, [N, V] or None.

        ``observations`` are [..., *observation_shape].
        """
        rows = observations.reshape(-1, *self.observation_shape)
        if self._mixed is None:
            return rows, None
        images = rows[:, self._mixed.vector_bytes:]
        if self._mixed.image.dtype == np.float32:
            images = images.clone(memory_format=torch.contiguous_format).view(torch.float32)
        return images.reshape(-1, *self._torso_shape), self.numbers(rows)

    def prepare(
        self, observations: Tensor, numbers: Tensor | None = None, *, shift: float = 0.0,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the torso's inputs in its precision [N, ...] and the numbers beside them [N, V].

        Both are normalized if there is a normalizer, and images smoothed if that is set, and first
        shifted at random by up to a share of their size. The others are as :meth:`split` returns
        them.
        """
        inputs = observations.reshape(-1, *self._torso_shape)
        if shift and self.of_images:
            inputs = networks.random_shift(inputs, shift, 1 if self._channels_last else 2)
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

    def parts(self) -> tuple[nn.Sequential, nn.Sequential]:
        """Return the torso's convolutions up to flat features, none for numbers, and the rest."""
        layers = list(self.policy_torso)
        count = [type(each) for each in layers].index(nn.Flatten) + 1 if self.of_images else 0
        return nn.Sequential(*layers[:count]), nn.Sequential(*layers[count:])

    def encode(self, observations: Tensor, numbers: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return features for policy and value, [N, F] each, of what :meth:`split` returns."""
        inputs, numbers = self.prepare(observations, numbers)
        with networks.autocast(inputs):
            features = self.policy_torso(inputs).float()
            value_features = (
                None if self.value_torso is None else self.value_torso(inputs).float())
        features = self.join(features, numbers)
        return features, features if value_features is None else value_features

    def join(self, features: Tensor, numbers: Tensor | None) -> Tensor:
        """Return features for the policy, [N, F], of those of the torso and the numbers."""
        if self.joint is None:
            return features
        assert numbers is not None
        joined: Tensor = self.joint(torch.cat([features, numbers], -1))
        return joined


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
        chunk: N, actions that are given at once; the parameters for a step are the mean of those
            that were given for it, the i-th oldest weighted with exp(-0.01 i).

    Attributes:
        distribution: action distribution of the policy head's outputs.
        state_size: S, size of the state: the LSTM's state, then the last action and reward if
            they are inputs, then sums of what was given for the next steps; 0: no state.
        exploration: with action values, epsilon or temperature, [1] or [B]; not a weight.
    """

    exploration: Tensor

    def __init__(
        self, config: TrainConfig, network: str, observation_space: gymnasium.spaces.Box,
        distribution: ActionDistribution, *, of_sac: bool, chunk: int = 1,
    ) -> None:
        of_values = self._of_values = isinstance(distribution, EpsilonGreedy)
        has_value, lstm_size = not of_values and not of_sac, config.lstm_size
        super().__init__(
            config, network, observation_space, separate_value=has_value and not lstm_size)
        self.distribution = distribution
        self.last_action_reward = config.last_action_reward
        last_size = distribution.num_inputs + 1 if config.last_action_reward else 0
        self._lstm_state_size = 2 * lstm_size
        self.chunk = chunk
        self.state_size = (
            self._lstm_state_size + last_size + (chunk - 1) * (distribution.size + 1))
        self.register_buffer('exploration', torch.zeros(1), persistent=False)
        features = self.num_features + last_size
        self.lstm: nn.LSTMCell | None = None
        if lstm_size:
            self.lstm = nn.LSTMCell(features, lstm_size)
            for name, parameter in self.lstm.named_parameters():
                (nn.init.orthogonal_ if 'weight' in name else nn.init.zeros_)(parameter)
            features = lstm_size
        own_log_std = isinstance(distribution, DiagonalGaussian) and not of_sac
        outputs = chunk * (
            distribution.size // 2 if own_log_std else distribution.size - of_values)
        self.policy_head = networks.orthogonal(
            nn.Linear(features, outputs), 1.0 if of_values else 0.01)
        self.value_head = networks.orthogonal(nn.Linear(features, 1), 1.0) if has_value else None
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
        if self.chunk > 1:
            return self._ensemble(features, value_features, is_reset, state, lead)
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
                features, state = networks.run_lstm(
                    self.lstm, features.reshape(*lead, -1), is_reset, state)
                value_features = features = features.flatten(0, 1)
            state = torch.cat([state, last], -1)
        elif state is None:
            state = features.new_zeros(0, 0)
        parameters = self._action_parameters(features)
        if self.value_head is not None:
            values = self.value_head(value_features).squeeze(-1)
        elif not self._of_values:
            values = torch.zeros_like(parameters[..., 0])
        else:
            values = parameters.amax(-1)
            parameters = torch.cat([
                parameters, self.exploration.to(parameters).expand(lead or 1).reshape(-1, 1)], -1)
        return Output(parameters.reshape(*lead, -1), values.reshape(lead), state)

    def chunks(self, observations: Tensor) -> Tensor:
        """Return action parameters of each step ahead, [..., N, P], without a state."""
        lead = observations.shape[:observations.dim() - len(self.observation_shape)]
        features, _ = self.encode(*self.split(observations))
        return self._action_parameters(features).reshape(*lead, self.chunk, -1)

    def _action_parameters(self, features: Tensor) -> Tensor:
        """Return action parameters, [..., P], or of chunks [..., N, P], of features [..., F]."""
        parameters: Tensor = self.policy_head(features)
        shape = (self.chunk, -1) if self.chunk > 1 else (-1,)
        parameters = parameters.reshape(*parameters.shape[:-1], *shape)
        if self.log_std is None:
            return parameters
        return torch.cat([parameters, self.log_std.reshape(shape).expand_as(parameters)], -1)

    def _ensemble(
        self, features: Tensor, value_features: Tensor, is_reset: Tensor | None,
        state: Tensor | None, lead: Sequence[int],
    ) -> Output:
        """Return the output of one step, of what was given for it up to now."""
        assert is_reset is not None
        assert state is not None
        assert lead[0] == 1
        given = self._action_parameters(features)
        given = torch.cat([given, torch.ones_like(given[..., :1])], -1)
        # Weights relative to that of the newest: older ones grow.
        before = (state * ~is_reset[0].unsqueeze(-1)).reshape(state.shape[0], self.chunk - 1, -1)
        sums = given + functional.pad(before * math.exp(_DECAY), (0, 0, 0, 1))
        parameters = sums[:, 0, :-1] / sums[:, 0, -1:]
        values = parameters[..., 0] * 0.0 if self.value_head is None else self.value_head(
            value_features).squeeze(-1)
        return Output(parameters[None], values[None], sums[:, 1:].flatten(1))

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


def chunk_of(algorithm_config: AlgorithmConfig | None) -> int:
    return algorithm_config.chunk if isinstance(algorithm_config, BcConfig) else 1


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
        of_sac=isinstance(algorithm_config, SacConfig), chunk=chunk_of(algorithm_config))
    choose_precision(policy.to(device), config.precision)
    return policy
