"""The encoder of a policy: from observations to features."""

import math

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from vdl_ros.common.observation_spaces import SMALLEST_IMAGE, ImageAndVector
from vdl_ros.rl.policy.networks import (
    Normalizer,
    Smoothing,
    autocast,
    make_torso,
    orthogonal,
    random_shift,
)
from vdl_ros.rl.settings import TrainConfig

# Units of the layer that joins the features of an image and numbers.
_JOINT_SIZE = 256


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
        self.normalizer: Normalizer | None = None
        if config.normalize_observations and (mixed is not None or not self.of_images):
            self.normalizer = Normalizer(shape if mixed is None else (mixed.vector_size,))
        self.smoothing: Smoothing | None = None
        if config.observation_smoothing and self.of_images:
            self.smoothing = Smoothing(config.observation_smoothing)
        self.policy_torso, self.num_features = make_torso(network, shape, config.hidden_size)
        self.num_torso_features = self.num_features
        self.value_torso: nn.Module | None = None
        if separate_value and not self.of_images and mixed is None:
            self.value_torso, _ = make_torso(network, shape, config.hidden_size)
        self.joint: nn.Module | None = None
        if mixed is not None:
            self.joint = nn.Sequential(orthogonal(nn.Linear(
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
            return observations.flatten(1)
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
            inputs = random_shift(inputs, shift, 1 if self._channels_last else 2)
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
        with autocast(inputs):
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
