"""Actors whose environments are stepped together, such as those of agents in one world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from vdl_ros.rl.acting.actor import Actor

__all__ = ['SharedActors', 'StepTogether']

#: Takes the actions of each actor, and returns what a vector environment returns for each.
StepTogether = Callable[[Sequence[NDArray[Any]]], Sequence[tuple[Any, ...]]]


class SharedActors:
    """
    Steps several actors at once; each records unrolls of its own length.

    Attributes:
        actors: one for each agent, with a part of the environments.
    """

    def __init__(self, actors: Sequence[Actor], step_together: StepTogether) -> None:
        """Step the environments of all ``actors`` by ``step_together``."""
        self.actors = list(actors)
        self._step_together = step_together

    def step(self) -> list[int]:
        """Step once; return the indices of the actors with T steps, to be finished now."""
        actions = [actor.begin_step() for actor in self.actors]
        outcomes = self._step_together(actions)
        complete = [actor.end_step(outcome)
                    for actor, outcome in zip(self.actors, outcomes, strict=True)]
        return [index for index, each in enumerate(complete) if each]
