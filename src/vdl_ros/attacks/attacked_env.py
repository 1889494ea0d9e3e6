"""A vector environment whose observations an attack perturbs before a policy sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from torch import Tensor

from vdl_ros.attacks.attack_config import NONE, AttackConfig
from vdl_ros.attacks.attacker import Attacker
from vdl_ros.attacks.perturbed_observations import PerturbedObservations
from vdl_ros.attacks.victim import PolicyVictim
from vdl_ros.common.observation_spaces import SMALLEST_IMAGE
from vdl_ros.common.settings import SettingError
from vdl_ros.envs.checked_vector_env import VectorEnvironment, Wrapper
from vdl_ros.rl.policy.policy import Policy
from vdl_ros.rl.train_config import TrainConfig

__all__ = ['AttackedEnv', 'attack_environments', 'warning']


def attack_environments(
    env: VectorEnvironment, attack: AttackConfig, train: TrainConfig, seed: int,
    surrogate: Policy | None = None,
) -> VectorEnvironment:
    """
    Return ``env`` under attack, or itself without one; arguments as of :class:`AttackedEnv`.

    Raises:
        SettingError: see there; ``env`` is closed.
    """
    if attack.adversarial_mode == NONE:
        return env
    try:
        return AttackedEnv(env, attack, seed, normalized=train.normalize_observations,
                           surrogate=surrogate)
    except ValueError:
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
    """
    B environments under attack.

    Observations are float32, after scaling, with the perturbation; the last one of an episode
    too. ``info`` has ``adversary_l2`` float32 [B] and ``adversary_injects`` bool [B]: size and
    presence of the perturbation of the observation that the step's actions answered.

    Attributes:
        perturbed: number of observations that were perturbed so far.
    """

    def __init__(
        self, env: VectorEnvironment, config: AttackConfig, seed: int, *,
        normalized: bool = False, surrogate: Policy | None = None,
    ) -> None:
        """
        Attack ``env``, which the factory made; except for random noise only after :meth:`follow`.

        Args:
            env: the environments.
            config: the attack; its mode is not 'none'.
            seed: of random noise.
            normalized: whether the policy normalizes observations that are numbers.
            surrogate: a policy of the same spaces, whose gradients are used.

        Raises:
            SettingError: the observations cannot be attacked in this way, or the surrogate is of
                other observations.
        """
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
            channels_last=len(shape) == 3 and shape[1] >= SMALLEST_IMAGE > shape[2])
        self._follows = surrogate is not None
        if surrogate is not None:
            wanted = env.single_observation_space.shape
            if surrogate.observation_shape != wanted:
                raise SettingError(
                    'adversarial_checkpoint: its policy is of observations '
                    f'{surrogate.observation_shape}, which is not allowed: {wanted}')
            self._attacker.follow(PolicyVictim(surrogate))
        self.perturbed = 0
        self._done: NDArray[np.bool_] = np.zeros(self.num_envs, np.bool_)
        self._before: dict[str, NDArray[Any]] = {}

    @property
    def resolution(self) -> float:
        """Distance of two values of observations in the unit of epsilon; 0 if there is none."""
        return self._observations.resolution

    def follow(self, policy: Policy, state: Callable[[], Tensor] | None = None) -> None:
        """
        Use the gradients of ``policy`` from the next observation on, unless there is a surrogate.

        Args:
            policy: the attacked policy.
            state: returns its state after the last observation; None: it is computed here.
        """
        if not self._follows:
            self._attacker.follow(PolicyVictim(policy), state)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Start an episode in every environment."""
        observations, info = self.env.reset(seed=seed, options=options)
        self._done = np.zeros(self.num_envs, np.bool_)
        return self._perturb(observations, np.ones(self.num_envs, np.bool_)), info

    def step(
        self, actions: NDArray[Any],
    ) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_],
               dict[str, Any]]:
        """Step every environment once; see the class."""
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
