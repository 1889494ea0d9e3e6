"""The networks, and the values that they estimate: order, units, encoding, keypoints, errors."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from vdl_ros.arm.geometry import ArmGeometry
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.pose.dataset import SIZE, PoseDataset

#: Order of every array of six: m for the first, rad for the rest.
OUTPUTS = ('camera_distance', 'camera_elevation', 'camera_azimuth', 'base', 'shoulder', 'elbow')
#: Which of them are joints of the arm.
JOINT_OUTPUTS = slice(3, 6)
#: Factors of the six when a picture is flipped: azimuth and base change their sign.
MIRROR = torch.tensor([1.0, 1.0, -1.0, -1.0, 1.0, 1.0])
#: Number of network outputs: a distance, and a sine and a cosine for each angle.
ENCODED = 1 + 2 * (len(OUTPUTS) - 1)

#: Distances are encoded as (distance - middle) / unit: half the captured range, m.
UNIT_M = 0.225
_MIDDLE_M = 0.775


def encode(targets: Tensor) -> Tensor:
    """Return distance, then sines and cosines in turn: 359 and 1 degree are neighbours."""
    angles = targets[..., 1:]
    pairs = torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)
    return torch.cat([(targets[..., :1] - _MIDDLE_M) / UNIT_M, pairs], -1)


def decode(encoded: Tensor) -> Tensor:
    """Return the six values, float [..., 6], angles from -pi to pi; pairs may have any length."""
    pairs = encoded[..., 1:].reshape(*encoded.shape[:-1], -1, 2)
    angles = torch.atan2(pairs[..., 0], pairs[..., 1])
    return torch.cat([encoded[..., :1] * UNIT_M + _MIDDLE_M, angles], -1)


def wrap(angle: Tensor) -> Tensor:
    """Return the same angle from -pi to pi, rad."""
    return torch.remainder(angle + torch.pi, 2.0 * torch.pi) - torch.pi


def errors(estimates: Tensor, targets: Tensor) -> Tensor:
    """Return estimate minus truth, float [..., 6], m and rad; angles the short way round."""
    difference = estimates - targets
    return torch.cat([difference[..., :1], wrap(difference[..., 1:])], -1)


Array = NDArray[np.float64]

#: Frame and place in it, m; places need not lie on a part's surface. Left ones before right ones.
POINTS: tuple[tuple[str, tuple[float, float, float]], ...] = (
    ('base_link', (0.06, 0.07, 0.03)), ('base_link', (0.06, -0.07, 0.03)),
    ('base_link', (-0.10, 0.07, 0.03)), ('base_link', (-0.10, -0.07, 0.03)),
    ('upper_arm', (0.0, 0.03, 0.0)), ('upper_arm', (0.0, -0.03, 0.0)),
    ('forearm', (0.0, 0.03, 0.0)), ('forearm', (0.0, -0.03, 0.0)),
    ('hand', (0.0, 0.03, 0.0)), ('hand', (0.0, -0.03, 0.0)),
    ('turntable', (0.04, 0.0, 0.02)), ('tool0', (0.0, 0.0, 0.0)))
#: Index of each point's counterpart in a flipped picture.
MIRRORED = (1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 10, 11)

_DEPTH = 0.25  # m; brings depths to the scale of the other numbers


def project_points(data: PoseDataset) -> NDArray[np.float32]:
    """Return the positions of the points in every frame, float32 [frames, points, 3].

    Column and row are in half heights of the picture from its middle, right and down; the third
    is the depth beyond ``camera_target``, in quarters of a metre.
    """
    about_target = np.concatenate([
        _points(geometry, data.joints[frames]) for frames, geometry in data.arms()])
    distance, elevation, azimuth = data.targets[:, :3].double().numpy().T
    seen = _in_camera(about_target, elevation, azimuth)
    seen[..., 2] += distance[:, None]
    scale = 2.0 * data.focal[:, None] / np.maximum(seen[..., 2], 0.05)
    roll = data.roll[:, None]
    across, down = seen[..., 0] * scale, seen[..., 1] * scale
    # The picture turns against the roll of the camera.
    return np.stack([
        across * np.cos(roll) + down * np.sin(roll),
        down * np.cos(roll) - across * np.sin(roll),
        (seen[..., 2] - distance[:, None]) / _DEPTH], axis=-1).astype(np.float32)


def _points(geometry: ArmGeometry, joints: Array) -> Array:
    """Return the points about ``camera_target``, float64 [frames, points, 3], m."""
    kinematics = Kinematics(geometry)
    poses = kinematics.poses(joints)
    in_base = np.stack([
        (poses[frame] @ [*place, 1.0])[..., :3] for frame, place in POINTS], axis=1)
    return in_base - kinematics.pose(np.zeros(5), 'camera_target')[:3, 3]


def _in_camera(points: Array, elevation: Array, azimuth: Array) -> Array:
    """Return points about the target, float64 [frames, points, 3], in right, down, away."""
    zero = np.zeros_like(azimuth)
    away = -np.stack([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth),
                      np.sin(elevation)], -1)
    right = np.stack([-np.sin(azimuth), np.cos(azimuth), zero], -1)
    axes = np.stack([right, np.cross(away, right), away], -1)
    return np.asarray(points @ axes)


_MEAN, _SPREAD = 0.45, 0.25


class Raw(NamedTuple):
    """The outputs of a network.

    ``encoded`` is float [batch, 11] as of :func:`encode`, pairs of any length. ``log_std`` is
    float [batch, 6], the logarithm of each output's standard deviation, in m / 0.225 and rad.
    ``points`` is float [batch, points, 3], the estimated :data:`POINTS`. ``maps`` is float
    [batch, points, side, side], logits of each point's place in the picture; None where a network
    has no such maps.
    """

    encoded: Tensor
    log_std: Tensor
    points: Tensor
    maps: Tensor | None = None


class _Head(nn.Module):
    """Turns features into a :class:`Raw`; in float32: bfloat16 is too coarse for angles."""

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
    """Two convolutions with a residual connection."""

    def __init__(self, before: int, after: int, stride: int):
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.first_norm = nn.GroupNorm(8, after)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.second_norm = nn.GroupNorm(8, after)
        # The block starts as the identity.
        nn.init.zeros_(self.second_norm.weight)
        self.round = (nn.Identity() if before == after and stride == 1 else
                      nn.Conv2d(before, after, 1, stride, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(y)) + self.round(x))


class _SpatialAttention(nn.Module):
    """Spatial attention: the expected place of each map, and features weighted by it.

    The first maps are trained to find :data:`POINTS`; the others are free.
    """

    def __init__(self, channels: int, maps: int):
        super().__init__()
        self.maps = nn.Conv2d(channels, maps, 1)
        self.features = maps * (channels + 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return features, places, [batch, maps, 2] in half heights, and the maps' logits."""
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
    """Residual network with group norm, without global pooling, which would lose the positions.

    The coarse maps are reduced to few channels and flattened. They are also upsampled and added
    to the finer ones (as in a feature pyramid), from which spatial attention reads the points.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 5, 2, 2, bias=False), nn.GroupNorm(4, 16), nn.ReLU(),
            nn.Conv2d(16, 48, 3, 2, 1, bias=False), nn.GroupNorm(8, 48), nn.ReLU())
        self.fine = _Block(48, 48, 1)
        self.middle = nn.Sequential(_Block(48, 96, 2), _Block(96, 96, 1))
        self.coarse = nn.Sequential(_Block(96, 192, 2), _Block(192, 192, 1))
        self.squeeze = nn.Sequential(
            nn.Conv2d(192, 32, 1, bias=False), nn.GroupNorm(8, 32), nn.ReLU())
        self.upsample = nn.Upsample(scale_factor=2.0)
        self.to_middle = nn.Conv2d(192, 96, 1, bias=False)
        self.to_fine = nn.Sequential(
            nn.GroupNorm(8, 96), nn.ReLU(), nn.Conv2d(96, 64, 3, 1, 1, bias=False),
            nn.GroupNorm(8, 64), nn.ReLU(), nn.Conv2d(64, 48, 1, bias=False))
        self.join = nn.Sequential(
            nn.GroupNorm(8, 48), nn.ReLU(), nn.Conv2d(48, 48, 3, 1, 1, bias=False),
            nn.GroupNorm(8, 48), nn.ReLU())
        self.look = _SpatialAttention(48, 24)
        self.hidden = nn.Sequential(
            nn.Linear(32 * (SIZE // 16) ** 2 + self.look.features, 384), nn.ReLU(),
            nn.Linear(384, 256), nn.ReLU())
        self.head = _Head(256)

    def forward(self, pictures: Tensor) -> Raw:
        fine = self.fine(self.stem((pictures - _MEAN) / _SPREAD))
        middle = self.middle(fine)
        coarse = self.coarse(middle)
        middle = self.to_fine(middle + self.upsample(self.to_middle(coarse)))
        looked, places, maps = self.look(self.join(fine + self.upsample(middle)))
        whole = self.squeeze(coarse).flatten(1)
        raw: Raw = self.head(self.hidden(torch.cat([whole.float(), looked], -1)))
        # Points are corrections of the expected places.
        count = len(POINTS)
        there = functional.pad(places[:, :count], (0, 1))
        return raw._replace(points=raw.points + there, maps=maps[:, :count])


class AlexNet(nn.Module):
    """The original layout on pictures of half the size, with a linear last layer.

    The original had a ReLU behind the outputs, so negative angles were impossible.
    """

    def __init__(self) -> None:
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
        x = self.maps((pictures - _MEAN) / _SPREAD)
        result: Raw = self.head(self.hidden(x.flatten(1)))
        return result


#: Architectures by their name in ``--model`` and in model files.
MODELS: dict[str, type[nn.Module]] = {'resnet': ResNet, 'alexnet': AlexNet}


def make_model(name: str) -> nn.Module:
    """Return a new network, in the memory layout that is fastest on the CPU."""
    model: nn.Module = MODELS[name]()
    # The method is not among torch's type hints of `to`.
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]
