"""The bodies of one agent, in one or several copies of a world, as a vector environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from vdl_ros.common.quoting import quoted
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.worlds.parallel_worlds import ParallelWorlds

__all__ = ['BodyVectorEnv', 'choose_bodies']


def choose_bodies(bodies: str, names: Sequence[str]) -> list[str]:
    """
    Return the bodies that the setting ``bodies`` names, in the order of the world; '': all.

    Raises:
        EnvError: a name or pattern that fits no body.
    """
    patterns = [each.strip() for each in bodies.split(',') if each.strip()]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise EnvError(f'bodies: {quoted(pattern)} is none of the bodies '
                           f'{", ".join(names)}')
    return [name for name in names
            if not patterns or any(fnmatchcase(name, each) for each in patterns)]


class BodyVectorEnv(VectorEnv[Any, Any, Any]):
    """
    B = bodies x worlds sub-environments: the first body in each world, then the second.

    Its bodies have one policy, so they need the same space of actions. Observations that are
    vectors of different lengths are padded with zeros, and a one-hot vector of their kind is
    added, as of PettingZoo's ``pad_observations`` and ``agent_indicator`` (SuperSuit).

    Attributes:
        worlds: where the bodies are; other agents may have bodies there too.
        names: of the bodies.
    """

    def __init__(self, worlds: ParallelWorlds, names: Sequence[str]) -> None:
        """
        Act for the bodies ``names``.

        Raises:
            EnvError: bodies that cannot have one policy.
        """
        self.worlds, self.names = worlds, list(names)
        self.metadata = dict(worlds.metadata) | {'autoreset_mode': AutoresetMode.NEXT_STEP}
        self.num_envs = len(self.names) * worlds.num_worlds
        actions = {name: worlds.action_space(name) for name in self.names}
        self.single_action_space = actions[self.names[0]]
        for name, space in actions.items():
            if space != self.single_action_space:
                raise EnvError(
                    f'bodies: {self.names[0]} with actions {self.single_action_space} and {name} '
                    f'with {space} cannot have one policy: give each kind an agent')
        kinds: list[Any] = []
        for name in self.names:
            if (space := worlds.observation_space(name)) not in kinds:
                kinds.append(space)
        # Of bodies of several kinds, the index of each one's kind and the number of kinds.
        self._kinds = None if len(kinds) == 1 else (
            [kinds.index(worlds.observation_space(name)) for name in self.names], len(kinds))
        self.single_observation_space = kinds[0] if self._kinds is None else _padded(kinds)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every world, for all agents in it; ``seed`` is a number or None."""
        assert not isinstance(seed, list)
        self.worlds.reset(seed)
        return self._observations(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the worlds; bodies of other agents act at random."""
        self.worlds.step(self.split(actions))
        return self.outcome()

    def split(self, actions: NDArray[Any]) -> Mapping[str, NDArray[Any]]:
        """Return actions [B, ...] by body."""
        return dict(zip(self.names, np.split(actions, len(self.names)), strict=True))

    def outcome(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Return what the last step of the worlds did, as :meth:`step`."""
        found = [self.worlds.outcome(name) for name in self.names]
        rewards, terminated, truncated, lost = (
            np.concatenate(parts) for parts in list(zip(*found, strict=True))[1:])
        return self._observations(), rewards, terminated, truncated, {'is_lost': lost}

    def _observations(self) -> Any:
        """Return the observations of all bodies, [B, ...]."""
        found = [self.worlds.outcome(name).observations for name in self.names]
        if self._kinds is None:
            return _joined(found)
        kinds, count = self._kinds
        num_worlds = self.worlds.num_worlds
        size = self.single_observation_space.shape[0]  # type: ignore[index]
        rows = np.zeros((self.num_envs, size), np.float32)
        for number, (each, kind) in enumerate(zip(found, kinds, strict=True)):
            part = rows[number * num_worlds:(number + 1) * num_worlds]
            part[:, :each.shape[1]] = each
            part[:, kind - count] = 1.0
        return rows

    def render(self) -> tuple[Any, ...] | None:
        """Return for each body the image of its world; None without rendering."""
        images = self.worlds.render()
        return None if images is None else images * len(self.names)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the worlds."""
        self.worlds.close()


def _padded(kinds: Sequence[Any]) -> spaces.Box:
    """Return the space for observations of several kinds, with a one-hot vector of the kind."""
    for space in kinds:
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise EnvError(f'bodies: observations {kinds[0]} and {space} cannot be those of one '
                           'policy: give each kind an agent')
    size = max(space.shape[0] for space in kinds) + len(kinds)
    return spaces.Box(-np.inf, np.inf, (size,), np.float32)


def _joined(batches: Sequence[Any]) -> Any:
    """Return batches of observations of one space as one batch."""
    first = batches[0]
    if isinstance(first, Mapping):
        return {key: _joined([each[key] for each in batches]) for key in first}
    if isinstance(first, tuple):
        return tuple(map(_joined, zip(*batches, strict=True)))
    return np.concatenate(batches)
