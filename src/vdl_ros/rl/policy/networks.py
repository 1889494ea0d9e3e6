"""Torsos of policy networks: modules from observations to features.

======== =========================================================================================
mlp      two tanh layers, for vectors
impala   two convolutions, the shallow network of Espeholt et al. 2018, arXiv:1802.01561
resnet   its deep network: three sections of a convolution, pooling and two residual blocks
nature   three convolutions, Mnih et al. 2015, "Human-level control through deep reinforcement
         learning"
universe four convolutions with stride 2 and ELU, as in universe-starter-agent
======== =========================================================================================
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from vdl_ros.rl.device import CPU
from vdl_ros.rl.policy.numpy_policy import CLIP

# Numbers of a layer whose first weights are computed otherwise than PyTorch does.
_LARGE = 1 << 23
Layer = TypeVar('Layer', nn.Linear, nn.Conv2d)


def make_torso(
    network: str, shape: Sequence[int], hidden_size: int,
) -> tuple[nn.Sequential, int]:
    """Return a torso, by its name in this module's table, and its number of features.

    ``shape`` is [C, H, W] of an image, or [inputs] for the mlp, whose layers have ``hidden_size``.
    """
    if network == 'mlp':
        return nn.Sequential(
            orthogonal(nn.Linear(shape[0], hidden_size)), nn.Tanh(),
            orthogonal(nn.Linear(hidden_size, hidden_size)), nn.Tanh()), hidden_size
    if network == 'resnet':
        return _flat([_Section(*channels) for channels in
                      ((shape[0], 16), (16, 32), (32, 32))] + [nn.ReLU()], shape, 256)
    if network == 'universe':
        return _flat(_convolutions(shape[0], ((32, 3, 2),) * 4, nn.ELU, padding=1), shape, 0)
    layers, features = {
        'impala': (((16, 8, 4), (32, 4, 2)), 256),
        'nature': (((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512),
    }[network]
    return _flat(_convolutions(shape[0], layers, nn.ReLU), shape, features)


def autocast(inputs: Tensor) -> torch.autocast:
    """Return a context in which layers compute in bfloat16 if their inputs are of it."""
    return torch.autocast(
        inputs.device.type, torch.bfloat16, enabled=inputs.dtype == torch.bfloat16)


def orthogonal(layer: Layer, gain: float = math.sqrt(2)) -> Layer:
    if layer.weight.numel() < _LARGE or layer.weight.shape[0] ** 2 > layer.weight.numel():
        nn.init.orthogonal_(layer.weight, gain)
    else:
        _wide_orthogonal(layer.weight.data, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def _wide_orthogonal(weight: Tensor, gain: float) -> None:
    """Do as ``nn.init.orthogonal_``, with the same numbers, in a fraction of its time.

    Of a matrix with so many more columns than rows the factor of Cholesky is as exact as that of
    QR, which would take a minute for large images.
    """
    wide = weight.flatten(1).normal_()
    factor = torch.linalg.cholesky(wide @ wide.T)
    weight.copy_((torch.linalg.inv(factor) @ wide).view_as(weight)).mul_(gain)


class Smoothing(nn.Module):
    """A Gaussian filter of each channel of images, whose edge is repeated.

    It is cut off at three standard deviations.
    """

    kernel: Tensor

    def __init__(self, deviation: float) -> None:
        super().__init__()
        self._radius = math.ceil(3.0 * deviation)
        x = torch.arange(-self._radius, self._radius + 1, dtype=torch.float32)
        kernel = torch.exp(-0.5 * (x / deviation) ** 2)
        # Not a weight: a policy can be smoothed that was trained without.
        self.register_buffer('kernel', kernel / kernel.sum(), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return smoothed images, [N, C, H, W] as they came."""
        shape, size = images.shape, len(self.kernel)
        kernel = self.kernel.to(images.dtype)
        # Channels are rows of one, so that all are smoothed alike.
        x = images.reshape(-1, 1, *shape[-2:])
        x = functional.pad(x, (self._radius,) * 4, mode='replicate')
        x = functional.conv2d(x, kernel.view(1, 1, 1, size))
        return functional.conv2d(x, kernel.view(1, 1, size, 1)).reshape(shape)


def random_shift(images: Tensor, share: float, axis: int) -> Tensor:
    """Return images, [N, ...], each moved by whole pixels, at most ``share`` of its size.

    Rows are ``axis``, columns the next one; the edge is repeated (Kostrikov et al. 2021,
    arXiv:2004.13649).
    """
    count, sizes, starts = len(images), images.shape[axis:axis + 2], []
    for each in (axis, axis + 1):
        shape, most = list(images.shape), round(share * images.shape[each])
        first, last = images.narrow(each, 0, 1), images.narrow(each, shape[each] - 1, 1)
        shape[each] = most
        images = torch.cat([first.expand(shape), images, last.expand(shape)], each)
        # Drawn on the host, so that all devices see the same, and none waits.
        starts.append(torch.randint(2 * most + 1, (count,)).tolist())
    # Copies of parts; a CPU takes several times as long to gather pixels or to sample a grid.
    return torch.stack([
        image.narrow(axis - 1, row, sizes[0]).narrow(axis, column, sizes[1])
        for image, row, column in zip(images, *starts, strict=True)])


