"""Perturbations of observations: random noise, FGSM, PGD and a patch, for any differentiable loss.

Observations are float [B, ...]. A loss is a function from them to float [B], one number for each;
the perturbation makes it larger. ``unit`` is what a perturbation of 1 is, [...] or []. Where
observations are ``bounded``, from 0 to 1, perturbed ones are too.
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vdl_ros.attacks.attack_config import AttackConfig, schedule
from vdl_ros.rl.policy.distributions import Categorical, DiagonalGaussian, EpsilonGreedy
from vdl_ros.rl.policy.policy import Output, Policy

Loss = Callable[[Tensor], Tensor]
#: Returns a policy's state before its next observation, [B, S], by the last rewards, [B].
NextState = Callable[[NDArray[Any]], Tensor]


def gradient(loss: Loss, observations: Tensor) -> Tensor:
    """Return the gradient of the sum of losses, [B, ...]; also in ``torch.no_grad()``."""
    with torch.enable_grad():
        inputs = observations.detach().requires_grad_()
        found, = torch.autograd.grad(loss(inputs).sum(), inputs)
    return found


def random_noise(observations: Tensor, epsilon: float, generator: torch.Generator) -> Tensor:
    """Return noise from [0, epsilon), uniform, as rl-attack-vf's: its mean is not 0."""
    return epsilon * torch.rand(observations.shape, generator=generator)


def fgsm(
    loss: Loss, observations: Tensor, epsilon: float, unit: Tensor, start: Tensor | None = None,
) -> Tensor:
    """Return epsilon * sign(gradient), Goodfellow et al. 2015, arXiv:1412.6572, [B, ...].

    The gradient is that at ``observations + start * unit``; the start is not part of the result.
    """
    at = observations if start is None else observations + start * unit
    return epsilon * gradient(loss, at).sign()


def pgd(
    loss: Loss, observations: Tensor, epsilon: float, unit: Tensor, steps: int,
    start: Tensor | None = None, *, l2: bool = False, bounded: bool = False,
) -> Tensor:
    """Return ``steps`` steps of FGSM of 2.5 epsilon / steps each, none beyond epsilon, [B, ...].

    Madry et al. 2018, arXiv:1706.06083, with the norm L-infinity, from ``start`` or 0.

    Args:
        l2: take the norm L2 and the largest norm epsilon * sqrt(n), for n numbers a root mean
            square of epsilon, so that both norms compare.
    """
    largest = epsilon * observations[0].numel() ** 0.5 if l2 else epsilon
    size = 2.5 * largest / steps
    found = torch.zeros_like(observations) if start is None else start
    for _ in range(steps):
        direction = gradient(loss, observations + found * unit)
        if l2:
            direction = direction * unit
            found = found + size * direction / _norms(direction).clamp(min=1e-12)
            found = found * (largest / _norms(found).clamp(min=1e-12)).clamp(max=1.0)
        else:
            found = (found + size * direction.sign()).clamp(-largest, largest)
        if bounded:
            found = _within(observations, found)
    return found


def _within(observations: Tensor, change: Tensor) -> Tensor:
    """Return the part of a change that leaves observations from 0 to 1; the unit is 1."""
    return (observations + change).clamp(0.0, 1.0) - observations


def _norms(rows: Tensor) -> Tensor:
    """Return the L2 norm of each row of [B, ...], shaped to be multiplied with it."""
    norms: Tensor = rows.flatten(1).norm(dim=1)
    return norms.reshape(-1, *[1] * (rows.dim() - 1))


class Patch:
    """A patch in the upper left corner of images, the same in all, that learns while it is shown.

    Brown et al. 2017, arXiv:1712.09665, with one step for each image instead of a training set.
    Its pixels stay in [0, 1]. It is grey in stacked frames, [S, H, W], the same in each, and
    coloured in [H, W, C], which is ``channels_last``.
    """

    def __init__(self, shape: tuple[int, ...], share: float, channels_last: bool) -> None:
        height, width = shape[:2] if channels_last else shape[1:]
        rows, columns = (max(1, round(share * size)) for size in (height, width))
        area = slice(rows), slice(columns)
        self._area = (slice(None), *area) if channels_last else (slice(None), slice(None), *area)
        self.pixels = torch.full(
            (rows, columns, shape[2]) if channels_last else (1, rows, columns), 0.5)

    def apply(self, images: Tensor, pixels: Tensor | None = None) -> Tensor:
        """Return images [B, ...] with the patch."""
        shown = images.clone()
        shown[self._area] = self.pixels if pixels is None else pixels
        return shown

    def learn(self, loss: Loss, images: Tensor, size: float) -> None:
        """Change the pixels by ``size`` each, so that the loss of images [B, ...] grows."""
        found = gradient(lambda pixels: loss(self.apply(images, pixels)), self.pixels)
        self.pixels = (self.pixels + size * found.sign()).clamp(0.0, 1.0)


