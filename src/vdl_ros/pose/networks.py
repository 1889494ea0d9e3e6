"""
The networks: ``resnet``, small and made for this, and ``alexnet``, the layout of old.

Both take pictures, float [batch, 3, 128, 128] from 0 to 1, and give a :class:`Raw`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from vdl_ros.pose.keypoints import POINTS
from vdl_ros.pose.outputs import ENCODED, OUTPUTS

__all__ = ['MODELS', 'SIZE', 'AlexNet', 'Raw', 'ResNet', 'make_model']

#: Height and width of the pictures, pixels.
SIZE = 128
_MEAN, _SPREAD = 0.45, 0.25


class Raw(NamedTuple):
    """
    What a network says.

    ``encoded`` is float [batch, 11] as of ``labels.encode``, pairs of any length. ``log_std`` is
    float [batch, 6], the logarithm of how far off each output is thought to be, in m / 0.225 and
    rad. ``points`` is float [batch, points, 3], where ``points.POINTS`` are thought to be.
    ``maps`` is float [batch, points, side, side], how likely each place of the picture is to show
    each of them, as logits; None where a network has no such maps.
    """

    encoded: Tensor
    log_std: Tensor
    points: Tensor
    maps: Tensor | None = None


class _Head(nn.Module):
    """Turns features into a :class:`Raw`; in float32, since angles are finer than bfloat16."""

    def __init__(self, features: int):
        super().__init__()
        self.sizes = ENCODED, len(OUTPUTS), 3 * len(POINTS)
        self.last = nn.Linear(features, sum(self.sizes))
        nn.init.normal_(self.last.weight, std=0.01)
        nn.init.zeros_(self.last.bias)

    def forward(self, features: Tensor) -> Raw:
        with torch.autocast('cpu', enabled=False):
            encoded, log_std, points = self.last(features.float()).split(self.sizes, -1)
        return Raw(encoded, log_std.clamp(-6.0, 1.5), points.unflatten(-1, (-1, 3)))


class _Block(nn.Module):
    """Two convolutions and a way round them."""

    def __init__(self, before: int, after: int, stride: int):
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.first_norm = nn.GroupNorm(8, after)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.second_norm = nn.GroupNorm(8, after)
        # Begins as if the block were not there, so that depth does not slow the start.
        nn.init.zeros_(self.second_norm.weight)
        self.round = (nn.Identity() if before == after and stride == 1 else
                      nn.Conv2d(before, after, 1, stride, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(y)) + self.round(x))


class _Look(nn.Module):
    """
    Looks at places: each map says where one thing is, and what it looks like there is read off.

    The first maps belong to ``points.POINTS``; the others look where they like.
    """

    def __init__(self, channels: int, maps: int):
        super().__init__()
        self.maps = nn.Conv2d(channels, maps, 1)
        self.features = maps * (channels + 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """
        Return features, float [batch, features], places, [batch, maps, 2], and logits.

        Places are in half heights of the picture from its middle; logits are [batch, maps, side,
        side].
        """
        with torch.autocast('cpu', enabled=False):
            x = x.float()
            logits = self.maps(x)
            weights = logits.flatten(2).softmax(-1)
            side = x.shape[-1]
            along = (torch.arange(side, dtype=torch.float32) + 0.5) * (2.0 / side) - 1.0
            grid = torch.stack(torch.meshgrid(along, along, indexing='xy'), -1).flatten(0, 1)
            places = weights @ grid
            found = weights @ x.flatten(2).transpose(1, 2)
            return torch.cat([found.flatten(1), places.flatten(1)], -1), places, logits


class ResNet(nn.Module):
    """
    Residual network with group norm that reads its maps place by place.

    Pooling away where things are would lose the angles. So the coarse maps are squeezed to few
    channels and flattened, and the finest are looked at where the arm's points are; on the way
    back to them, what the whole says about the parts is joined with what the parts look like.
    """

    def __init__(self) -> None:
        """Begin with random weights."""
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 5, 2, 2, bias=False), nn.GroupNorm(4, 16), nn.ReLU(),
            nn.Conv2d(16, 48, 3, 2, 1, bias=False), nn.GroupNorm(8, 48), nn.ReLU())
        self.fine = _Block(48, 48, 1)
        self.middle = nn.Sequential(_Block(48, 96, 2), _Block(96, 96, 1))
        self.coarse = nn.Sequential(_Block(96, 192, 2), _Block(192, 192, 1))
        self.squeeze = nn.Sequential(
            nn.Conv2d(192, 32, 1, bias=False), nn.GroupNorm(8, 32), nn.ReLU())
        self.to_middle = nn.Conv2d(192, 96, 1, bias=False)
        self.to_fine = nn.Sequential(
            nn.GroupNorm(8, 96), nn.ReLU(), nn.Conv2d(96, 64, 3, 1, 1, bias=False),
            nn.GroupNorm(8, 64), nn.ReLU(), nn.Conv2d(64, 48, 1, bias=False))
        self.join = nn.Sequential(
            nn.GroupNorm(8, 48), nn.ReLU(), nn.Conv2d(48, 48, 3, 1, 1, bias=False),
            nn.GroupNorm(8, 48), nn.ReLU())
        self.look = _Look(48, 24)
        self.hidden = nn.Sequential(
            nn.Linear(32 * (SIZE // 16) ** 2 + self.look.features, 384), nn.ReLU(),
            nn.Linear(384, 256), nn.ReLU())
        self.head = _Head(256)

    def forward(self, pictures: Tensor) -> Raw:
        """Return what is seen."""
        fine = self.fine(self.stem((pictures - _MEAN) / _SPREAD))
        middle = self.middle(fine)
        coarse = self.coarse(middle)
        middle = self.to_fine(middle + _larger(self.to_middle(coarse)))
        looked, places, maps = self.look(self.join(fine + _larger(middle)))
        whole = self.squeeze(coarse).flatten(1)
        raw: Raw = self.head(self.hidden(torch.cat([whole.float(), looked], -1)))
        # Points are said as a correction of where the network looked for them.
        count = len(POINTS)
        there = functional.pad(places[:, :count], (0, 1))
        return raw._replace(points=raw.points + there, maps=maps[:, :count])


def _larger(maps: Tensor) -> Tensor:
    """Return maps of twice the side."""
    return functional.interpolate(maps, scale_factor=2.0, mode='nearest')


class AlexNet(nn.Module):
    """
    The seed's layout on pictures of half the size, its last layer linear.

    There a ReLU stood behind the outputs, so no negative angle could be told.
    """

    def __init__(self) -> None:
        """Begin with random weights."""
        super().__init__()
        self.maps = nn.Sequential(
            nn.Conv2d(3, 64, 11, 4, 5), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(),
            nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2))
        self.hidden = nn.Sequential(
            nn.Linear(256 * 3 * 3, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU())
        self.head = _Head(4096)

    def forward(self, pictures: Tensor) -> Raw:
        """Return what is seen."""
        x = self.maps((pictures - _MEAN) / _SPREAD)
        result: Raw = self.head(self.hidden(x.flatten(1)))
        return result


#: Every architecture by the name that ``--model`` and model files call it.
MODELS: dict[str, type[nn.Module]] = {'resnet': ResNet, 'alexnet': AlexNet}


def make_model(name: str) -> nn.Module:
    """
    Return a new network, in the memory layout that the CPU is fastest with.

    Raises:
        ValueError: no such architecture.
    """
    if name not in MODELS:
        raise ValueError(f'model: {name!r} is not allowed: one of {", ".join(MODELS)}')
    model: nn.Module = MODELS[name]()
    # The method is not among torch's type hints of `to`.
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]
