"""
Optimiser of the pose networks: Muon for hidden weight matrices, AdamW for the rest.

Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) orthogonalises the update of
each matrix. It needs less than half the frames that AdamW alone needs here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ['PoseOptimizer']

# Matrices with a longer smaller side cost too much to orthogonalise.
_WIDEST = 512
# Muon's learning rate, as a multiple of AdamW's: its updates have norm one.
_MUON_RATE = 15.0


class PoseOptimizer:
    """Muon and AdamW as one optimiser; a convolution's kernel is a matrix, one row per output."""

    def __init__(self, model: nn.Module, weight_decay: float, *, bfloat16: bool = True):
        """
        Optimise ``model``.

        AdamW optimises the first and the last layer, as Muon's authors recommend.

        Args:
            model: the network.
            weight_decay: of both optimisers.
            bfloat16: orthogonalise in bfloat16, as Muon's authors do, or in float32, which is
                many times faster on processors without instructions for bfloat16.
        """
        named = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
        heavy = [each for name, each in named if each.ndim > 1]
        inner = [each for name, each in named if each.ndim > 1 and not name.startswith('head.')]
        self._parameters = [each for _, each in named]
        self._kernels = [each for each in inner[1:]
                         if min(len(each), each[0].numel()) <= _WIDEST]
        # Views of the parameters: a step on them changes the network.
        self._matrices = [nn.Parameter(_as_matrix(each.data)) for each in self._kernels]
        ours = {id(each) for each in self._kernels}
        kind = torch.optim.Muon if bfloat16 else _Float32Muon
        self._muons = [kind([each], lr=0.0, weight_decay=weight_decay)
                       for each in self._matrices]
        self._largest_first = sorted(
            self._muons, key=lambda each: -each.param_groups[0]['params'][0].numel())
        self._adamw = torch.optim.AdamW(
            [{'params': [each for each in heavy if id(each) not in ours],
              'weight_decay': weight_decay},
             {'params': [each for _, each in named if each.ndim <= 1], 'weight_decay': 0.0}],
            lr=0.0, foreach=True)

    def step(
        self, gradients: Sequence[Tensor], lr: float, longest: float, pool: Executor,
    ) -> None:
        """
        Take a step.

        Args:
            gradients: of every parameter of the model, in its order; modified in place.
            lr: learning rate, of AdamW.
            longest: the norm to which the gradients are clipped.
            pool: threads for the matrices.
        """
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        nn.utils.clip_grad_norm_(self._parameters, longest, foreach=True)
        for matrix, kernel in zip(self._matrices, self._kernels, strict=True):
            assert kernel.grad is not None
            matrix.grad = _as_matrix(kernel.grad.contiguous(
                memory_format=_layout(kernel)) if kernel.ndim == 4 else kernel.grad)
        for muon in self._muons:
            muon.param_groups[0]['lr'] = _MUON_RATE * lr
        for group in self._adamw.param_groups:
            group['lr'] = lr
        updates = [pool.submit(each.step) for each in self._largest_first]
        self._adamw.step()
        for each in updates:
            each.result()

    def state_dict(self) -> dict[str, Any]:
        """Return what :meth:`load_state_dict` takes."""
        return {'muon': [each.state_dict() for each in self._muons],
                'adamw': self._adamw.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """
        Restore a state.

        Raises:
            KeyError, ValueError: the state of another optimiser.
        """
        for muon, found in zip(self._muons, state['muon'], strict=True):
            muon.load_state_dict(found)
        self._adamw.load_state_dict(state['adamw'])


class _Float32Muon(torch.optim.Muon):
    """PyTorch's Muon, with the same state, computed in float32."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take a step."""
        group, = self.param_groups
        matrix, = group['params']
        state, momentum, lr = self.state[matrix], group['momentum'], group['lr']
        if not state:
            state['momentum_buffer'] = torch.zeros_like(matrix.grad)
        average = state['momentum_buffer'].lerp_(matrix.grad, 1.0 - momentum)
        update = orthogonalize(matrix.grad.lerp(average, momentum), group['ns_coefficients'],
                         group['ns_steps'])
        rows, columns = matrix.shape
        matrix.mul_(1.0 - lr * group['weight_decay'])
        matrix.sub_(update, alpha=lr * math.sqrt(max(1.0, rows / columns)))


def orthogonalize(matrix: Tensor, coefficients: tuple[float, float, float], steps: int) -> Tensor:
    """
    Return ``matrix`` with all singular values near one, by the Newton-Schulz iteration of Muon.

    Args:
        matrix: float32 [rows, columns].
        coefficients: a, b, c of one iteration, X <- a X + (b A + c A A) X with A = X X^T.
        steps: number of iterations.
    """
    a, b, c = coefficients
    tall = len(matrix) > len(matrix[0])
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def _layout(kernel: Tensor) -> torch.memory_format:
    last = kernel.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format


def _as_matrix(kernel: Tensor) -> Tensor:
    """Return [outputs, n] with the same storage."""
    if kernel.ndim == 4 and _layout(kernel) is torch.channels_last:
        kernel = kernel.permute(0, 2, 3, 1)
    return kernel.view(len(kernel), -1)