class Seen(NamedTuple):
    """What a policy sees in a step of B environments.

    ``image`` is float32 [B, ...], scaled to [0, 1], or all numbers; ``numbers`` float32 [B, V],
    those beside an image, or None; ``is_reset`` bool [B], where an episode starts; ``state``
    float32 [B, S], the state of the policy before.
    """

    image: Tensor
    numbers: Tensor | None
    is_reset: Tensor
    state: Tensor

    def rows(self, index: Tensor) -> 'Seen':
        """Return what is seen in the environments of ``index``, int64 [N]."""
        return Seen(*(None if each is None else each[index] for each in self))  # type: ignore[arg-type]


class _Victim(Protocol):
    """A network whose inputs are perturbed; see :class:`PolicyVictim`."""

    has_state: bool
    is_flat_at_best: bool

    @property
    def unit(self) -> Tensor: ...
    def initial_state(self, batch: int) -> Tensor: ...
    def output(self, image: Tensor, seen: Seen) -> Output: ...
    def best_actions(self, output: Output) -> Tensor: ...
    def loss(self, output: Output, actions: Tensor) -> Tensor: ...
    def append_last_action(self, state: Tensor, actions: NDArray[Any], rewards: Any) -> Tensor: ...


class PolicyVictim:
    """A policy whose observations are perturbed, or whose gradients are used for that.

    It shares the policy's weights, and computes in float32 where the policy may act in bfloat16.
    ``has_state`` says whether it is recurrent, ``is_flat_at_best`` whether the gradient of
    :meth:`loss` is 0 where the best actions were chosen.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = copy.deepcopy(policy).requires_grad_(False)
        # In the same memory, so that weights which the policy loads count here too.
        shared = dict(policy.named_parameters()) | dict(policy.named_buffers())
        for name, tensor in (*self._policy.named_parameters(), *self._policy.named_buffers()):
            tensor.data = shared[name].data
        self._policy.precision = torch.float32
        self.has_state = policy.state_size > 0
        self.is_flat_at_best = isinstance(policy.distribution, DiagonalGaussian)

    def initial_state(self, batch: int) -> Tensor:
        """Return the state before the first observation, [batch, S]."""
        return self._policy.initial_state(batch).detach()

    @property
    def unit(self) -> Tensor:
        """Unit of perturbations, float32, of the image's shape or []: what epsilon is of."""
        normalizer = self._policy.normalizer
        if normalizer is None or self._policy.joint is not None:
            return torch.ones(())
        return normalizer.deviation.float().reshape(self._policy.observation_shape)

    def output(self, image: Tensor, seen: Seen) -> Output:
        """Return the policy's output for ``image``, [B, ...], instead of the one seen."""
        output = self._policy(image[None], seen.is_reset[None], seen.state, numbers=seen.numbers)
        return Output(output.parameters[0], output.values[0], output.state)

    def best_actions(self, output: Output) -> Tensor:
        return self._policy.distribution.mode(output.parameters.detach())

    def loss(self, output: Output, actions: Tensor) -> Tensor:
        """Return what an attack makes larger, float [B]: how unlikely ``actions`` are.

        For one discrete action it is m, the logarithm of the odds against it. The cross-entropy
        is log(1 + e^m), so its gradient has the same direction, but it is rounded to 0 where a
        policy is sure. For others it is the negative logarithm of the probability, or density.
        Action values count as logits, as by Huang et al. 2017, arXiv:1702.02284.
        """
        distribution, logits = self._policy.distribution, output.parameters
        if isinstance(distribution, EpsilonGreedy):
            logits = logits[..., :-1]
        elif type(distribution) is not Categorical:
            return -distribution.log_prob(logits, actions)
        index = actions.unsqueeze(-1)
        others = logits.scatter(-1, index, -torch.inf).logsumexp(-1)
        return others - logits.gather(-1, index).squeeze(-1)

    def append_last_action(self, state: Tensor, actions: NDArray[Any], rewards: Any) -> Tensor:
        """Return ``state`` [B, S] with actions and rewards [B], if they are inputs.

        Actions are as the environment took them.
        """
        own = self._policy.distribution.from_environment(np.asarray(actions))
        return self._policy.append_last_action(
            state, torch.from_numpy(own), torch.from_numpy(np.asarray(rewards, np.float32)))


