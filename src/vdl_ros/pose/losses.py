"""The loss of pose networks, of values, standard deviations and keypoints; their optimiser."""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vdl_ros.pose.networks import UNIT_M, Raw, decode, encode, errors

# Errors below this count by their square, larger ones by their size: a few frames that cannot be
# read, one link hidden behind another, must not dominate the rest.
_SMALL = 0.03
_POINTS, _MAPS, _SURENESS, _LENGTH = 3.0, 0.3, 0.1, 0.02


class Loss(NamedTuple):
    """The sum that is minimised, and its parts; scalars."""

    total: Tensor
    pose: Tensor
    points: Tensor
    maps: Tensor
    sureness: Tensor


def pose_loss(raw: Raw, targets: Tensor, points: Tensor) -> Loss:
    """Return the loss of a batch: targets, [batch, 6], points, [batch, points, 3]."""
    truth = encode(targets)
    distance = raw.encoded[:, :1] - truth[:, :1]
    pairs = raw.encoded[:, 1:].reshape(len(truth), -1, 2)
    length = pairs.norm(dim=-1, keepdim=True)
    # Chord between the directions: smooth over the whole circle.
    apart = pairs / (length + 1e-6) - truth[:, 1:].reshape(len(truth), -1, 2)
    squares = torch.cat([distance.square(), apart.square().sum(-1)], -1)
    pose = ((squares + _SMALL ** 2).sqrt() - _SMALL).mean()
    kept_short = (length - 1.0).square().mean()
    nearby = ((raw.points - points).square() + _SMALL ** 2).sqrt().mean() - _SMALL
    likely = _map_loss(raw.maps, points) if raw.maps is not None else torch.zeros(())
    # Detached: a large standard deviation must not reduce the gradient of the error.
    off = errors(decode(raw.encoded.detach()), targets)
    off = torch.cat([off[:, :1] / UNIT_M, off[:, 1:]], -1)
    sureness = (raw.log_std + 0.5 * off.square() * (-2.0 * raw.log_std).exp()).mean()
    total = (pose + _LENGTH * kept_short + _POINTS * nearby + _MAPS * likely +
             _SURENESS * sureness)
    return Loss(total, pose.detach(), nearby.detach(), likely.detach(), sureness.detach())


def _map_loss(maps: Tensor, points: Tensor) -> Tensor:
    """Return the mean cross entropy of maps and points; points outside do not count.

    A point lies between four cells; each is a target with its bilinear weight.
    """
    side = maps.shape[-1]
    logs = maps.flatten(2).log_softmax(-1)
    cells = (points[..., :2] + 1.0) * (0.5 * side) - 0.5
    inside = ((cells > -0.5) & (cells < side - 0.5)).all(-1)
    cells = cells.clamp(0.0, side - 1.001)
    corner = cells.floor()
    share = cells - corner
    first = corner.long()
    entropy = torch.zeros_like(share[..., 0])
    for right, below in ((0, 0), (0, 1), (1, 0), (1, 1)):
        weight = ((share[..., 0] if right else 1.0 - share[..., 0]) *
                  (share[..., 1] if below else 1.0 - share[..., 1]))
        index = (first[..., 1] + below) * side + first[..., 0] + right
        entropy = entropy - weight * logs.gather(2, index[..., None])[..., 0]
    return (entropy * inside).sum() / inside.sum().clamp(min=1)


# Matrices whose smaller side is longer cost too much to orthogonalise.
_MAX_SIDE = 512
# Muon's learning rate, as a multiple of AdamW's: its updates have norm one.
_MUON_RATE = 15.0


class PoseOptimizer:
    """Muon and AdamW as one optimiser; a convolution's kernel is a matrix, one row per output.

    AdamW optimises the first and the last layer, as Muon's authors recommend. They orthogonalise
    in bfloat16; float32 is many times faster on processors without instructions for bfloat16.
    """

    def __init__(self, model: nn.Module, weight_decay: float, *, bfloat16: bool):
        named = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
        heavy = [each for name, each in named if each.ndim > 1]
        inner = [each for name, each in named if each.ndim > 1 and not name.startswith('head.')]
        self._parameters = [each for _, each in named]
        self._kernels = [each for each in inner[1:]
                         if min(len(each), each[0].numel()) <= _MAX_SIDE]
        # Views of the parameters: a step on them changes the network.
        self._matrices = [nn.Parameter(_as_matrix(each.data)) for each in self._kernels]
        ours = {id(each) for each in self._kernels}
        kind = torch.optim.Muon if bfloat16 else _Float32Muon
        self._muons = [kind([each], lr=0.0, weight_decay=weight_decay) for each in self._matrices]
        self._adamw = torch.optim.AdamW(
            [{'params': [each for each in heavy if id(each) not in ours],
              'weight_decay': weight_decay},
             {'params': [each for _, each in named if each.ndim <= 1], 'weight_decay': 0.0}],
            lr=0.0, foreach=True)

    def step(
        self, gradients: Sequence[Tensor], lr: float, max_norm: float, pool: Executor,
    ) -> None:
        """Take a step; the gradients, of every parameter in order, are clipped in place."""
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        nn.utils.clip_grad_norm_(self._parameters, max_norm, foreach=True)
        for matrix, kernel in zip(self._matrices, self._kernels, strict=True):
            assert kernel.grad is not None
            matrix.grad = _as_matrix(kernel.grad.contiguous(
                memory_format=_layout(kernel)) if kernel.ndim == 4 else kernel.grad)
        for muon in self._muons:
            muon.param_groups[0]['lr'] = _MUON_RATE * lr
        for group in self._adamw.param_groups:
            group['lr'] = lr
        # The largest first, or a thread would end long after the others.
        updates = [pool.submit(each.step) for each in sorted(
            self._muons, key=lambda each: -each.param_groups[0]['params'][0].numel())]
        self._adamw.step()
        for each in updates:
            each.result()

    def state_dict(self) -> dict[str, Any]:
        return {'muon': [each.state_dict() for each in self._muons],
                'adamw': self._adamw.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state; KeyError, ValueError: of another optimiser."""
        for muon, found in zip(self._muons, state['muon'], strict=True):
            muon.load_state_dict(found)
        self._adamw.load_state_dict(state['adamw'])


class _Float32Muon(torch.optim.Muon):
    """PyTorch's Muon, with the same state, computed in float32."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
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
    """Return ``matrix`` with all singular values near one, by the Newton-Schulz iteration of Muon.

    An iteration with the coefficients a, b, c is X <- a X + (b A + c A A) X with A = X X^T.
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
