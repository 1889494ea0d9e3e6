"""Worlds in which several agents act, each for its own bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from vdl_ros.envs.checked_vector_env import CheckedVectorEnv, EnvError, Outcome
from vdl_ros.envs.worlds.body_vector_env import BodyVectorEnv
from vdl_ros.envs.worlds.parallel_worlds import ParallelWorlds

__all__ = ['SharedWorlds']


class SharedWorlds:
    """
    The same worlds as several vector environments, one for each agent, stepped together.

    Attributes:
        views: vector environments, one for each agent. Reset each with the same seed; step them
            by :meth:`step` only.
        worlds: the worlds.
    """

    def __init__(self, views: Sequence[CheckedVectorEnv]) -> None:
        """
        Take vector environments of bodies in the same worlds.

        Raises:
            EnvError: a body of two agents.
        """
        self.views = list(views)
        self._bodies: list[BodyVectorEnv] = [each.unwrapped for each in views]  # type: ignore
        self.worlds: ParallelWorlds = self._bodies[0].worlds
        names = [name for each in self._bodies for name in each.names]
        for name in names:
            if names.count(name) > 1:
                raise EnvError(f'bodies: {name} is of two agents')

    def step(self, actions: Sequence[NDArray[Any]]) -> list[Outcome]:
        """
        Step the worlds once; bodies of no agent act at random.

        Args:
            actions: of each agent, as its vector environment takes them.

        Returns:
            For each agent what its vector environment returns.

        Raises:
            EnvError: actions that do not fit the action space.
        """
        chosen: dict[str, NDArray[Any]] = {}
        for view, bodies, each in zip(self.views, self._bodies, actions, strict=True):
            chosen |= bodies.split(view.to_environment(each))
        self.worlds.step(chosen)
        return [view.from_environment(bodies.outcome())
                for view, bodies in zip(self.views, self._bodies, strict=True)]

    def close(self) -> None:
        """Close the worlds."""
        for view in self.views:
            view.close()
