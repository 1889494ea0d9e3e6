"""The pose network as an attack sees it: joint angles, and a direction to turn them."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from vdl_ros.attacks.victim import Seen
from vdl_ros.pose.estimator import PoseEstimator
from vdl_ros.pose.framing import scale_square
from vdl_ros.pose.outputs import JOINT_OUTPUTS, wrap
from vdl_ros.rl.policy.policy import Output

__all__ = ['PoseVictim']


class PoseVictim:
    """
    A pose estimator whose images are perturbed, as a :class:`~vdl_ros.attacks.victim.Victim`.

    Images are float [B, H, H, 3] from 0 to 1, RGB, of any height. What it decides are the angles
    of base, shoulder and elbow, rad.
    """

    has_state = False
    is_flat_at_best = False

    def __init__(self, estimator: PoseEstimator) -> None:
        """Use the gradients of ``estimator``."""
        self._estimator = estimator
        self.unit = torch.ones(())

    def initial_state(self, batch: int) -> Tensor:
        """Return the state of a network that has none, [batch, 0]."""
        return torch.zeros(batch, 0)

    def output(self, image: Tensor, seen: Seen) -> Output:
        """
        Return the joint angles in ``image`` as parameters, float [B, 3], and no values.

        The estimator rounds the scaled image to bytes; here it is not rounded, since a rounded
        number has no gradient.
        """
        values, _ = self._estimator.outputs(scale_square(image.permute(0, 3, 1, 2)))
        return Output(values[:, JOINT_OUTPUTS], torch.zeros(len(image)), seen.state)

    def best_actions(self, output: Output) -> Tensor:
        """Return the joint angles, float [B, 3], rad."""
        return output.parameters.detach()

    def loss(self, output: Output, actions: Tensor) -> Tensor:
        """
        Return how far the joints have turned from ``actions``, float [B], rad: their sum.

        Each joint counts with its sign, so the gradient is not 0 at the image itself, and the
        errors of successive images have one direction, which averaging does not remove.
        """
        return wrap(output.parameters - actions).sum(-1)

    def append_last_action(self, state: Tensor, actions: NDArray[Any], rewards: Any) -> Tensor:
        """Return ``state``: a pose has no actions."""
        return state
