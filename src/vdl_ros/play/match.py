"""A match: policies of several runs, and random actions, for the bodies of one world."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from vdl_ros.common.settings import SettingError
from vdl_ros.envs import factory
from vdl_ros.envs.checked_vector_env import CheckedVectorEnv
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.worlds import BodyVectorEnv, ParallelWorlds, choose_bodies
from vdl_ros.play.saved_policy import SavedPolicy
from vdl_ros.rl.acting.actor import EnvStepper
from vdl_ros.rl.acting.evaluation import Evaluation
from vdl_ros.rl.data.episode_returns import EpisodeCounter, FinishedEpisode

__all__ = ['Side', 'play_match']


@dataclass(frozen=True)
class Side:
    """Who acts for some bodies.

    Attributes:
        bodies: name or pattern, such as adversary_*.
        policy: None: actions at random.
    """

    bodies: str
    policy: SavedPolicy | None


class _Player(Protocol):
    """Chooses the actions of one body in W worlds."""

    def __call__(
        self, is_reset: NDArray[np.bool_], rewards: NDArray[Any],
    ) -> NDArray[Any]:
        """Return actions [W, ...]."""


class _Random:
    """Actions at random."""

    def __init__(self, view: CheckedVectorEnv, seed: int) -> None:
        self._space = view.action_space
        self._space.seed(seed)

    def __call__(self, is_reset: NDArray[np.bool_], rewards: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(self._space.sample())


class _Trained:
    """A policy that sees a body as it did in its training, where it may have had others too."""

    def __init__(
        self, policy: SavedPolicy, worlds: ParallelWorlds, name: str, seed: int,
        *, deterministic: bool,
    ) -> None:
        trained = choose_bodies(policy.env.bodies, worlds.names)
        if name not in trained:
            raise SettingError(f'{name}: the policy was trained for {", ".join(trained)}')
        self._env = BodyVectorEnv(worlds, trained)
        self._view = CheckedVectorEnv(self._env, seed, seeds=lambda seeds: seeds[0])
        first = trained.index(name) * worlds.num_worlds
        self._rows = slice(first, first + worlds.num_worlds)
        self._act = policy.act(deterministic)

    def __call__(self, is_reset: NDArray[np.bool_], rewards: NDArray[Any]) -> NDArray[Any]:
        observations = self._view.from_environment(self._env.outcome())[0][self._rows]
        return self._act(observations, is_reset, rewards)


def play_match(
    config: EnvConfig, sides: Sequence[Side], *, episodes: int, seed: int, num_worlds: int = 8,
    deterministic: bool = False, stop: threading.Event | None = None,
) -> Mapping[str, Evaluation]:
    """Play episodes of a world; return the results of each body.

    Args:
        sides: of each body the first one that fits acts.
        episodes: of the world, divided evenly among ``num_worlds``.
        deterministic: whether policies take their most likely actions.

    Raises:
        ValueError: a world that cannot be created, a body without side, or a policy of other
            bodies or of another world.
    """
    names = factory.bodies(config)
    num_worlds = min(num_worlds, episodes)
    shared = factory.make_shared(config, seed, [[name] for name in names], num_worlds)
    try:
        torch.manual_seed(seed)
        steppers = [EnvStepper(view, seed) for view in shared.views]
        players = [_player(sides, name, shared.worlds, view, seed + number, deterministic)
                   for number, (name, view) in enumerate(zip(names, shared.views, strict=True))]
        counters = [EpisodeCounter(num_worlds) for _ in names]
        shares = np.full((len(names), num_worlds), episodes // num_worlds)
        shares[:, :episodes % num_worlds] += 1
        counted: list[list[FinishedEpisode]] = [[] for _ in names]
        rewards: list[NDArray[Any]] = [np.zeros(num_worlds) for _ in names]
        while shares.any() and not (stop and stop.is_set()):
            before = [stepper.is_reset for stepper in steppers]
            outcomes = shared.step([
                stepper.clip(player(stepper.is_reset, reward))
                for stepper, player, reward in zip(steppers, players, rewards, strict=True)])
            for body, (stepper, outcome) in enumerate(zip(steppers, outcomes, strict=True)):
                step = stepper.record(outcome)
                rewards[body] = step.reward
                for episode in counters[body].add(step.arrays(before[body])):
                    if shares[body, episode.environment]:
                        shares[body, episode.environment] -= 1
                        counted[body].append(episode)
    finally:
        shared.close()
    return {name: Evaluation(tuple(each)) for name, each in zip(names, counted, strict=True)}


def _player(
    sides: Sequence[Side], name: str, worlds: ParallelWorlds, view: CheckedVectorEnv, seed: int,
    deterministic: bool,
) -> _Player:
    side = next((each for each in sides if fnmatchcase(name, each.bodies)), None)
    if side is None:
        raise SettingError(f'{name}: nobody acts for this body')
    if side.policy is None:
        return _Random(view, seed)
    return _Trained(side.policy, worlds, name, seed, deterministic=deterministic)
