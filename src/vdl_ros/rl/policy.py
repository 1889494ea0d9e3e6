"""A policy: a torso, an LSTM if asked, a head for actions and one for the value of the state."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import gymnasium
import torch
from torch import Tensor, nn

from vdl_ros.precision import faster_in_bfloat16
from vdl_ros.rl import distributions
from vdl_ros.rl.algorithm_config import AlgorithmConfig, DqnConfig
from vdl_ros.rl.config import TrainConfig
from vdl_ros.rl.networks import SMALLEST_IMAGE, make_torso, orthogonal
from vdl_ros.rl.normalizer import Normalizer

__all__ = ['Output', 'Policy', 'make_policy']

# Images in a batch that decides on the precision.
_TRIED = 16


class Output(NamedTuple):
    """
    What a policy says of observations [..., *observation_shape].

    Attributes:
        parameters: float [..., P], of the distribution of actions.
        values: float [...]; of action values, the largest.
        state: float [B, S], of the LSTM after the last step; S is 0 if there is none.
    """

    parameters: Tensor
    values: Tensor
    state: Tensor


class Policy(nn.Module):
    """
    A network with a policy head and a value head, or with one head of action values.

    Attributes:
        distribution: what the policy head's numbers mean.
        observation_shape: shape of one observation.
        state_size: S, numbers of the LSTM's state; 0: there is none.
        precision: of the torso, torch.float32 or torch.bfloat16; parameters and heads are float32.
        normalizer: of observations, or None.
        exploration: with action values, epsilon or temperature, [1] or [B].
    """

    def __init__(
        self,
        network: str,
        observation_shape: tuple[int, ...],
        distribution: distributions.ActionDistribution,
        *,
        hidden_size: int = 64,
        lstm_size: int = 0,
        normalize: bool = False,
    ) -> None:
        """Build the net; use :func:`make_policy` for one that fits given spaces."""
        super().__init__()
        self.distribution = distribution
        self.observation_shape = observation_shape
        self.state_size = 2 * lstm_size
        self.precision = torch.float32
        self.exploration = torch.zeros(1)
        self._images = network != 'mlp'
        self._channels_last = self._images and observation_shape[1] >= SMALLEST_IMAGE > \
            observation_shape[2]
        self._of_values = isinstance(distribution, distributions.EpsilonGreedy)
        shape = self.image_shape if self._images else (math.prod(observation_shape),)
        self.normalizer = Normalizer(shape) if normalize else None
        self.policy_torso, features = make_torso(network, shape, hidden_size)
        separate = not self._images and not lstm_size and not self._of_values
        self.value_torso = make_torso(network, shape, hidden_size)[0] if separate else None
        self.lstm: nn.LSTMCell | None = None
        if lstm_size:
            self.lstm = nn.LSTMCell(features, lstm_size)
            for name, parameter in self.lstm.named_parameters():
                (nn.init.orthogonal_ if 'weight' in name else nn.init.zeros_)(parameter)
            features = lstm_size
        gaussian = isinstance(distribution, distributions.DiagonalGaussian)
        outputs = distribution.size // 2 if gaussian else distribution.size - self._of_values
        self.policy_head = orthogonal(
            nn.Linear(features, outputs), 1.0 if self._of_values else 0.01)
        self.value_head = None if self._of_values else orthogonal(nn.Linear(features, 1), 1.0)
        self.log_std = nn.Parameter(torch.zeros(outputs)) if gaussian else None

    @property
    def image_shape(self) -> tuple[int, ...]:
        """[C, H, W] of an observation that is an image."""
        shape = self.observation_shape
        return (shape[2], *shape[:2]) if self._channels_last else shape

    def initial_state(self, batch: int) -> Tensor:
        """Return the state before the first observation, [batch, S]."""
        return torch.zeros(batch, self.state_size)

    def forward(
        self, observations: Tensor, is_reset: Tensor | None = None, state: Tensor | None = None,
    ) -> Output:
        """
        Say what to do; without an LSTM, the axes before the observation's may be any.

        Args:
            observations: [..., *observation_shape], with an LSTM [T, B, *observation_shape];
                uint8 images are scaled to [0, 1].
            is_reset: [T, B] bool, where an episode begins: the state is forgotten there.
            state: [B, S], before the first observation; unused and unneeded without an LSTM.
        """
        lead = observations.shape[:observations.dim() - len(self.observation_shape)]
        features, value_features = self._features(observations)
        if self.lstm is not None:
            assert is_reset is not None
            assert state is not None
            features, state = self._remember(features.reshape(*lead, -1), is_reset, state)
            value_features = features = features.flatten(0, 1)
        elif state is None:
            state = features.new_zeros(0, 0)
        parameters = self.policy_head(features)
        if self.log_std is not None:
            parameters = torch.cat([parameters, self.log_std.expand_as(parameters)], -1)
        if self.value_head is not None:
            values = self.value_head(value_features).squeeze(-1)
        else:
            values = parameters.amax(-1)
            parameters = torch.cat([
                parameters, self.exploration.to(parameters).expand(lead or 1).reshape(-1, 1)], -1)
        return Output(parameters.reshape(*lead, -1), values.reshape(lead), state)

    def _features(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Return features for policy and value, [N, F] each."""
        if self._images:
            inputs = observations.reshape(-1, *self.observation_shape)
            if self._channels_last:
                inputs = inputs.movedim(-1, 1)
        else:
            inputs = observations.reshape(-1, math.prod(self.observation_shape))
        # Bytes are exact in either precision.
        scaled = inputs.dtype == torch.uint8
        inputs = inputs.to(self.precision)
        if scaled:
            inputs = inputs.mul_(1 / 255)
        if self.normalizer is not None:
            inputs = self.normalizer(inputs)
        with torch.autocast(
                inputs.device.type, torch.bfloat16, enabled=self.precision == torch.bfloat16):
            features = self.policy_torso(inputs).float()
            return features, (
                features if self.value_torso is None else self.value_torso(inputs).float())

    def _remember(
        self, features: Tensor, is_reset: Tensor, state: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the LSTM's output for features [T, B, F], and its state after them."""
        assert self.lstm is not None
        hidden, cell = state.chunk(2, -1)
        kept = (~is_reset).to(features.dtype).unsqueeze(-1)
        outputs = []
        for t in range(len(features)):
            hidden, cell = self.lstm(features[t], (hidden * kept[t], cell * kept[t]))
            outputs.append(hidden)
        return torch.stack(outputs), torch.cat([hidden, cell], -1)


def make_policy(
    config: TrainConfig,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    own: AlgorithmConfig | None = None,
) -> Policy:
    """
    Return a policy for the spaces of one environment.

    Args:
        config: of which network, hidden_size, lstm_size, precision, action_distribution and
            normalize_observations count. network auto takes impala for images, uint8 [C, H, W] or
            [H, W, C]; precision auto takes what this processor computes images faster in.
        observation_space: a Box.
        action_space: see :func:`distributions.for_space`.
        own: the algorithm's settings; dqn's ask for a network of action values.

    Raises:
        ValueError: a space or a combination of network and space that cannot be served.
    """
    if not isinstance(observation_space, gymnasium.spaces.Box):
        raise ValueError(f'observation space {observation_space} is not supported: a Box')
    shape, network = observation_space.shape, config.network
    image = observation_space.dtype == 'uint8' and len(shape) == 3 and (
        min(shape[1:]) >= SMALLEST_IMAGE or min(shape[:2]) >= SMALLEST_IMAGE)
    if network == 'auto':
        network = 'impala' if image else 'mlp'
    if network != 'mlp' and not image:
        raise ValueError(
            f'network {network!r} needs images, uint8 [C, H, W] or [H, W, C] of at least '
            f'{SMALLEST_IMAGE} x {SMALLEST_IMAGE}; this environment has {observation_space}')
    policy = Policy(
        network, shape,
        distributions.for_values(action_space, own.exploration) if isinstance(own, DqnConfig)
        else distributions.for_space(action_space, config.action_distribution),
        hidden_size=config.hidden_size, lstm_size=config.lstm_size,
        normalize=config.normalize_observations and network == 'mlp')
    precision = config.precision
    if precision == 'auto' and network != 'mlp':
        precision = 'bfloat16' if _faster_in_bfloat16(policy) else 'float32'
    if precision == 'bfloat16':
        policy.precision = torch.bfloat16
    return policy


def _faster_in_bfloat16(policy: Policy) -> bool:
    # No random numbers: they would be missing from the run's.
    images = torch.full((_TRIED, *policy.image_shape), 0.5)
    with torch.no_grad():
        return faster_in_bfloat16(lambda: policy.policy_torso(images))
