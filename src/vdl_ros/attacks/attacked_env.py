"""Environments under attack: observations are float32, after scaling.

Environments send images as bytes, and policies divide them by 255: a perturbation of 0.001 would
be less than the distance of two bytes.
"""

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from vdl_ros.attacks.attack_config import NONE, AttackConfig
from vdl_ros.attacks.attacker import Attacker, NextState, PolicyVictim
from vdl_ros.common.observation_spaces import SMALLEST_IMAGE, ImageAndVector, ScaledImage, is_image
from vdl_ros.common.settings import SettingError
from vdl_ros.envs.checked_vector_env import ResetResult, StepResult, VectorEnvironment, Wrapper
from vdl_ros.rl.policy.policy import Policy
from vdl_ros.rl.settings import TrainConfig


def observed(
    space: gymnasium.Space[Any], frames: int, attack: AttackConfig, train: TrainConfig,
) -> tuple[gymnasium.Space[Any], int]:
    """Return the space of what a policy observes, and how many frames of it are stacked.

    Under an attack each observation is a new one: its frames are not those of the one before.
    """
    if attack.adversarial_mode == NONE:
        return space, frames
    return PerturbedObservations(space, train.normalize_observations).space, 1


class PerturbedObservations:
    """Converts observations to those that a policy sees under an attack, and back to one array.

    Of an :class:`ImageAndVector` only the image is perturbed; ``image_space`` is its space.
    ``normalized``: the policy normalizes numbers, and takes them without scaling.
    """

    def __init__(self, space: gymnasium.Space[Any], normalized: bool = False) -> None:
        assert isinstance(space, spaces.Box)
        self._mixed = space if isinstance(space, ImageAndVector) else None
        seen: spaces.Box = space if self._mixed is None else self._mixed.image
        self._scaled = seen.dtype == np.uint8 and (is_image(seen) or not normalized)
        self.image_space: spaces.Box = ScaledImage(seen.shape) if is_image(seen) else spaces.Box(
            -np.inf, np.inf, seen.shape, np.float32)
        self.space: spaces.Box = self.image_space if self._mixed is None else ImageAndVector(
            self.image_space, self._mixed.vector_size)

    @property
    def is_bounded(self) -> bool:
        """Whether what is perturbed is from 0 to 1."""
        return self._scaled or isinstance(self.image_space, ScaledImage)

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


def attack_environments(
    env: VectorEnvironment, attack: AttackConfig, train: TrainConfig, seed: int,
    surrogate: Policy | None = None,
) -> VectorEnvironment:
    """Return ``env`` under attack, or itself without one; it is closed if that is not possible."""
    if attack.adversarial_mode == NONE:
        return env
    try:
        return AttackedEnv(env, attack, seed, normalized=train.normalize_observations,
                           surrogate=surrogate)
    except Exception:
        env.close()
        raise


def warning(attack: AttackConfig, env: VectorEnvironment) -> str:
    """Return a warning if perturbations are smaller than the steps of observations, or ''."""
    if not isinstance(env, AttackedEnv) or attack.adversarial_mode == 'patch' \
            or attack.adversarial_epsilon >= env.resolution:
        return ''
    return (f'adversarial_epsilon: {attack.adversarial_epsilon:g} is less than the distance of '
            f'two values of an image, 1/255 = {env.resolution:.4f}: the policy sees it, because '
            'it is added in float, but no camera could show it')


class AttackedEnv(Wrapper):
    """B environments under attack.

    Observations are float32, after scaling, with the perturbation; the last one of an episode
    too. ``info`` has ``adversary_l2`` float32 [B] and ``adversary_injects`` bool [B]: size and
    presence of the perturbation of the observation that the step's actions answered.

    Args:
        normalized: whether the policy normalizes observations that are numbers.
        surrogate: a policy of the same spaces, whose gradients are used.

    Raises:
        SettingError: observations that cannot be attacked in this way.
    """

    def __init__(
        self, env: VectorEnvironment, config: AttackConfig, seed: int, *,
        normalized: bool = False, surrogate: Policy | None = None,
    ) -> None:
        super().__init__(env)
        self._observations = PerturbedObservations(env.single_observation_space, normalized)
        self.single_observation_space = self._observations.space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        shape = self._observations.image_space.shape
        if config.adversarial_mode == 'patch' and len(shape) != 3:
            raise SettingError("adversarial_mode: 'patch' is not allowed here: a patch is of "
                               f'images, the observations are {env.single_observation_space}')
        self._attacker = Attacker(
            config, self.num_envs, torch.Generator().manual_seed(seed),
            channels_last=len(shape) == 3 and shape[1] >= SMALLEST_IMAGE > shape[2],
            bounded=self._observations.is_bounded)
        self._follows = surrogate is not None
        if surrogate is not None:
            wanted = env.single_observation_space.shape
            if surrogate.observation_shape != wanted:
                raise SettingError(
                    'adversarial_checkpoint: its policy is of observations '
                    f'{surrogate.observation_shape}, which is not allowed: {wanted}')
            self._attacker.follow(PolicyVictim(surrogate))
        #: Number of observations that were perturbed so far.
        self.perturbed = 0
        self._done: NDArray[np.bool_] = np.zeros(self.num_envs, np.bool_)
        self._before: dict[str, NDArray[Any]] = {}

    @property
    def resolution(self) -> float:
        """Distance of two values of observations in the unit of epsilon; 0 if there is none."""
        return self._observations.resolution

    def follow(self, policy: Policy, next_state: NextState | None = None) -> None:
        """Use the gradients of ``policy`` from now on, unless there is a surrogate.

        Without ``next_state`` its state is computed here.
        """
        if not self._follows:
            self._attacker.follow(PolicyVictim(policy), next_state)

    def reset(self, *, seed: int | None = None, options: Any = None) -> ResetResult:
        observations, info = self.env.reset(seed=seed, options=options)
        self._done = np.zeros(self.num_envs, np.bool_)
        return self._perturb(observations, np.ones(self.num_envs, np.bool_)), info

    def step(self, actions: NDArray[Any]) -> StepResult:
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        self._attacker.append_last_action(actions, rewards)
        info |= self._before
        lost = info.get('is_lost')
        is_reset = self._done if lost is None else self._done | np.asarray(lost, np.bool_)
        self._done = np.logical_or(terminated, truncated)
        return self._perturb(observations, is_reset), rewards, terminated, truncated, info

    def _perturb(self, observations: NDArray[Any], is_reset: NDArray[np.bool_]) -> NDArray[Any]:
        image, numbers = self._observations.split(observations)
        perturbed = self._attacker.perturb(
            torch.from_numpy(image), None if numbers is None else torch.from_numpy(numbers),
            torch.from_numpy(is_reset))
        self._before = {'adversary_l2': perturbed.l2, 'adversary_injects': perturbed.injects}
        self.perturbed += int(perturbed.injects.sum())
        return self._observations.join(perturbed.image.numpy(), numbers)
