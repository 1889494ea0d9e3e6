"""The outcome of one step of the environments of an actor."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vdl_ros.rl.data.unroll import Arrays


class Step(NamedTuple):
    """The outcome of one action in each of B environments.

    Attributes:
        observation: [B, ...], after the action.
        reward: [B] float32.
        terminated, truncated: [B] bool.
        is_reset: [B] bool, where ``observation`` is the first of an episode: the environment
            ignored the action and reset itself; also where a robot was silent (``is_lost`` in the
            environment's info).
        extras: the arrays of ``unroll.OPTIONAL`` that the environment's info has, [B, ...] each.
        final: [B, ...], if some environments reset themselves in this step, because it ended their
            episodes (SAME_STEP): there the last observation of the episode. Else None.
        executed: [B] or [B, A], the actions of a person where the extra ``intervened`` says so.
    """

    observation: NDArray[Any]
    reward: NDArray[Any]
    terminated: NDArray[Any]
    truncated: NDArray[Any]
    is_reset: NDArray[Any]
    extras: Mapping[str, NDArray[Any]] = MappingProxyType({})
    final: NDArray[Any] | None = None
    executed: NDArray[Any] | None = None

    @property
    def ignored(self) -> NDArray[Any]:
        """[B] bool, where the environment ignored the action, so that the step does not count."""
        return self.is_reset if self.final is None else np.zeros_like(self.is_reset)

    @property
    def success(self) -> NDArray[Any] | None:
        """Where the episode reached its aim, bool [B]; None if it is unknown."""
        return self.extras.get('success')

    def arrays(self, is_reset: NDArray[Any]) -> Arrays:
        """Return an unroll of this step; ``is_reset`` [B] is of the observation before it."""
        return {'rewards': self.reward[None], 'terminated': self.terminated[None],
                'truncated': self.truncated[None],
                'is_reset': np.stack([is_reset, self.ignored]),
                **{name: values[None] for name, values in self.extras.items()}}
