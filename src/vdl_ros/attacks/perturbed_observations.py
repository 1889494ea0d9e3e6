"""
Observations in float32, after scaling, so that small perturbations are not rounded away.

Environments send images as bytes, and policies divide them by 255: a perturbation of 0.001 would
be less than the distance of two bytes.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vdl_ros.attacks.attack_config import NONE, AttackConfig
from vdl_ros.common.observation_spaces import ImageAndVector, ScaledImage, is_image
from vdl_ros.rl.train_config import TrainConfig

__all__ = ['PerturbedObservations', 'observed']


def observed(
    space: gymnasium.Space[Any], frames: int, attack: AttackConfig, train: TrainConfig,
) -> tuple[gymnasium.Space[Any], int]:
    """
    Return the space of what a policy observes, and how many frames of it are stacked.

    Under an attack each observation is a new one: its frames are not those of the one before.

    Args:
        space: of one environment.
        frames: see ``factory.frames_per_observation``.
        attack: the attack.
        train: settings of training.
    """
    if attack.adversarial_mode == NONE:
        return space, frames
    return PerturbedObservations(space, train.normalize_observations).space, 1


class PerturbedObservations:
    """
    Converts observations to those that a policy sees under an attack, and back to one array.

    Attributes:
        space: of one perturbed observation.
        image_space: of the part that is perturbed: the image, or all numbers.
    """

    def __init__(self, space: gymnasium.Space[Any], normalized: bool = False) -> None:
        """
        Convert observations of ``space``, the space of one environment.

        Args:
            space: a Box; of an :class:`ImageAndVector` only the image is perturbed.
            normalized: whether the policy normalizes numbers; it takes them without scaling.

        Raises:
            ValueError: it is not a Box.
        """
        if not isinstance(space, spaces.Box):
            raise ValueError(f'observation space {space} is not supported: a Box')
        self._mixed = space if isinstance(space, ImageAndVector) else None
        seen: spaces.Box = space if self._mixed is None else self._mixed.image
        self._scaled = seen.dtype == np.uint8 and (is_image(seen) or not normalized)
        self.image_space: spaces.Box = ScaledImage(seen.shape) if is_image(seen) else spaces.Box(
            -np.inf, np.inf, seen.shape, np.float32)
        self.space: spaces.Box = self.image_space if self._mixed is None else ImageAndVector(
            self.image_space, self._mixed.vector_size)

    @property
    def resolution(self) -> float:
        """Distance of two values of the environment's observations; 0 if they are not bytes."""
        return 1 / 255 if self._scaled else 0.0

    def split(
        self, observations: NDArray[Any],
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """Return what is perturbed, float32 [B, ...], and the numbers beside it, or None."""
        numbers = None
        if self._mixed is not None:
            observations, numbers = self._mixed.split(observations)
            numbers = np.ascontiguousarray(numbers)
        image = observations.astype(np.float32)
        if self._scaled:
            # As the policy does, so that without a perturbation it sees the same.
            image *= np.float32(1 / 255)
        return image, numbers

    def join(
        self, image: NDArray[np.float32], numbers: NDArray[np.float32] | None,
    ) -> NDArray[Any]:
        """Return observations of ``space``, [B, ...]."""
        if not isinstance(self.space, ImageAndVector):
            return image
        rows = np.empty((len(image), *(self.space.shape or ())), np.uint8)
        images, vectors = self.space.split(rows)
        images[...], vectors[...] = image, numbers
        return rows
