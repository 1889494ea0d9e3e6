"""The loss of pose networks: the six values, their standard deviations, and the keypoints."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vdl_ros.pose.networks import Raw
from vdl_ros.pose.outputs import decode, encode, errors

__all__ = ['Loss', 'pose_loss', 'unit_errors']

# Errors below this count by their square, larger ones by their size: a few frames that cannot be
# read, one link hidden behind another, must not dominate the rest.
_SMALL = 0.03
_POINTS, _MAPS, _SURENESS, _LENGTH = 3.0, 0.3, 0.1, 0.02
# A network's distances are in units of 0.225 m; see outputs.encode.
_DISTANCE_UNIT = 0.225


class Loss(NamedTuple):
    """The sum that is minimised, and its parts; scalars."""

    total: Tensor
    pose: Tensor
    points: Tensor
    maps: Tensor
    sureness: Tensor


def pose_loss(raw: Raw, targets: Tensor, points: Tensor) -> Loss:
    """
    Return the loss of a batch.

    Args:
        raw: of the network.
        targets: float [batch, 6].
        points: float [batch, points, 3], of ``points.seen_points``.
    """
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
    off = unit_errors(decode(raw.encoded.detach()), targets)
    sureness = (raw.log_std + 0.5 * off.square() * (-2.0 * raw.log_std).exp()).mean()
    total = (pose + _LENGTH * kept_short + _POINTS * nearby + _MAPS * likely +
             _SURENESS * sureness)
    return Loss(total, pose.detach(), nearby.detach(), likely.detach(), sureness.detach())


def _map_loss(maps: Tensor, points: Tensor) -> Tensor:
    """
    Return the mean cross entropy of maps and points; points outside do not count.

    A point lies between four cells; each is a target with its bilinear weight.

    Args:
        maps: float [batch, points, side, side], logits.
        points: float [batch, points, 2 or 3], in half heights from the middle.
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


def unit_errors(estimates: Tensor, targets: Tensor) -> Tensor:
    """Return errors in the units of ``Raw.log_std``, float [batch, 6]."""
    off = errors(estimates, targets)
    return torch.cat([off[:, :1] / _DISTANCE_UNIT, off[:, 1:]], -1)
