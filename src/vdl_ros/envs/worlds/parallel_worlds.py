"""
Copies of one world of several bodies, as PettingZoo's parallel API has them, stepped together.

PettingZoo calls a body an agent. Here an agent learns, and has one or several bodies.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from numpy.typing import NDArray

from vdl_ros.envs.checked_vector_env import EnvError, seeds_for

__all__ = ['BodyOutcome', 'ParallelWorlds']


class BodyOutcome(NamedTuple):
    """
    What a step did to one body in each of W worlds.

    Attributes:
        observations: [W, ...], or a dictionary or tuple of such.
        rewards: [W] float32.
        terminated: [W] bool.
        truncated: [W] bool.
        is_lost: [W] bool, where the step is none of the body's: it was gone before, or the world
            was reset.
    """

    observations: Any
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    is_lost: NDArray[np.bool_]


class ParallelWorlds:
    """
    W copies of a world, each with the same bodies.

    Autoreset is NEXT_STEP: the step that leaves a world without bodies returns their last
    observations, and the following step ignores the actions and resets the world. A body that is
    gone before the others keeps its last observation, gets no reward, and its steps are lost
    until the world is reset. Bodies without actions act at random.

    Attributes:
        names: of the bodies, in the order of the world.
        num_worlds: W.
        metadata: of the world.
    """

    def __init__(
        self, make: Callable[[], Any], num_worlds: int, max_episode_steps: int = 0,
    ) -> None:
        """
        Create the worlds.

        Args:
            make: returns a world, with the methods of PettingZoo's ParallelEnv.
            num_worlds: W.
            max_episode_steps: steps after which an episode of all bodies is truncated; 0: the
                world's own limit.

        Raises:
            EnvError: a world without bodies.
        """
        self._worlds = [make() for _ in range(num_worlds)]
        first = self._worlds[0]
        self.num_worlds, self._limit = num_worlds, max_episode_steps
        self.names: list[str] = list(map(str, first.possible_agents))
        if not self.names:
            raise EnvError('the world has no body')
        self._keys = dict(zip(self.names, first.possible_agents, strict=True))
        self.metadata: Mapping[str, Any] = getattr(first, 'metadata', {})
        self._observation_spaces: dict[str, gymnasium.Space[Any]] = {
            name: first.observation_space(key) for name, key in self._keys.items()}
        # Copies: they are seeded to draw random actions.
        self._action_spaces: dict[str, gymnasium.Space[Any]] = {
            name: copy.deepcopy(first.action_space(key)) for name, key in self._keys.items()}
        self._outcomes: dict[str, BodyOutcome] = {}
        self._last: list[dict[str, Any]] = [{} for _ in self._worlds]
        self._steps = [0] * num_worlds
        # Whether the limit has ended the episode of a world.
        self._is_over = [False] * num_worlds
        # Of the last reset, until a step.
        self._seed: int | None = None

    def observation_space(self, name: str) -> gymnasium.Space[Any]:
        """Return the space of the observations of a body."""
        return self._observation_spaces[name]

    def action_space(self, name: str) -> gymnasium.Space[Any]:
        """Return the space of the actions of a body."""
        return self._action_spaces[name]

    def outcome(self, name: str) -> BodyOutcome:
        """Return what the last step, or the last reset, did to a body."""
        return self._outcomes[name]

    def reset(self, seed: int | None = None) -> None:
        """
        Start an episode in every world.

        Agents that share worlds each reset them: a second reset with the same seed, before any
        step, does nothing.

        Args:
            seed: from which each world gets its own; None: the random streams go on.
        """
        if seed is not None and seed == self._seed:
            return
        seeds: list[int | None] = [None] * self.num_worlds
        if seed is not None:
            *of_worlds, of_others = seeds_for(seed, self.num_worlds + 1)
            seeds[:] = of_worlds
            for number, space in enumerate(self._action_spaces.values()):
                space.seed(of_others + number)
        for w, world in enumerate(self._worlds):
            self._reset(w, world, seeds[w])
        self._seed = seed
        nothing: list[set[str]] = [set() for _ in self._worlds]
        self._collect([{}] * self.num_worlds, nothing, nothing, nothing)

    def _reset(self, w: int, world: Any, seed: int | None = None) -> None:
        self._last[w].update(world.reset(seed=seed)[0])
        self._steps[w], self._is_over[w] = 0, False

    def step(self, actions: Mapping[str, NDArray[Any]]) -> None:
        """
        Step every world once.

        Args:
            actions: [W] or [W, A], by the names of bodies; the others act at random.
        """
        self._seed = None
        rewards: list[Mapping[Any, float]] = []
        lived, terminated, truncated = [], [], []
        for w, world in enumerate(self._worlds):
            live = [] if self._is_over[w] else list(world.agents)
            if not live:
                self._reset(w, world)
                found: tuple[Any, ...] = ({}, {}, {}, {})
            else:
                found = world.step({
                    key: actions[name][w] if (name := str(key)) in actions
                    else self._action_spaces[name].sample() for key in live})
                self._last[w].update(found[0])
                self._steps[w] += 1
            self._is_over[w] = bool(self._limit) and self._steps[w] >= self._limit
            over = set(live) if self._is_over[w] else set()
            rewards.append(found[1])
            lived.append(set(live))
            terminated.append({key for key, value in found[2].items() if value})
            truncated.append({key for key, value in found[3].items() if value} | over)
        self._collect(rewards, lived, terminated, truncated)

    def _collect(
        self, rewards: Sequence[Mapping[Any, float]], lived: Sequence[set[Any]],
        terminated: Sequence[set[Any]], truncated: Sequence[set[Any]],
    ) -> None:
        """Keep the outcome of a step by body."""
        for name, key in self._keys.items():
            is_alive = np.array([key in each for each in lived])
            ends = [np.array([key in each for each in flags]) & is_alive
                    for flags in (terminated, truncated)]
            got = np.array([each.get(key, 0.0) for each in rewards], np.float32)
            self._outcomes[name] = BodyOutcome(
                self._observe(name, key), np.where(is_alive, got, np.float32(0.0)),
                ends[0], ends[1], ~is_alive)

    def _observe(self, name: str, key: Any) -> Any:
        """Return the latest observations of a body, [W, ...]."""
        space = self._observation_spaces[name]
        items = [last[key] if key in last else _zeros(space) for last in self._last]
        out: Any = create_empty_array(space, n=self.num_worlds)
        return concatenate(space, items, out)

    def render(self) -> tuple[Any, ...] | None:
        """Return an image of each world; None without rendering."""
        images = tuple(world.render() for world in self._worlds)
        return None if images[0] is None else images

    def close(self) -> None:
        """Close the worlds, once."""
        while self._worlds:
            self._worlds.pop().close()


def _zeros(space: gymnasium.Space[Any]) -> Any:
    """Return an observation of a body that was not there yet."""
    return next(iter(iterate(batch_space(space, 1), create_empty_array(space, n=1))))
