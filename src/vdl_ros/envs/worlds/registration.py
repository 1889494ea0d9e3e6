"""
Worlds by id, in Gymnasium's registry beside all other environments.

Those of the package mpe2 are there if it is installed; others by :func:`register_world` in a
module of ``env_modules``.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
from gymnasium.error import DependencyNotInstalled

from vdl_ros.envs.worlds.body_vector_env import BodyVectorEnv, choose_bodies
from vdl_ros.envs.worlds.parallel_worlds import ParallelWorlds

__all__ = ['is_world', 'make_worlds', 'register_mpe2', 'register_world']

_MPE2 = (
    'collect_treasure_v1', 'simple_adversary_v3', 'simple_crypto_v3', 'simple_formation_v1',
    'simple_line_v1', 'simple_push_v3', 'simple_reference_v3', 'simple_speaker_listener_v4',
    'simple_spread_v3', 'simple_tag_v3', 'simple_v3', 'simple_world_comm_v3')
#: Marks the ids of worlds in Gymnasium's registry.
_WORLDS: dict[str, Callable[..., Any]] = {}


def register_world(env_id: str, parallel_env: Callable[..., Any]) -> None:
    """
    Add a world to Gymnasium's registry, where ``env_id`` finds it.

    Args:
        env_id: such as my_package/soccer.
        parallel_env: returns an environment of PettingZoo's parallel API; takes ``render_mode``
            and what users may set with ``env_kwargs``.
    """
    _WORLDS[env_id] = parallel_env
    gymnasium.registry.pop(env_id, None)
    gymnasium.register(env_id, vector_entry_point=partial(_make_vector, env_id))


def is_world(env_id: str) -> bool:
    """Return whether an id is that of a world."""
    return env_id in _WORLDS


def make_worlds(
    env_id: str, num_worlds: int, max_episode_steps: int = 0, **kwargs: Any,
) -> ParallelWorlds:
    """
    Return copies of a world.

    Raises:
        TypeError, ValueError, DependencyNotInstalled: arguments that the world does not take, or
            a package that is missing.
    """
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
