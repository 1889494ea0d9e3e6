"""An attack on the images of a camera, whose result is an image of bytes again."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from vdl_ros.attacks.attack_config import NONE, AttackConfig, schedule
from vdl_ros.attacks.attacker import Attacker
from vdl_ros.attacks.pose.pose_victim import PoseVictim
from vdl_ros.common.settings import SettingError
from vdl_ros.pose.estimator import PoseEstimator
from vdl_ros.pose.framing import middle_square

__all__ = ['AttackedImage', 'ImageAttack', 'check_mode', 'warning']

_LEVELS = 255


class AttackedImage(NamedTuple):
    """
    An image after the attack.

    Attributes:
        pixels: RGB, uint8 [height, width, 3].
        l2: root mean square of the change of the square that the network sees, from 0 to 1.
        changed: whether a byte has changed.
    """

    pixels: NDArray[np.uint8]
    l2: float
    changed: bool


def warning(config: AttackConfig) -> str:
    """Return a warning if images have no bytes for so small an attack, or ''."""
    if config.adversarial_mode == 'patch' or _steps(config.adversarial_epsilon):
        return ''
    return (f'adversarial_epsilon: {config.adversarial_epsilon:g} is less than the distance of '
            f'two bytes, 1/255 = {1 / _LEVELS:.4f}: no image will change')


def check_mode(config: AttackConfig) -> None:
    """
    Check that images can be attacked in this way.

    Raises:
        SettingError: no attack, an unknown mode, or one that a pose network does not allow.
    """
    mode = config.adversarial_mode
    if mode == NONE:
        raise SettingError("adversarial_mode: 'none' is not allowed here: fgsm, for example")
    if schedule(mode).by_value:
        raise SettingError(f'adversarial_mode: {mode!r} is not allowed for images of the camera: '
                           'a pose network has no value')


class ImageAttack:
    """
    Perturbs the images of one camera in turn, by the gradients of a pose network.

    The perturbation is computed in float, of the middle square of an image, which is what the
    network sees. It is then rounded to whole bytes, and no byte changes by more than epsilon; the
    bytes of ``pgd_l2`` are rounded towards 0, so that its norm does not grow.
    """

    def __init__(self, config: AttackConfig, estimator: PoseEstimator, seed: int = 0) -> None:
        """
        Attack images.

        Args:
            config: the attack.
            estimator: whose gradients are used: the attacked one, or a surrogate.
            seed: of random noise.

        Raises:
            SettingError: see :func:`check_mode`.
        """
        check_mode(config)
        self._config = config
        self._victim, self._generator = PoseVictim(estimator), torch.Generator().manual_seed(seed)
        self._attacker = self._started()
        self._height = 0

    def perturb(self, picture: NDArray[np.uint8]) -> AttackedImage:
        """
        Return the next image after the attack; the one given stays as it is.

        Args:
            picture: RGB, uint8 [height, width, 3]; an image of another height than the last
                starts a new sequence.

        Raises:
            ValueError: it is smaller than 64 x 64, or higher than wide.
        """
        square = middle_square(picture)
        if len(square) != self._height:
            self._attacker, self._height = self._started(), len(square)
        clean = torch.from_numpy(square.astype(np.float32) / _LEVELS)[None]
        attacked = self._attacker.perturb(clean, None, torch.tensor([False])).image
        shown = self._in_bytes(square, (attacked - clean)[0].numpy())
        pixels = picture.copy()
        middle_square(pixels)[...] = shown
        change = shown.astype(np.float32) - square
        return AttackedImage(
            pixels, math.sqrt(float(np.square(change).mean())) / _LEVELS, bool(change.any()))

    def _started(self) -> Attacker:
        """Return an attack before its first image."""
        attacker = Attacker(self._config, 1, self._generator, channels_last=True)
        attacker.follow(self._victim)
        return attacker

    def _in_bytes(
        self, square: NDArray[np.uint8], change: NDArray[np.float32],
    ) -> NDArray[np.uint8]:
        """Return ``square`` with ``change``, from 0 to 1, float32 [H, H, 3], as bytes."""
        mode, change = self._config.adversarial_mode, change * _LEVELS
        if mode == 'pgd_l2':
            change = np.trunc(change)
        else:
            largest = _LEVELS if mode == 'patch' else _steps(self._config.adversarial_epsilon)
            change = change.round().clip(-largest, largest)
        return (square + change).clip(0, _LEVELS).astype(np.uint8)


def _steps(epsilon: float) -> int:
    """Return how many whole bytes are within epsilon; 2 / 255 may be given as 0.00784."""
    return min(_LEVELS, math.floor(_LEVELS * epsilon + 0.01))