def _convolutions(
    channels: int, layers: Sequence[tuple[int, int, int]], activation: type[nn.Module],
    padding: int = 0,
) -> list[nn.Module]:
    """Return convolutions of (filters, kernel, stride), each with its activation."""
    modules: list[nn.Module] = []
    for filters, kernel, stride in layers:
        modules += [orthogonal(nn.Conv2d(channels, filters, kernel, stride, padding)),
                    activation()]
        channels = filters
    return modules


def _flat(
    modules: list[nn.Module], shape: Sequence[int], features: int,
) -> tuple[nn.Sequential, int]:
    """Return the modules, flattened, with a layer of ``features`` units unless that is 0."""
    modules = [*modules, nn.Flatten()]
    with torch.no_grad():
        size = nn.Sequential(*modules)(torch.zeros(1, *shape)).shape[-1]
    if features:
        modules += [orthogonal(nn.Linear(size, features)), nn.ReLU()]
    return nn.Sequential(*modules), features or size


class _Section(nn.Module):
    """A convolution, pooling by two, two residual blocks."""

    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        self.convolution = orthogonal(nn.Conv2d(inputs, channels, 3, padding=1))
        self.blocks = nn.ModuleList([_Block(channels), _Block(channels)])

    def forward(self, images: Tensor) -> Tensor:
        x = functional.max_pool2d(self.convolution(images), 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        return x


class _Block(nn.Module):
    """Adds two convolutions of its input to it, which at first are 0.

    Six blocks that each added a branch as large as its input would saturate an LSTM behind them.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (
            orthogonal(nn.Conv2d(channels, channels, 3, padding=1), gain)
            for gain in (math.sqrt(2), 0.0))

    def forward(self, x: Tensor) -> Tensor:
        deeper: Tensor = self.second(functional.relu(self.first(functional.relu(x))))
        return x + deeper


def run_lstm(
    lstm: nn.LSTMCell, features: Tensor, is_reset: Tensor, state: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the LSTM's outputs, [T, B, H], and its state after them, [B, 2 H].

    Features are [T, B, F]; ``is_reset`` [T, B] is true where an episode starts.
    """
    hidden, cell = state.chunk(2, -1)
    kept = (~is_reset).to(features.dtype).unsqueeze(-1)
    weights = [lstm.weight_ih, lstm.weight_hh, lstm.bias_ih, lstm.bias_hh]
    outputs = []
    for start, stop in _segments(is_reset):
        hidden, cell = hidden * kept[start], cell * kept[start]
        if stop - start == 1:
            hidden, cell = lstm(features[start], (hidden, cell))
            outputs.append(hidden[None])
            continue
        output, hidden, cell = torch.lstm(
            features[start:stop], (hidden[None], cell[None]), weights, has_biases=True,
            num_layers=1, dropout=0.0, train=torch.is_grad_enabled(), bidirectional=False,
            batch_first=False)
        hidden, cell = hidden[0], cell[0]
        outputs.append(output)
    return torch.cat(outputs), torch.cat([hidden, cell], -1)


def _segments(is_reset: Tensor) -> list[tuple[int, int]]:
    """Return parts of an unroll, bool [T, B], as first step and end; only their first has resets.

    On a CPU one call for a part of several steps takes a third of the time of one call for each.
    On other devices to look for resets would wait for the device, so each step is a part.
    """
    steps = len(is_reset)
    if is_reset.device != CPU:
        return [(t, t + 1) for t in range(steps)]
    starts = [0, *(1 + t for t in is_reset[1:].any(-1).nonzero().flatten().tolist())]
    return list(zip(starts, [*starts[1:], steps], strict=True))


class Normalizer(nn.Module):
    """Normalizes numbers to mean 0 and variance 1 by their running statistics (Chan et al. 1979).

    Before the first :meth:`update` it only clips.
    """

    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, shape: Sequence[int] = ()) -> None:
        super().__init__()
        self.register_buffer('count', torch.zeros(1, dtype=torch.float64))
        self.register_buffer('mean', torch.zeros(tuple(shape), dtype=torch.float64))
        self.register_buffer('variance', torch.ones(tuple(shape), dtype=torch.float64))

    def forward(self, numbers: Tensor) -> Tensor:
        """Return normalized numbers [..., *shape], clipped to 10 standard deviations."""
        scaled = (numbers - self.mean.to(numbers)) / self.deviation.to(numbers)
        return scaled.clamp(-CLIP, CLIP)

    def undo(self, normalized: Tensor) -> Tensor:
        return normalized * self.deviation.to(normalized) + self.mean.to(normalized)

    @property
    def deviation(self) -> Tensor:
        """Standard deviation of each number, float64 [*shape]."""
        return (self.variance + 1e-8).sqrt()

    @torch.no_grad()
    def update(
        self, numbers: Tensor, total: Callable[[Tensor], Tensor] = lambda tensor: tensor,
    ) -> None:
        """Add numbers [N, *shape]; ``total`` returns the sum of a tensor over all learners."""
        numbers = numbers.double()
        shape = self.mean.shape
        count = total(torch.full_like(self.count, len(numbers)))
        # A branch on the count would wait for the device; with no numbers the share is 0.
        some = count.clamp(min=1.0)
        mean = total(numbers.sum(0)) / some
        variance = (total((numbers - mean).square().sum(0)) / some).reshape(shape)
        share = count / (self.count + count).clamp(min=1.0)
        moved = mean - self.mean
        self.variance += (share * (variance - self.variance
                                   + (1 - share) * moved.square())).reshape(shape)
        self.mean += (share * moved).reshape(shape)
        self.count += count
