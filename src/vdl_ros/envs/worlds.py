"""Copies of one world of several bodies, as PettingZoo's parallel API has them, stepped together.

PettingZoo calls a body an agent. Here an agent learns, and has one or several bodies.
"""

import copy
import importlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import DependencyNotInstalled
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from numpy.typing import NDArray

from vdl_ros.common.observation_spaces import number_error
from vdl_ros.common.quoting import quoted
from vdl_ros.envs.canonical_spaces import ObservationError
from vdl_ros.envs.checked_vector_env import (
    CheckedVectorEnv,
    EnvError,
    ResetResult,
    StepResult,
    difference,
    is_number,
    seeds_for,
)


class BodyOutcome(NamedTuple):
    """What a step did to one body in each of W worlds; arrays [W].

    Observations may be a dictionary or tuple of arrays. ``is_lost`` is where the step is none of
    the body's: it was gone before, or the world was reset. ``success`` is ``is_success`` in its
    info, 0 without it.
    """

    observations: Any
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    is_lost: NDArray[np.bool_]
    success: NDArray[np.float32]


class ParallelWorlds:
    """W copies of a world, each with the same bodies.

    Autoreset is NEXT_STEP: the step that leaves a world without bodies, or ends the episodes of
    all, returns their last observations, and the following step ignores the actions and resets
    the world. A body that is gone before the others keeps its last observation, gets no reward,
    and its steps are lost until the world is reset. Bodies without actions act at random.

    Args:
        make: returns a world, with the methods of PettingZoo's ParallelEnv.
        max_episode_steps: steps after which an episode of all bodies is truncated; 0: the
            world's own limit.

    Attributes:
        names: of the bodies, in the order of the world.
        outcomes: by body, what the last step, or the last reset, did to it.
        tells_success: whether an info has had ``is_success``.
    """

    def __init__(
        self, make: Callable[[], Any], num_worlds: int, max_episode_steps: int = 0,
    ) -> None:
        self._worlds = [make() for _ in range(num_worlds)]
        first = self._worlds[0]
        self.num_worlds, self._limit = num_worlds, max_episode_steps or math.inf
        self.names: list[str] = list(map(str, first.possible_agents))
        if not self.names:
            raise EnvError('the world has no body')
        self._keys = dict(zip(self.names, first.possible_agents, strict=True))
        self.metadata: Mapping[str, Any] = getattr(first, 'metadata', {})
        self.observation_spaces: dict[str, gymnasium.Space[Any]] = {
            name: first.observation_space(key) for name, key in self._keys.items()}
        # Copies: they are seeded to draw random actions.
        self.action_spaces: dict[str, gymnasium.Space[Any]] = {
            name: copy.deepcopy(first.action_space(key)) for name, key in self._keys.items()}
        self.outcomes: dict[str, BodyOutcome] = {}
        self.tells_success = False
        self._last: list[dict[str, Any]] = [{} for _ in self._worlds]
        self._steps, self._over = [0] * num_worlds, [False] * num_worlds
        # Of the last reset, until a step.
        self._seed: int | None = None

    def reset(self, seed: int | None = None) -> None:
        """Start an episode in every world.

        Each world gets a seed made from ``seed``; without it the random streams go on. Agents that
        share worlds each reset them: a second reset with the same seed, before any step, does
        nothing.
        """
        if seed is not None and seed == self._seed:
            return
        seeds: list[int | None] = [None] * self.num_worlds
        if seed is not None:
            *of_worlds, of_others = seeds_for(seed, self.num_worlds + 1)
            seeds[:] = of_worlds
            for number, space in enumerate(self.action_spaces.values()):
                space.seed(of_others + number)
        for w, world in enumerate(self._worlds):
            self._reset(w, world, seeds[w])
        self._seed = seed
        self.outcomes = {name: self._lost() for name in self.names}
        self._observe()

    def _reset(self, w: int, world: Any, seed: int | None = None) -> None:
        self._keep(w, world.reset(seed=seed)[0])
        self._steps[w], self._over[w] = 0, False

    def _keep(self, w: int, observations: Mapping[str, Any]) -> None:
        # Copies: a body that is gone keeps its last one, and the world may reuse the array.
        self._last[w].update(copy.deepcopy(dict(observations)))

    def step(self, actions: Mapping[str, NDArray[Any]]) -> None:
        """Step every world by actions [W] or [W, A] of bodies; others act at random."""
        self._seed = None
        self.outcomes = {name: self._lost() for name in self.names}
        for w, world in enumerate(self._worlds):
            live = [] if self._over[w] else list(world.agents)
            if not live:
                self._reset(w, world)
                continue
            observations, rewards, terminated, truncated, infos = world.step({
                key: actions[name][w] if (name := str(key)) in actions
                else self.action_spaces[name].sample() for key in live})
            self._keep(w, observations)
            self._steps[w] += 1
            is_cut = self._steps[w] >= self._limit
            # Some worlds keep the bodies whose episodes have ended.
            self._over[w] = is_cut or all(
                terminated.get(key, False) or truncated.get(key, False) for key in world.agents)
            for key in live:
                outcome = self.outcomes[str(key)]
                outcome.rewards[w] = rewards.get(key, 0.0)
                outcome.terminated[w] = terminated.get(key, False)
                outcome.truncated[w] = truncated.get(key, False) or is_cut
                outcome.is_lost[w] = False
                if is_number(success := (infos.get(key) or {}).get('is_success')):
                    outcome.success[w], self.tells_success = success, True
        self._observe()

    def _lost(self) -> BodyOutcome:
        """Return what a step did to a body that is in no world."""
        count = self.num_worlds
        return BodyOutcome(None, np.zeros(count, np.float32), np.zeros(count, np.bool_),
                           np.zeros(count, np.bool_), np.ones(count, np.bool_),
                           np.zeros(count, np.float32))

    def _observe(self) -> None:
        """Add the latest observations, [W, ...], to the outcomes."""
        for name, key in self._keys.items():
            space = self.observation_spaces[name]
            items = [last[key] if key in last else _zeros(space) for last in self._last]
            for item in items:
                if reason := difference(space, item):
                    raise ObservationError(f' of {name}{reason}')
            out: Any = create_empty_array(space, n=self.num_worlds)
            out = concatenate(space, items, out)
            if isinstance(out, np.ndarray) and (reason := number_error(out)):
                raise ObservationError(f' of {name}: {reason}')
            self.outcomes[name] = self.outcomes[name]._replace(observations=out)

    def render(self) -> tuple[Any, ...] | None:
        images = tuple(world.render() for world in self._worlds)
        return None if images[0] is None else images

    def close(self) -> None:
        while self._worlds:
            self._worlds.pop().close()


