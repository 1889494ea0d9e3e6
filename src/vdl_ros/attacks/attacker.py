"""Perturbs the observations of B environments step by step, by the schedule of a mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vdl_ros.attacks.attack_config import AttackConfig, schedule
from vdl_ros.attacks.perturbations import Patch, fgsm, near, pgd, pgd_l2, random_noise
from vdl_ros.attacks.victim import Seen, Victim
from vdl_ros.rl.policy.policy import Output

__all__ = ['Attacker', 'Perturbed']


class Perturbed(NamedTuple):
    """
    Perturbed observations of one step.

    Attributes:
        image: float32 [B, ...].
        l2: float32 [B], norm of the perturbation / sqrt(n), in the unit of epsilon.
        injects: bool [B], which are perturbed.
    """

    image: Tensor
    l2: NDArray[np.float32]
    injects: NDArray[np.bool_]


class Attacker:
    """
    An attack on B environments.

    A recurrent policy has a state here as well. It follows the perturbed observations, which the
    attacked policy sees, and is reset where an episode starts. In the process of the attacked
    policy that policy's own state is the same, and need not be computed again.
    """

    def __init__(
        self, config: AttackConfig, batch: int, generator: torch.Generator,
        *, channels_last: bool = False,
    ) -> None:
        """
        Start an attack; except for random noise it waits for :meth:`follow`.

        Args:
            config: the attack.
            batch: number of environments, B.
            generator: of random noise.
            channels_last: whether images are [H, W, C].
        """
        self._config, self._generator, self._batch = config, generator, batch
        self._schedule = schedule(config.adversarial_mode)
        self._channels_last = channels_last
        self._victim: Victim | None = None
        self._policy_state: Callable[[], Tensor] | None = None
        self._state = torch.zeros(batch, 0)
        self._steps: NDArray[np.int64] = np.zeros(batch, np.int64)
        # The last perturbation, and where one has been computed.
        self._last: Tensor | None = None
        self._computed: NDArray[np.bool_] = np.zeros(batch, np.bool_)
        self._patch: Patch | None = None

    def follow(self, victim: Victim, state: Callable[[], Tensor] | None = None) -> None:
        """
        Use the gradients of ``victim`` from the next observation on.

        Args:
            victim: the policy.
            state: returns its state after the last observation, [B, S], if it acts in this
                process.
        """
        self._victim, self._policy_state = victim, state
        self._state = victim.initial_state(self._batch)

    def append_last_action(self, actions: NDArray[Any], rewards: NDArray[Any]) -> None:
        """Pass actions [B] or [B, A] and rewards [B] of the last step on to the state."""
        if self._victim is not None and self._victim.has_state:
            state = self._state if self._policy_state is None else self._policy_state()
            self._state = self._victim.append_last_action(state, actions, rewards)

    def perturb(self, image: Tensor, numbers: Tensor | None, is_reset: Tensor) -> Perturbed:
        """
        Return the perturbed observations of the next step.

        Args:
            image: float32 [B, ...], scaled.
            numbers: float32 [B, V] or None, beside it.
            is_reset: bool [B], where an episode starts.
        """
        self._steps[is_reset.numpy()] = 0
        due = self._steps % self._schedule.period == 0
        self._steps += 1
        # Acting runs in inference mode, whose tensors have no gradients.
        with torch.inference_mode(False), torch.no_grad():
            seen = Seen(image.clone(), None if numbers is None else numbers.clone(),
                        is_reset.clone(), self._state.clone())
            return self._perturb(seen, due)

    def _perturb(self, seen: Seen, due: NDArray[np.bool_]) -> Perturbed:
        victim, mode = self._victim, self._config.adversarial_mode
        zero = torch.zeros_like(seen.image)
        if victim is None:
            noise = random_noise(zero, self._config.adversarial_epsilon, self._generator) \
                if mode == 'random' else zero
            return self._result(seen.image, noise, noise, np.full(len(due), mode == 'random'))
        clean: Output | None = None
        has_state = victim.has_state and mode != 'random' and self._policy_state is None
        if self._schedule.by_value or (has_state and not due.any()):
            clean = victim.output(seen.image, seen)
        if self._schedule.by_value:
            assert clean is not None
            due = due & (clean.values > self._config.adversarial_value).numpy()
        noise = zero
        if due.all():
            noise = self._noise(victim, seen)
        elif due.any():
            index = torch.from_numpy(np.flatnonzero(due))
            noise = zero.index_copy(0, index, self._noise(victim, seen.rows(index)))
        injects = due
        if self._schedule.reuse:
            self._last = zero if self._last is None else self._last
            noise = torch.where(_rows(due, zero) > 0, noise, self._last)
            self._computed |= due
            injects = self._computed.copy()
        self._last = noise
        perturbed = self._result(seen.image, noise * victim.unit, noise, injects)
        if has_state:
            after = clean if clean is not None and not injects.any() else victim.output(
                perturbed.image, seen)
            self._state = after.state
        return perturbed

    def _noise(self, victim: Victim, seen: Seen) -> Tensor:
        """Return a perturbation of all environments, in the unit of epsilon, [B, ...]."""
        config, unit = self._config, victim.unit
        mode, epsilon = config.adversarial_mode, config.adversarial_epsilon
        if mode == 'random':
            return random_noise(seen.image, epsilon, self._generator)
        actions: list[Tensor] = []
        start = None
        if victim.is_flat_at_best:
            actions.append(victim.best_actions(victim.output(seen.image, seen)))
            start = near(seen.image, epsilon, self._generator)

        def loss(image: Tensor) -> Tensor:
            output = victim.output(image, seen)
            if not actions:
                # The first image is the clean one.
                actions.append(victim.best_actions(output))
            return victim.loss(output, actions[0])

        if mode == 'patch':
            if not actions:
                actions.append(victim.best_actions(victim.output(seen.image, seen)))
            if self._patch is None:
                self._patch = Patch(
                    tuple(seen.image.shape[1:]), config.adversarial_patch, self._channels_last)
            self._patch.learn(loss, seen.image, epsilon)
            return self._patch.apply(seen.image) - seen.image
        if mode == 'pgd':
            return pgd(loss, seen.image, epsilon, unit, config.adversarial_steps, start)
        if mode == 'pgd_l2':
            return pgd_l2(loss, seen.image, epsilon, unit, config.adversarial_steps, start)
        return fgsm(loss, seen.image, epsilon, unit, start)

    @staticmethod
    def _result(
        image: Tensor, change: Tensor, noise: Tensor, injects: NDArray[np.bool_],
    ) -> Perturbed:
        norms = noise.flatten(1).norm(dim=1) / noise[0].numel() ** 0.5
        return Perturbed(image + change, norms.numpy().astype(np.float32), injects)


def _rows(where: NDArray[np.bool_], like: Tensor) -> Tensor:
    """Return ``where`` [B] as float [B, 1, ...] of as many axes as ``like``."""
    return torch.from_numpy(where).to(like).reshape(-1, *[1] * (like.dim() - 1))
