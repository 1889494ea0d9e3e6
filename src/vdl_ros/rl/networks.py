"""
Policy networks: an observation in, parameters of an action distribution and a value out.

mlp: two tanh layers for policy and value each. impala: the shallow net of Espeholt et al. 2018.
nature: the net of Mnih et al. 2015, "Human-level control through deep reinforcement learning".
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn

from vdl_ros.precision import faster_in_bfloat16
from vdl_ros.rl import distributions

__all__ = ['Policy', 'make_policy']

# The smallest that every net's kernels and strides leave a pixel of.
_SMALLEST_IMAGE = 36
# Images in a batch that decides on the precision.
_TRIED = 16


class Policy(nn.Module):
    """
    A network with a policy head and a value head.

    Attributes:
        distribution: what the policy head's numbers mean.
        observation_shape: shape of one observation.
        precision: of the torso, torch.float32 or torch.bfloat16; parameters and heads are float32.
    """

    def __init__(
        self,
        network: str,
        observation_shape: tuple[int, ...],
        distribution: distributions.ActionDistribution,
        hidden_size: int,
        *,
        gaussian: bool,
    ) -> None:
        """Build the net; use :func:`make_policy` for one that fits given spaces."""
        super().__init__()
        self.distribution = distribution
        self.observation_shape = observation_shape
        self._images = network != 'mlp'
        self._channels_last = self._images and observation_shape[1] >= _SMALLEST_IMAGE > \
            observation_shape[2]
        outputs = distribution.size // 2 if gaussian else distribution.size
        if network == 'mlp':
            inputs = math.prod(observation_shape)
            self.policy_torso: nn.Module = _mlp(inputs, hidden_size)
            self.value_torso: nn.Module | None = _mlp(inputs, hidden_size)
            features = hidden_size
        else:
            height, width, channels = observation_shape
            self.policy_torso, features = _conv(
                network, (channels, height, width) if self._channels_last else observation_shape)
            self.value_torso = None
        self.policy_head = _orthogonal(nn.Linear(features, outputs), 0.01)
        self.value_head = _orthogonal(nn.Linear(features, 1), 1.0)
        self.log_std = nn.Parameter(torch.zeros(outputs)) if gaussian else None
        self.precision = torch.float32

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """
        Return the distribution's parameters, float [..., P], and values, float [...].

        Args:
            observations: [..., *observation_shape]; uint8 images are scaled to [0, 1].
        """
        lead = observations.shape[:observations.dim() - len(self.observation_shape)]
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
        with torch.autocast('cpu', torch.bfloat16, enabled=self.precision == torch.bfloat16):
            features = self.policy_torso(inputs).float()
            value_features = (
                features if self.value_torso is None else self.value_torso(inputs).float())
        parameters = self.policy_head(features)
        if self.log_std is not None:
            parameters = torch.cat([parameters, self.log_std.expand_as(parameters)], -1)
        values = self.value_head(value_features).squeeze(-1)
        return parameters.reshape(*lead, -1), values.reshape(lead)


def make_policy(
    network: str,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    hidden_size: int = 64,
    precision: str = 'float32',
) -> Policy:
    """
    Return a policy for the spaces of one environment.

    Args:
        network: auto, mlp, impala or nature; auto takes impala for images, [C, H, W] or
            [H, W, C] uint8.
        observation_space: a Box.
        action_space: see :func:`distributions.for_space`.
        hidden_size: width of the mlp.
        precision: float32, bfloat16, or auto: whichever this processor computes images faster in.

    Raises:
        ValueError: a space or a combination of network and space that cannot be served.
    """
    if not isinstance(observation_space, gymnasium.spaces.Box):
        raise ValueError(f'observation space {observation_space} is not supported: a Box')
    shape = observation_space.shape
    image = observation_space.dtype == 'uint8' and len(shape) == 3 and (
        min(shape[1:]) >= _SMALLEST_IMAGE or min(shape[:2]) >= _SMALLEST_IMAGE)
    if network == 'auto':
        network = 'impala' if image else 'mlp'
    if network != 'mlp' and not image:
        raise ValueError(
            f'network {network!r} needs images, uint8 [C, H, W] or [H, W, C] of at least '
            f'{_SMALLEST_IMAGE} x {_SMALLEST_IMAGE}; this environment has {observation_space}')
    distribution = distributions.for_space(action_space)
    gaussian = isinstance(distribution, distributions.DiagonalGaussian)
    policy = Policy(network, shape, distribution, hidden_size, gaussian=gaussian)
    if precision == 'auto' and image and network != 'mlp':
        precision = 'bfloat16' if _faster_in_bfloat16(policy) else 'float32'
    if precision == 'bfloat16':
        policy.precision = torch.bfloat16
    return policy


def _faster_in_bfloat16(policy: Policy) -> bool:
    shape = policy.observation_shape
    channels, height, width = shape if min(shape[1:]) >= _SMALLEST_IMAGE else (
        shape[2], *shape[:2])
    # No random numbers: they would be missing from the run's.
    images = torch.full((_TRIED, channels, height, width), 0.5)
    with torch.no_grad():
        return faster_in_bfloat16(lambda: policy.policy_torso(images))


def _orthogonal(layer: nn.Linear | nn.Conv2d, gain: float) -> nn.Linear | nn.Conv2d:
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def _mlp(inputs: int, hidden_size: int) -> nn.Sequential:
    return nn.Sequential(
        _orthogonal(nn.Linear(inputs, hidden_size), math.sqrt(2)), nn.Tanh(),
        _orthogonal(nn.Linear(hidden_size, hidden_size), math.sqrt(2)), nn.Tanh())


def _conv(network: str, shape: tuple[int, ...]) -> tuple[nn.Sequential, int]:
    """Return a convolutional torso and its number of features."""
    layers, features = {
        'impala': (((16, 8, 4), (32, 4, 2)), 256),
        'nature': (((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512),
    }[network]
    modules: list[nn.Module] = []
    channels = shape[0]
    for filters, kernel, stride in layers:
        modules += [_orthogonal(nn.Conv2d(channels, filters, kernel, stride), math.sqrt(2)),
                    nn.ReLU()]
        channels = filters
    modules.append(nn.Flatten())
    with torch.no_grad():
        size = nn.Sequential(*modules)(torch.zeros(1, *shape)).shape[-1]
    modules += [_orthogonal(nn.Linear(size, features), math.sqrt(2)), nn.ReLU()]
    return nn.Sequential(*modules), features
