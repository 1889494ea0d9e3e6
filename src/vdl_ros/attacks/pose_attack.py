"""Attacks on the images of a camera by the gradients of a pose network."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vdl_ros.attacks.attack_config import NONE, AttackConfig, schedule
from vdl_ros.attacks.attacker import Attacker, Seen
from vdl_ros.common.settings import SettingError
from vdl_ros.pose.estimator import PoseEstimator, middle_square, scale_square
from vdl_ros.pose.networks import JOINT_OUTPUTS, wrap
from vdl_ros.rl.policy.policy import Output


class PoseVictim:
    """A pose estimator whose images are perturbed; methods as of ``attacker.PolicyVictim``.

    Images are float [B, H, H, 3] from 0 to 1, RGB, of any height. What it decides are the angles
    of base, shoulder and elbow, rad.
    """

    has_state = False
    is_flat_at_best = False

    def __init__(self, estimator: PoseEstimator) -> None:
        self._estimator = estimator
        self.unit = torch.ones(())

    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, 0)

    def output(self, image: Tensor, seen: Seen) -> Output:
        """Return the joint angles in ``image`` as parameters, float [B, 3], and no values.

        The estimator rounds the scaled image to bytes; here it is not rounded, since a rounded
        number has no gradient.
        """
        values, _ = self._estimator.outputs(scale_square(image.permute(0, 3, 1, 2)))
        return Output(values[:, JOINT_OUTPUTS], torch.zeros(len(image)), seen.state)

    def best_actions(self, output: Output) -> Tensor:
        """Return the joint angles, float [B, 3], rad."""
        return output.parameters.detach()

    def loss(self, output: Output, actions: Tensor) -> Tensor:
        """Return how far the joints have turned from ``actions``, float [B], rad: their sum.

        Each joint counts with its sign, so the gradient is not 0 at the image itself, and the
        errors of successive images have one direction, which averaging does not remove.
        """
        return wrap(output.parameters - actions).sum(-1)

    def append_last_action(self, state: Tensor, actions: NDArray[Any], rewards: Any) -> Tensor:
        return state


_LEVELS = 255


class AttackedImage(NamedTuple):
    """An image after the attack, RGB, uint8 [height, width, 3].

    ``l2`` is the root mean square of the change of the square that the network sees, from 0 to 1.
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
    """Check that images can be attacked in this way; else raise a SettingError."""
    mode = config.adversarial_mode
    if mode == NONE:
        raise SettingError("adversarial_mode: 'none' is not allowed here: fgsm, for example")
    if schedule(mode).by_value:
        raise SettingError(f'adversarial_mode: {mode!r} is not allowed for images of the camera: '
                           'a pose network has no value')


class ImageAttack:
    """Perturbs the images of one camera in turn, by the gradients of a pose network.

    The perturbation is computed in float, of the middle square of an image, which is what the
    network sees. It is then rounded to whole bytes, and no byte changes by more than epsilon; the
    bytes of ``pgd_l2`` are rounded towards 0, so that its norm does not grow. ``estimator`` is the
    attacked one, or a surrogate.
    """

    def __init__(self, config: AttackConfig, estimator: PoseEstimator) -> None:
        check_mode(config)
        self._config = config
        self._victim, self._generator = PoseVictim(estimator), torch.Generator().manual_seed(0)
        self._attacker = self._started()
        self._height = 0

    def perturb(self, picture: NDArray[np.uint8]) -> AttackedImage:
        """Return the next image after the attack; the one given stays as it is.

        Args:
            picture: RGB, uint8 [height, width, 3], not higher than wide, and at least 64 x 64; an
                image of another height than the last starts a new sequence.
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
        attacker = Attacker(self._config, 1, self._generator, channels_last=True, bounded=True)
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