def _zeros(space: gymnasium.Space[Any]) -> Any:
    """Return an observation of a body that was not there yet."""
    return next(iter(iterate(batch_space(space, 1), create_empty_array(space, n=1))))


def choose_bodies(bodies: str, names: Sequence[str]) -> list[str]:
    """Return the bodies that the setting ``bodies`` names, in the order of the world; '': all."""
    patterns = [each.strip() for each in bodies.split(',') if each.strip()]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise EnvError(f'bodies: {quoted(pattern)} is none of the bodies '
                           f'{", ".join(names)}')
    return [name for name in names
            if not patterns or any(fnmatchcase(name, each) for each in patterns)]


class BodyVectorEnv(VectorEnv[Any, Any, Any]):
    """B = bodies x worlds sub-environments: the first body in each world, then the second.

    Its bodies have one policy, so they need the same space of actions. Observations that are
    vectors of different lengths are padded with zeros, and a one-hot vector of their kind is
    added, as of PettingZoo's ``pad_observations`` and ``agent_indicator`` (SuperSuit).

    Other agents may have bodies in ``worlds`` too.
    """

    def __init__(self, worlds: ParallelWorlds, names: Sequence[str]) -> None:
        self.worlds, self.names = worlds, list(names)
        self.metadata = dict(worlds.metadata) | {'autoreset_mode': AutoresetMode.NEXT_STEP}
        self.num_envs = len(self.names) * worlds.num_worlds
        actions = {name: worlds.action_spaces[name] for name in self.names}
        self.single_action_space = actions[self.names[0]]
        for name, space in actions.items():
            if space != self.single_action_space:
                raise EnvError(
                    f'bodies: {self.names[0]} with actions {self.single_action_space} and {name} '
                    f'with {space} cannot have one policy: give each kind an agent')
        kinds: list[Any] = []
        for name in self.names:
            if (space := worlds.observation_spaces[name]) not in kinds:
                kinds.append(space)
        # Of bodies of several kinds, the index of each one's kind and the number of kinds.
        self._kinds = None if len(kinds) == 1 else (
            [kinds.index(worlds.observation_spaces[name]) for name in self.names], len(kinds))
        self.single_observation_space = kinds[0] if self._kinds is None else _padded(kinds)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> ResetResult:
        """Start an episode in every world, for all agents in it; ``seed`` is a number or None."""
        self.worlds.reset(seed)
        return self._observations(), {}

    def step(self, actions: Any) -> StepResult:
        self.worlds.step(self.split(actions))
        return self.outcome()

    def split(self, actions: NDArray[Any]) -> Mapping[str, NDArray[Any]]:
        return dict(zip(self.names, np.split(actions, len(self.names)), strict=True))

    def outcome(self) -> StepResult:
        """Return what the last step of the worlds did, as :meth:`step`."""
        found = [self.worlds.outcomes[name] for name in self.names]
        rewards, terminated, truncated, lost, success = (
            np.concatenate(parts) for parts in list(zip(*found, strict=True))[1:])
        return self._observations(), rewards, terminated, truncated, {'is_lost': lost} | (
            {'is_success': success} if self.worlds.tells_success else {})

    def _observations(self) -> Any:
        found = [self.worlds.outcomes[name].observations for name in self.names]
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
        images = self.worlds.render()
        return None if images is None else images * len(self.names)

    def close_extras(self, **kwargs: Any) -> None:
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
    first = batches[0]
    if isinstance(first, Mapping):
        return {key: _joined([each[key] for each in batches]) for key in first}
    if isinstance(first, tuple):
        return tuple(map(_joined, zip(*batches, strict=True)))
    return np.concatenate(batches)


