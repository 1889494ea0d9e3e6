"""
Perturbations of observations: random noise, FGSM, PGD and a patch, for any differentiable loss.

Observations are float [B, ...]. A loss is a function from them to float [B], one number for each;
the perturbation makes it larger. ``unit`` is what a perturbation of 1 is, [...] or [].
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ['Loss', 'Patch', 'fgsm', 'gradient', 'near', 'pgd', 'pgd_l2', 'random_noise']

Loss = Callable[[Tensor], Tensor]


def gradient(loss: Loss, observations: Tensor) -> Tensor:
    """Return the gradient of the sum of losses, [B, ...]; also in ``torch.no_grad()``."""
    with torch.enable_grad():
        inputs = observations.detach().requires_grad_()
        found, = torch.autograd.grad(loss(inputs).sum(), inputs)
    return found


def random_noise(observations: Tensor, epsilon: float, generator: torch.Generator) -> Tensor:
    """Return noise from [0, epsilon), uniform, as rl-attack-vf's: its mean is not 0."""
    return epsilon * torch.rand(observations.shape, generator=generator)


def near(observations: Tensor, epsilon: float, generator: torch.Generator) -> Tensor:
    """Return noise from [-epsilon / 2, epsilon / 2), uniform, to start from."""
    return epsilon * (torch.rand(observations.shape, generator=generator) - 0.5)


def fgsm(
    loss: Loss, observations: Tensor, epsilon: float, unit: Tensor, start: Tensor | None = None,
) -> Tensor:
    """
    Return epsilon * sign(gradient), Goodfellow et al. 2015, arXiv:1412.6572, [B, ...].

    The gradient is that at ``observations + start * unit``; the start is not part of the result.
    """
    at = observations if start is None else observations + start * unit
    return epsilon * gradient(loss, at).sign()


def pgd(
    loss: Loss, observations: Tensor, epsilon: float, unit: Tensor, steps: int,
    start: Tensor | None = None,
) -> Tensor:
    """
    Return ``steps`` steps of FGSM of 2.5 epsilon / steps each, none beyond epsilon, [B, ...].

    Madry et al. 2018, arXiv:1706.06083, with the norm L-infinity, from ``start`` or 0.
    """
    size = 2.5 * epsilon / steps
    found = torch.zeros_like(observations) if start is None else start
    for _ in range(steps):
        found = found + size * gradient(loss, observations + found * unit).sign()
        found = found.clamp(-epsilon, epsilon)
    return found


def pgd_l2(
    loss: Loss, observations: Tensor, epsilon: float, unit: Tensor, steps: int,
    start: Tensor | None = None,
) -> Tensor:
    """
    Return the same with the norm L2 and the largest norm epsilon * sqrt(n), [B, ...].

    For n numbers that is a root mean square of epsilon, so that it compares with :func:`pgd`.
    """
    count = observations[0].numel()
    largest = epsilon * count ** 0.5
    size = 2.5 * largest / steps
    found = torch.zeros_like(observations) if start is None else start
    for _ in range(steps):
        direction = gradient(loss, observations + found * unit) * unit
        found = found + size * direction / _norms(direction).clamp(min=1e-12)
        found = found * (largest / _norms(found).clamp(min=1e-12)).clamp(max=1.0)
    return found


def _norms(rows: Tensor) -> Tensor:
    """Return the L2 norm of each row of [B, ...], shaped to be multiplied with it."""
    norms: Tensor = rows.flatten(1).norm(dim=1)
    return norms.reshape(-1, *[1] * (rows.dim() - 1))


class Patch:
    """
    A patch in the upper left corner of images, the same in all, that learns while it is shown.

    Brown et al. 2017, arXiv:1712.09665, with one step for each image instead of a training set.
    Its pixels stay in [0, 1]. It is grey in stacked frames, [S, H, W], the same in each, and
    coloured in [H, W, C].
    """

    def __init__(self, shape: tuple[int, ...], share: float, channels_last: bool) -> None:
        """
        Make a grey patch.

        Args:
            shape: [C, H, W] or [H, W, C] of an image.
            share: of height and width.
            channels_last: whether the image is [H, W, C].
        """
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

    def learn(self, loss: Callable[[Tensor], Tensor], images: Tensor, size: float) -> None:
        """Change the pixels by ``size`` each, so that the loss of images [B, ...] grows."""
        with torch.enable_grad():
            pixels = self.pixels.detach().requires_grad_()
            found, = torch.autograd.grad(loss(self.apply(images, pixels)).sum(), pixels)
        self.pixels = (self.pixels + size * found.sign()).clamp(0.0, 1.0)
