"""Decision boundaries around an attacked observation, as rl-attack-vf draws them.

The plane through an observation is spanned by the perturbation of the attack and by random noise.
At each point of a grid in it the policy samples some actions; the most frequent one is noted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vdl_ros.attacks.attack_config import NONE, AttackConfig
from vdl_ros.attacks.attacked_env import PerturbedObservations
from vdl_ros.attacks.attacker import Attacker, PolicyVictim, Seen
from vdl_ros.common.settings import SettingError
from vdl_ros.envs.checked_vector_env import VectorEnvironment
from vdl_ros.rl.policy.distributions import Categorical
from vdl_ros.rl.policy.policy import Policy

# Observations in one forward pass.
_BATCH = 512
# The grid reaches so many times the norm of the perturbation in each direction.
_REACH = 2.0
# Points of the grid in each direction, and actions that are sampled at each.
_GRID, _SAMPLES = 101, 7


@dataclass(frozen=True)
class Boundary:
    """What a policy does around one observation.

    Attributes:
        step: number of the step since the start, from 0.
        axis: float64 [G], the grid's values in both directions, in the L2 norm of observations.
        actions: int64 [G, G], the action at [v, u]: v counts the random direction, u that of the
            attack.
        norm: L2 norm of the perturbation; the attack is at u = norm, v = 0.
        images: float32 [3, ...]: the observation, under attack, and with as much random noise.
    """

    step: int
    axis: NDArray[np.float64]
    actions: NDArray[np.int64]
    norm: float
    images: NDArray[np.float32]


def boundaries(
    envs: VectorEnvironment, policy: Policy, attack: AttackConfig, *, frames: int, seed: int,
    folded: Mapping[int, int] | None = None,
) -> Iterator[Boundary]:
    """Play under attack; yield the boundary of each of the first perturbed observations.

    Args:
        envs: one environment, as the factory makes it, not attacked.
        seed: of the environment, the sampled actions and the noise.
        folded: by action the one that is noted instead, for actions that do the same.

    Raises:
        SettingError: there is no attack, or the actions are not one discrete action.
    """
    if attack.adversarial_mode == NONE:
        raise SettingError(f'adversarial_mode: {NONE!r} is not allowed: an attack')
    space = envs.single_action_space
    if not isinstance(policy.distribution, Categorical) or space.shape:
        raise SettingError(f'actions: {space} is not allowed: one discrete action')
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    observations = PerturbedObservations(
        envs.single_observation_space, policy.normalizer is not None)
    attacker = Attacker(attack, 1, generator, bounded=observations.is_bounded)
    victim = PolicyVictim(policy)
    attacker.follow(victim)
    state = victim.initial_state(1)
    fold = np.arange(policy.distribution.num_inputs)
    for action, other in (folded or {}).items():
        fold[action] = other
    observation, _ = envs.reset(seed=seed)
    is_reset = np.ones(1, np.bool_)
    done = np.zeros(1, np.bool_)
    step = found = 0
    with torch.no_grad():
        while found < frames:
            image, numbers = (None if each is None else torch.from_numpy(each)
                              for each in observations.split(observation))
            assert image is not None
            perturbed = attacker.perturb(image, numbers, torch.from_numpy(is_reset))
            seen = Seen(image, numbers, torch.from_numpy(is_reset), state)
            noise = perturbed.image - image
            # Nothing is acted on between the end of an episode and its reset.
            if perturbed.injects[0] and noise.any() and not done[0]:
                yield _boundary(victim, policy, seen, noise, step, fold, generator)
                found += 1
            output = victim.output(perturbed.image, seen)
            actions = policy.distribution.sample(output.parameters).numpy()
            observation, rewards, terminated, truncated, _ = envs.step(actions)
            state = victim.append_last_action(output.state, actions, rewards)
            attacker.append_last_action(actions, rewards)
            is_reset, done = done, terminated | truncated
            step += 1


def _boundary(
    victim: PolicyVictim, policy: Policy, seen: Seen, noise: Tensor, step: int,
    fold: NDArray[np.int64], generator: torch.Generator,
) -> Boundary:
    """Return the boundary around one observation, [1, ...]."""
    norm = float(noise.norm())
    random = torch.rand(noise.shape, generator=generator)
    random = random / random.norm()
    axis = np.linspace(-_REACH * norm, _REACH * norm, _GRID)
    v, u = (torch.from_numpy(each.ravel()).float()
            for each in np.meshgrid(axis, axis, indexing='ij'))
    shape = (-1, *[1] * (noise.dim() - 1))
    found = []
    for start in range(0, _GRID * _GRID, _BATCH):
        rows = slice(start, start + _BATCH)
        points = seen.image + u[rows].reshape(shape) * noise / norm + (
            v[rows].reshape(shape) * random)
        at = seen.rows(torch.zeros(len(points), dtype=torch.int64))
        parameters = victim.output(points, at).parameters
        drawn = policy.distribution.sample(parameters.expand(_SAMPLES, *parameters.shape))
        found.append(most_frequent(drawn.numpy(), len(fold)))
    images = torch.cat([seen.image, seen.image + noise, seen.image + norm * random])
    return Boundary(step, axis, fold[np.concatenate(found)].reshape(_GRID, _GRID), norm,
                    images.numpy())


def most_frequent(actions: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the most frequent action, 0 to ``count`` - 1, of each column, [samples, N]."""
    votes = (actions[..., None] == np.arange(count)).sum(axis=0)
    winners: NDArray[np.int64] = votes.argmax(axis=-1)
    return winners