class SharedWorlds:
    """The same worlds as several vector environments, one for each agent, stepped together.

    Reset each of ``views`` with the same seed; step them by :meth:`step` only.
    """

    def __init__(self, views: Sequence[CheckedVectorEnv]) -> None:
        self.views = list(views)
        self._bodies: list[BodyVectorEnv] = [each.unwrapped for each in views]  # type: ignore
        self.worlds: ParallelWorlds = self._bodies[0].worlds
        names = [name for each in self._bodies for name in each.names]
        for name in names:
            if names.count(name) > 1:
                raise EnvError(f'bodies: {name} is of two agents')

    def step(self, actions: Sequence[NDArray[Any]]) -> list[StepResult]:
        """Step the worlds once, by the actions for each of ``views``; others act at random."""
        chosen: dict[str, NDArray[Any]] = {}
        for view, bodies, each in zip(self.views, self._bodies, actions, strict=True):
            chosen |= bodies.split(view.to_environment(each))

        def step() -> list[StepResult]:
            self.worlds.step(chosen)
            return [view.from_environment(bodies.outcome())
                    for view, bodies in zip(self.views, self._bodies, strict=True)]

        return self.views[0].call('step', step)

    def close(self) -> None:
        for view in self.views:
            view.close()


_MPE2 = (
    'collect_treasure_v1', 'simple_adversary_v3', 'simple_crypto_v3', 'simple_formation_v1',
    'simple_line_v1', 'simple_push_v3', 'simple_reference_v3', 'simple_speaker_listener_v4',
    'simple_spread_v3', 'simple_tag_v3', 'simple_v3', 'simple_world_comm_v3')
#: Marks the ids of worlds in Gymnasium's registry.
_WORLDS: dict[str, Callable[..., Any]] = {}


def register_world(env_id: str, parallel_env: Callable[..., Any]) -> None:
    """Add a world to Gymnasium's registry, where ``env_id`` finds it.

    ``parallel_env`` returns an environment of PettingZoo's parallel API; it takes ``render_mode``
    and what users may set with ``env_kwargs``.
    """
    _WORLDS[env_id] = parallel_env
    gymnasium.registry.pop(env_id, None)
    gymnasium.register(env_id, vector_entry_point=partial(_make_vector, env_id))


def is_world(env_id: str) -> bool:
    return env_id in _WORLDS


def make_worlds(
    env_id: str, num_worlds: int, max_episode_steps: int = 0, **kwargs: Any,
) -> ParallelWorlds:
    return ParallelWorlds(partial(_WORLDS[env_id], **kwargs), num_worlds, max_episode_steps)


def _make_vector(
    env_id: str, num_envs: int, max_episode_steps: int = 0, bodies: str = '', **kwargs: Any,
) -> BodyVectorEnv:
    """Return the bodies of a single agent in ``num_envs`` worlds; the others act at random."""
    worlds = make_worlds(env_id, num_envs, max_episode_steps, **kwargs)
    return BodyVectorEnv(worlds, choose_bodies(bodies, worlds.names))


def register_mpe2() -> None:
    """Add the worlds of mpe2, if they are not there; they are imported when one is made."""
    for name in _MPE2:
        if not is_world(f'mpe2/{name}'):
            register_world(f'mpe2/{name}', partial(_make_mpe2, name))


def _make_mpe2(name: str, **kwargs: Any) -> Any:
    # Without pygame's greeting.
    os.environ.setdefault('PYGAME_HIDE_SUPPORT_PROMPT', '1')
    try:
        module = importlib.import_module(f'mpe2.{name}')
    except ModuleNotFoundError as error:
        if error.name not in ('mpe2', 'pettingzoo', 'scipy'):
            raise
        raise DependencyNotInstalled(
            f'{error.name} is not installed: pip install --no-deps mpe2 pettingzoo, or the extra '
            'worlds of vdl_ros') from None
    return module.parallel_env(**kwargs)