class Perturbed(NamedTuple):
    """Perturbed observations of one step, float32 [B, ...].

    ``l2`` is the norm of the perturbation / sqrt(n), in the unit of epsilon, float32 [B];
    ``injects`` says which are perturbed, bool [B].
    """

    image: Tensor
    l2: NDArray[np.float32]
    injects: NDArray[np.bool_]


class Attacker:
    """An attack on B environments.

    A recurrent policy has a state here as well. It follows the perturbed observations, which the
    attacked policy sees, and is reset where an episode starts. In the process of the attacked
    policy that policy's own state is the same, and need not be computed again.

    ``bounded``: observations are from 0 to 1, and stay there.
    """

    def __init__(
        self, config: AttackConfig, batch: int, generator: torch.Generator,
        *, channels_last: bool = False, bounded: bool = False,
    ) -> None:
        self._config, self._generator, self._batch = config, generator, batch
        self._bounded = bounded
        self._schedule = schedule(config.adversarial_mode)
        self._channels_last = channels_last
        self._victim: _Victim | None = None
        self._next_state: NextState | None = None
        self._state = torch.zeros(batch, 0)
        self._steps: NDArray[np.int64] = np.zeros(batch, np.int64)
        # The last perturbation, and where one has been computed.
        self._last: Tensor | None = None
        self._computed: NDArray[np.bool_] = np.zeros(batch, np.bool_)
        self._patch: Patch | None = None

    def follow(self, victim: _Victim, next_state: NextState | None = None) -> None:
        """Use the gradients of ``victim`` from the next observation on.

        ``next_state`` is that of the policy, if it acts in this process.
        """
        self._victim, self._next_state = victim, next_state
        self._state = victim.initial_state(self._batch)

    def append_last_action(self, actions: NDArray[Any], rewards: NDArray[Any]) -> None:
        """Pass actions [B] or [B, A] and rewards [B] of the last step on to the state."""
        if self._victim is None or not self._victim.has_state:
            return
        if self._next_state is not None:
            # The actions of the policy are not those of the environment, which clips them.
            self._state = self._next_state(rewards)
        else:
            self._state = self._victim.append_last_action(self._state, actions, rewards)

    def perturb(self, image: Tensor, numbers: Tensor | None, is_reset: Tensor) -> Perturbed:
        """Return the perturbed observations of the next step; arguments as of :class:`Seen`."""
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
        has_state = victim.has_state and mode != 'random' and self._next_state is None
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
            noise = torch.where(torch.from_numpy(due).reshape(-1, *[1] * (zero.dim() - 1)),
                                noise, self._last)
            self._computed |= due
            injects = self._computed.copy()
        self._last = noise
        perturbed = self._result(seen.image, noise * victim.unit, noise, injects)
        if has_state:
            after = clean if clean is not None and not injects.any() else victim.output(
                perturbed.image, seen)
            self._state = after.state
        return perturbed

    def _noise(self, victim: _Victim, seen: Seen) -> Tensor:
        """Return a perturbation of all environments, in the unit of epsilon, [B, ...]."""
        config, unit = self._config, victim.unit
        mode, epsilon = config.adversarial_mode, config.adversarial_epsilon
        if mode == 'random':
            return random_noise(seen.image, epsilon, self._generator)
        actions: Tensor | None = None
        start = None
        if victim.is_flat_at_best or mode == 'patch':
            actions = victim.best_actions(victim.output(seen.image, seen))
        if victim.is_flat_at_best:
            # Noise from -epsilon / 2 to epsilon / 2.
            start = random_noise(seen.image, epsilon, self._generator) - epsilon / 2

        def loss(image: Tensor) -> Tensor:
            nonlocal actions
            output = victim.output(image, seen)
            if actions is None:
                # The first image is the clean one.
                actions = victim.best_actions(output)
            return victim.loss(output, actions)

        if mode == 'patch':
            if self._patch is None:
                self._patch = Patch(
                    tuple(seen.image.shape[1:]), config.adversarial_patch, self._channels_last)
            self._patch.learn(loss, seen.image, epsilon)
            return self._patch.apply(seen.image) - seen.image
        if mode in ('pgd', 'pgd_l2'):
            return pgd(loss, seen.image, epsilon, unit, config.adversarial_steps, start,
                       l2=mode == 'pgd_l2', bounded=self._bounded)
        return fgsm(loss, seen.image, epsilon, unit, start)

    def _result(
        self, image: Tensor, change: Tensor, noise: Tensor, injects: NDArray[np.bool_],
    ) -> Perturbed:
        perturbed = image + change
        if self._bounded:
            perturbed = perturbed.clamp(0.0, 1.0)
            noise = perturbed - image
        norms = noise.flatten(1).norm(dim=1) / noise[0].numel() ** 0.5
        return Perturbed(perturbed, norms.numpy().astype(np.float32), injects)
