"""
The penalty of PPO on the KL divergence, whose weight beta adapts to how far updates go.

``kl`` is Schulman et al. 2017, arXiv:1707.06347, section 4. ``hinge`` is that of WALL-E: smaller
changes of beta within narrower bounds, a steep term beyond twice the target, and a learning rate
that changes where beta cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vdl_ros.rl.algorithm_config import PpoConfig
from vdl_ros.rl.distributed.collectives import Group

__all__ = ['KlPenalty']


@dataclass(frozen=True, kw_only=True)
class _Form:
    """
    Constants of a form.

    Attributes:
        tolerance: beta changes where the divergence is off by this factor.
        factor: by which beta changes, and the learning rate with it.
        lowest, highest: bounds of beta.
        hinge: weight of the squared excess over twice the target, eta.
        spare: the learning rate changes where beta is above this, or below its inverse.
    """

    tolerance: float
    factor: float
    lowest: float
    highest: float
    hinge: float = 0.0
    spare: float = float('inf')


_FORMS = {
    'clip': _Form(tolerance=float('inf'), factor=1.0, lowest=1.0, highest=1.0),
    'kl': _Form(tolerance=1.5, factor=2.0, lowest=1e-4, highest=100.0),
    'hinge': _Form(tolerance=2.0, factor=1.5, lowest=1 / 35, highest=35.0, hinge=50.0, spare=30.0),
}
# The hinge begins at this many times the target.
_HINGE_AT = 2.0
_LEARNING_RATE_FACTOR = (0.1, 10.0)


class KlPenalty:
    """
    The penalty of one algorithm; ``clip`` has none.

    Attributes:
        beta: weight of the divergence.
        learning_rate_factor: by which the learning rate is multiplied.
    """

    def __init__(self, config: PpoConfig) -> None:
        """Make the penalty of ``ppo_form`` and ``ppo_kl_target``."""
        self.beta = self.learning_rate_factor = 1.0
        self._form, self._target = _FORMS[config.ppo_form], config.ppo_kl_target

    def __call__(self, kl: Tensor, group: Group) -> Tensor:
        """
        Return the penalty, a scalar: this learner's part of the sum over all.

        Args:
            kl: scalar, this learner's part of the mean divergence.
            group: the learners that share the work.
        """
        penalty = self.beta * kl
        if self._form.hinge:
            # The square of the sum over all learners, not a sum of squares.
            all_kl = group.all_reduce_sum(kl.detach())
            excess = (all_kl - _HINGE_AT * self._target).clamp(min=0.0)
            penalty = penalty + self._form.hinge * excess * (
                2.0 * (kl - kl.detach()) + excess / group.size)
        return penalty

    def adapt(self, kl: float) -> None:
        """Raise beta if the policy went further than the target, ``kl``; lower it if less far."""
        form = self._form
        smallest, largest = _LEARNING_RATE_FACTOR
        if kl > form.tolerance * self._target:
            self.beta = min(self.beta * form.factor, form.highest)
            if self.beta > form.spare:
                self.learning_rate_factor = max(self.learning_rate_factor / form.factor, smallest)
        elif kl < self._target / form.tolerance:
            self.beta = max(self.beta / form.factor, form.lowest)
            if self.beta < 1.0 / form.spare:
                self.learning_rate_factor = min(self.learning_rate_factor * form.factor, largest)

    def state(self) -> dict[str, float]:
        """Return what a checkpoint needs."""
        return {'beta': self.beta, 'learning_rate_factor': self.learning_rate_factor}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore :meth:`state`; checkpoints before the form ``hinge`` have no factor."""
        self.beta = float(state['beta'])
        self.learning_rate_factor = float(state.get('learning_rate_factor', 1.0))
