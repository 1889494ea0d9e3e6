"""Environments of bench_env, and the back ends that step many copies of one."""

from __future__ import annotations

import os
from typing import Any

import gymnasium

from vdl_ros.envs import dummy, factory
from vdl_ros.envs.atari import RAW_SIZE, make_atari
from vdl_ros.envs.checked_vector_env import CheckedVectorEnv, EnvError
from vdl_ros.envs.env_config import EnvConfig

__all__ = ['PREPROCESSED', 'NotInstalledError', 'backends', 'make', 'prepare']

BREAKOUT = 'ALE/Breakout-v5'
# Suffix for the preprocessing of actors: grey, shrunk, four frames. Without it, raw as VDL's.
PREPROCESSED = ':84x84x4'


class NotInstalledError(EnvError):
    """The library of an environment is not installed; the message has the command."""


def prepare(name: str) -> str:
    """Import the library that registers an environment; return its Gymnasium id.

    Args:
        name: a Gymnasium id, which may end in ``PREPROCESSED`` for a game; a name of Vizdoom means
            its installed version.

    Raises:
        NotInstalledError: its library is missing.
        EnvError: there is no such environment.
    """
    env_id = name.removesuffix(PREPROCESSED)
    if env_id.startswith(dummy.NAMESPACE):
        dummy.register_dummies(env_id)
    elif env_id.startswith(factory.ATARI):
        try:
            import ale_py  # noqa: F401
        except ImportError:
            raise NotInstalledError('pip install ale-py') from None
    elif env_id.startswith('Vizdoom'):
        try:
            import vizdoom.gymnasium_wrapper  # noqa: F401
        except ImportError:
            # It depends on pygame-ce, which would overwrite pygame; either works.
            raise NotInstalledError('pip install --no-deps vizdoom') from None
        versions = [known for known in gymnasium.registry if known.startswith(f'{env_id}-v')]
        env_id = max(versions, default=env_id)
    if name.endswith(PREPROCESSED) and not env_id.startswith(factory.ATARI):
        raise EnvError(f'--env: {name} is not allowed: {PREPROCESSED} is for games of {BREAKOUT}')
    if env_id not in gymnasium.registry:
        raise EnvError(f'--env: no environment {name!r}')
    if str(gymnasium.registry[env_id].entry_point).startswith('gymnasium.envs.mujoco'):
        try:
            import mujoco  # noqa: F401
        except ImportError:
            raise NotInstalledError('pip install mujoco, or make setup') from None
    return env_id


def backends(name: str) -> tuple[str, ...]:
    """Return the back ends that step many copies of a prepared environment.

    ``sync``: Gymnasium's SyncVectorEnv; ``async``: its AsyncVectorEnv, a process each; ``own``:
    the environment's own vectorised version, one thread; ``own-threads``: a thread for each core;
    ``actors``: see ``env/actors.py``.
    """
    env_id = prepare(name)
    if name.endswith(PREPROCESSED):
        return 'own', 'own-threads', 'actors'
    own: tuple[str, ...] = ()
    if gymnasium.registry[env_id].vector_entry_point is not None:
        own = ('own', 'own-threads') if env_id.startswith(factory.ATARI) else ('own',)
    return ('sync', 'async', *own, 'actors')


def make(name: str, backend: str, num_envs: int) -> Any:
    """Return a vector of a prepared environment, or for ``single`` one environment.

    Not for ``actors``, which is not one process. A preprocessed game has no single version: it is
    a vector of one.

    Raises:
        EnvError: it cannot be made; one line.
    """
    env_id = prepare(name)
    threads = len(os.sched_getaffinity(0)) if backend == 'own-threads' else 1
    if name.endswith(PREPROCESSED):
        count = 1 if backend == 'single' else num_envs
        return CheckedVectorEnv(
            make_atari(EnvConfig(env_id=env_id), count, num_threads=threads), seed=0)
    try:
        if backend == 'single':
            return gymnasium.make(env_id, disable_env_checker=True)
        if backend in ('sync', 'async'):
            return gymnasium.make_vec(
                env_id, num_envs, vectorization_mode=backend, disable_env_checker=True)
        if env_id.startswith(factory.ATARI):
            return _raw_atari(env_id, num_envs, threads)
        return gymnasium.make_vec(env_id, num_envs, vectorization_mode='vector_entry_point')
    except (gymnasium.error.Error, ImportError, RuntimeError, TypeError, ValueError) as error:
        raise EnvError(f'{name} by {backend}: {" ".join(str(error).split())}') from error


def _raw_atari(env_id: str, num_envs: int, threads: int) -> Any:
    """Return ale-py's vector with the colour pictures and settings of the single environment."""
    from ale_py.vector_env import AtariVectorEnv

    height, width = RAW_SIZE
    game = gymnasium.registry[env_id].kwargs
    return AtariVectorEnv(
        game['game'], num_envs, num_threads=threads, img_height=height, img_width=width,
        grayscale=False, stack_num=1, maxpool=False, noop_max=0, use_fire_reset=False,
        reward_clipping=False, frameskip=game['frameskip'],
        repeat_action_probability=game['repeat_action_probability'])
