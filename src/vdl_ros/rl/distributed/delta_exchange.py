"""
Several learners that exchange the changes of their weights, instead of gradients.

Each learner makes its own optimizer steps from its own trajectories. Every so many updates all
replace their weights by the weights of the last exchange plus the mean of the changes since then,
as VDL's peers did, and as in local SGD (Stich 2019, arXiv:1805.09767). So the bytes of one sum of
gradients travel once in many optimizer steps. Between exchanges the learners' weights differ.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from vdl_ros.rl.distributed.collectives import Group

__all__ = ['DeltaExchange']


class DeltaExchange:
    """The exchanges of one learner; all learners make the same number of updates."""

    def __init__(self, network: nn.Module, period: int, group: Group) -> None:
        """
        Take the weights of ``network`` as those of the last exchange.

        Args:
            network: its parameters that are learned are exchanged.
            period: updates from one exchange to the next.
            group: the learners.
        """
        self._parameters = [each for each in network.parameters() if each.requires_grad]
        self._period = period
        self._group = group
        self.restart()

    def restart(self) -> None:
        """Take the present weights, which all learners have, as those of the last exchange."""
        self._updates = 0
        self._base = self._weights()

    def after_update(self) -> None:
        """
        Exchange the changes, if it is time.

        Raises:
            GroupError: another learner is gone.
        """
        self._updates += 1
        if self._updates < self._period:
            return
        change = self._weights() - self._base
        mean = self._group.all_reduce_sum(change) / self._group.size
        vector_to_parameters(self._base + mean, self._parameters)
        self.restart()

    def _weights(self) -> Tensor:
        return parameters_to_vector(self._parameters).detach().clone()
