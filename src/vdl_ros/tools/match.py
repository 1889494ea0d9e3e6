"""Let policies play against each other in a world of several bodies: ``ros2 run vdl_ros match``.

Each argument says who acts for which bodies: BODIES=RUN with the folder or checkpoint of a run, or
BODIES=random, where BODIES is a name or a pattern, such as adversary_*. The world is that of the
first run, or without a run that of --env_id. Prints the return of each body.
"""

import argparse
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from vdl_ros.common.command_line import OneLineParser, run_tool, stop_on_signals, whole_number
from vdl_ros.common.files import checkpoint_file, from_here
from vdl_ros.common.settings import SettingError
from vdl_ros.envs import factory
from vdl_ros.envs.checked_vector_env import CheckedVectorEnv
from vdl_ros.envs.env_config import EnvConfig, EnvModulesConfig
from vdl_ros.envs.env_modules import import_modules
from vdl_ros.envs.worlds import BodyVectorEnv, ParallelWorlds, SharedWorlds, choose_bodies
from vdl_ros.play.saved_policy import SavedPolicy, load_policy
from vdl_ros.rl.acting.evaluation import Evaluation, evaluate

_RANDOM, _MAX_WORLDS = 'random', 8
# Returns the actions of one body, [W, ...], for resets and rewards [W] of W worlds.
Player = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True)
class Side:
    """Who acts for ``bodies``, a name or pattern such as adversary_*; None: actions at random."""

    bodies: str
    policy: SavedPolicy | None


class _Match(VectorEnv[Any, Any, Any]):
    """All bodies of W worlds as sub-environments: those of the first world, then the next.

    Players look at the worlds themselves, so there are no observations.
    """

    metadata = {'autoreset_mode': AutoresetMode.NEXT_STEP}

    def __init__(self, shared: SharedWorlds, num_worlds: int) -> None:
        self._shared, self.num_envs = shared, num_worlds * len(shared.views)
        self.single_action_space = spaces.Discrete(1)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[None, dict[str, Any]]:
        for view in self._shared.views:
            view.reset(seed=seed)
        return None, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the worlds; ``actions`` [W, ...] are a list by body."""
        outcomes = self._shared.step(actions)
        rewards, terminated, truncated, lost = (
            np.stack(each, 1).ravel() for each in zip(
                *((*outcome[1:4], outcome[4]['is_lost']) for outcome in outcomes), strict=True))
        return None, rewards, terminated, truncated, {'is_lost': lost}


def play_match(
    config: EnvConfig, sides: Sequence[Side], *, episodes: int, seed: int,
    stop: threading.Event | None = None,
) -> Mapping[str, Evaluation]:
    """Play episodes of a world; return the results of each body.

    Args:
        sides: of each body the first one that fits acts.
        episodes: of the world, divided evenly among its copies.

    Raises:
        ValueError: no such world, a body without side, or a policy of other bodies or worlds.
    """
    names = factory.bodies(config)
    num_worlds = min(_MAX_WORLDS, episodes)
    shared = factory.make_shared(config, seed, [[name] for name in names], num_worlds)
    try:
        torch.manual_seed(seed)
        match = _Match(shared, num_worlds)
        players = [_player(sides, name, shared.worlds, view, seed + number)
                   for number, (name, view) in enumerate(zip(names, shared.views, strict=True))]

        def act(_: object, is_reset: NDArray[Any], rewards: NDArray[Any]) -> Any:
            return [player(is_reset[body::len(names)], rewards[body::len(names)])
                    for body, player in enumerate(players)]

        found = evaluate(match, act, episodes * len(names), seed, stop).episodes
    finally:
        shared.close()
    return {name: Evaluation(tuple(
        each for each in found if each.environment % len(names) == body))
        for body, name in enumerate(names)}


def _player(
    sides: Sequence[Side], name: str, worlds: ParallelWorlds, view: CheckedVectorEnv, seed: int,
) -> Player:
    side = next((each for each in sides if fnmatchcase(name, each.bodies)), None)
    if side is None:
        raise SettingError(f'{name}: nobody acts for this body')
    if side.policy is None:
        view.action_space.seed(seed)
        return lambda is_reset, rewards: np.asarray(view.action_space.sample())
    # The policy sees the body as in its training, where it may have had others too.
    trained = choose_bodies(side.policy.env.bodies, worlds.names)
    if name not in trained:
        raise SettingError(f'{name}: the policy was trained for {", ".join(trained)}')
    env = BodyVectorEnv(worlds, trained)
    seen = CheckedVectorEnv(env, seed, seeds=lambda seeds: seeds[0])
    first = trained.index(name) * worlds.num_worlds
    rows, chosen = slice(first, first + worlds.num_worlds), side.policy.act(deterministic=False)
    return lambda is_reset, rewards: chosen(
        seen.from_environment(env.outcome())[0][rows], is_reset, rewards)


def main(args: Sequence[str] | None = None) -> int:
    parser = OneLineParser(prog='match', description=__doc__,
                           formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add('sides', nargs='+', metavar='BODIES=RUN')
    add('--env_id', default='', metavar='ID', help='the world, if there is no run')
    add('--episodes', type=whole_number(1, 1_000_000), default=100, metavar='N', help='[100]')
    add('--seed', type=whole_number(0, 2**31 - 1000), default=1, metavar='N', help='[1]')
    add('--env_modules', default='', metavar='MODULES',
        help='modules that register worlds, separated by commas')
    options = parser.parse_args(args)
    stop = stop_on_signals()
    torch.set_num_threads(1)

    def play() -> None:
        named = [_named(each) for each in options.sides]
        import_modules(EnvModulesConfig(env_modules=options.env_modules))
        sides = [Side(bodies, None if path is None else load_policy(path))
                 for bodies, path in named]
        worlds = [each.policy.env for each in sides if each.policy is not None]
        worlds += [EnvConfig(env_id=options.env_id)] if options.env_id else []
        if not worlds:
            raise SettingError('--env_id is needed: there is no run that says what world it is')
        for side in sides:
            if side.policy is not None and side.policy.env.env_id != worlds[0].env_id:
                raise SettingError(f'{side.bodies}: {side.policy.env.env_id} is not '
                                   f'{worlds[0].env_id}')
        found = play_match(
            replace(worlds[0], bodies=''), sides, episodes=options.episodes, seed=options.seed,
            stop=stop)
        for name, result in found.items():
            if result.returns:
                print(f'{name}: {len(result.returns)} episodes: mean {result.mean:.2f}, 95 % of '
                      f'the mean +-{result.interval:.2f}, std {result.std:.2f}')

    return run_tool('match', play)


def _named(text: str) -> tuple[str, Path | None]:
    bodies, separator, run = text.partition('=')
    if not bodies or not separator or not run:
        raise SettingError(f'{text!r} is not allowed: BODIES=RUN, or BODIES={_RANDOM}')
    return bodies, None if run == _RANDOM else checkpoint_file(from_here(run))
