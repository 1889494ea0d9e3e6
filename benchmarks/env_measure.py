"""One measurement of bench_env, in a new process, since memory is measured as well.

Arguments: NAME BACKEND NUM_ENVS SECONDS. Prints one JSON object: ``frames_per_s``;
``memory_bytes`` of each copy but the first; ``observation_bytes``. An error is a line.
"""

import itertools
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import gymnasium
import numpy as np
import psutil
from gymnasium import spaces

from vdl_ros.envs import dummy, factory
from vdl_ros.envs.atari import make_atari
from vdl_ros.envs.checked_vector_env import CheckedVectorEnv, EnvError
from vdl_ros.envs.env_config import EnvConfig

BREAKOUT = 'ALE/Breakout-v5'
# Suffix for the preprocessing of actors: grey, shrunk, four frames. Without it, raw as VDL's.
PREPROCESSED = ':84x84x4'
_ACTIONS = 256
# Steps before memory is measured, and the limit of their time.
_FIRST_STEPS, _FIRST_SECONDS = 20, 0.2
# Copies of a single environment; many, since memory grows by pages.
_FEWEST_COPIES, _MOST_COPIES = 4, 64


class NotInstalledError(EnvError):
    """The library of an environment is not installed; the message has the command."""


def prepare(name: str) -> str:
    """Import the library that registers an environment; return its Gymnasium id.

    Args:
        name: a Gymnasium id, which may end in ``PREPROCESSED`` for a game; a name of Vizdoom means
            its installed version.
    """
    env_id = name.removesuffix(PREPROCESSED)
    if env_id.startswith(dummy.NAMESPACE):
        dummy.register_dummies(env_id)
    elif env_id.startswith(factory.ATARI):
        _import('ale_py', 'pip install ale-py')
    elif env_id.startswith('Vizdoom'):
        # It depends on pygame-ce, which would overwrite pygame; either works.
        _import('vizdoom.gymnasium_wrapper', 'pip install --no-deps vizdoom')
        env_id = max((known for known in gymnasium.registry if known.startswith(f'{env_id}-v')),
                     default=env_id)
    if name.endswith(PREPROCESSED) and not env_id.startswith(factory.ATARI):
        raise EnvError(f'--env: {name} is not allowed: {PREPROCESSED} is for games of {BREAKOUT}')
    if env_id not in gymnasium.registry:
        raise EnvError(f'--env: no environment {name!r}')
    if str(gymnasium.registry[env_id].entry_point).startswith('gymnasium.envs.mujoco'):
        _import('mujoco', 'pip install mujoco, or make setup')
    return env_id


def _import(module: str, command: str) -> None:
    try:
        __import__(module)
    except ImportError:
        raise NotInstalledError(command) from None


def backends(name: str) -> tuple[str, ...]:
    """Return the back ends that step many copies of an environment.

    ``sync``: Gymnasium's SyncVectorEnv; ``async``: its AsyncVectorEnv, a process each; ``own``:
    the environment's own vectorised version, one thread; ``actors``: a process for each core, each
    with a share of the copies in one vector, which do not wait for each other, as actors of this
    package.
    """
    env_id = prepare(name)
    if name.endswith(PREPROCESSED):
        return 'own', 'actors'
    # The vector of ale-py is always preprocessed.
    own = gymnasium.registry[env_id].vector_entry_point and not env_id.startswith(factory.ATARI)
    return ('sync', 'async', *(('own',) if own else ()), 'actors')


def make(name: str, backend: str, num_envs: int) -> Any:
    """Return a vector of an environment, or for ``single`` one environment.

    Not for ``actors``, which is not one process. A preprocessed game has no single version: it is
    a vector of one.
    """
    env_id = prepare(name)
    if name.endswith(PREPROCESSED):
        count = 1 if backend == 'single' else num_envs
        return CheckedVectorEnv(make_atari(EnvConfig(env_id=env_id), count), seed=0)
    mode = 'vector_entry_point' if backend == 'own' else backend
    kwargs = {} if backend == 'own' else {'disable_env_checker': True}
    try:
        if backend == 'single':
            return gymnasium.make(env_id, **kwargs)
        return gymnasium.make_vec(env_id, num_envs, vectorization_mode=mode, **kwargs)
    except (gymnasium.error.Error, ImportError, RuntimeError, TypeError, ValueError) as error:
        raise EnvError(f'{name} by {backend}: {" ".join(str(error).split())}') from error


def stepper(env: Any) -> Callable[[], int]:
    """Reset ``env``, and return a function that steps it once and returns the number of frames.

    Random actions are sampled beforehand, which takes longer than a step of CartPole. An automatic
    reset takes time but is no frame.
    """
    env.action_space.seed(0)
    actions: Iterator[Any] = itertools.cycle([env.action_space.sample() for _ in range(_ACTIONS)])
    env.reset(seed=0)
    step = env.step
    if not hasattr(env, 'num_envs'):
        def once() -> int:
            _, _, terminated, truncated, _ = step(next(actions))
            if terminated or truncated:
                env.reset()
            return 1
        return once
    count, resetting = env.num_envs, 0

    def together() -> int:
        nonlocal resetting
        _, _, terminated, truncated, _ = step(next(actions))
        frames = count - resetting
        resetting = int(np.count_nonzero(terminated | truncated))
        return frames
    return together


def frames_per_s(
    once: Callable[[], int], seconds: float, clock: Callable[[], float] = time.perf_counter, *,
    warm_up: float = 0.1,
) -> float:
    """Return frames per second of ``clock``, in s.

    Args:
        seconds: of the measurement at least.
        warm_up: share of ``seconds`` before it.
    """
    for share in (warm_up, 1.0):
        frames, began = 0, clock()
        while (spent := clock() - began) < share * seconds or not frames:
            frames += once()
    return frames / spent


def settled(name: str, backend: str, num_envs: int) -> Any:
    """Return an environment after a few steps, so that it has allocated its memory."""
    env = make(name, backend, num_envs)
    once = stepper(env)
    until = time.perf_counter() + _FIRST_SECONDS
    for _ in range(_FIRST_STEPS):
        once()
        if time.perf_counter() > until:
            break
    return env


def memory() -> int:
    """Return the resident bytes of this process and the unshared ones of its children."""
    process = psutil.Process()
    return int(process.memory_info().rss + sum(
        child.memory_full_info().uss for child in process.children(recursive=True)))


def size(space: spaces.Space[Any]) -> int:
    """Return the bytes of an observation."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return sum(map(size, parts))
    if space.shape is None or space.dtype is None:
        raise EnvError(f'observations: {type(space).__name__} has no size')
    return int(np.prod(space.shape, dtype=np.int64)) * space.dtype.itemsize


def _measure_actors(name: str, num_envs: int, seconds: float) -> tuple[float, float]:
    """Return frames per second of all processes, and bytes of memory for each copy."""
    # Not forked: this process may have threads of the environment's library.
    context = multiprocessing.get_context('spawn')
    before, ours, processes = memory(), [], []
    count = min(num_envs, len(os.sched_getaffinity(0)))
    for index in range(count):
        our, their = context.Pipe()
        share = num_envs // count + (index < num_envs % count)
        processes.append(
            context.Process(target=_actor, args=(name, share, seconds, their), daemon=True))
        processes[-1].start()
        their.close()
        ours.append(our)

    def answers() -> list[Any]:
        try:
            return [connection.recv() for connection in ours]
        except EOFError:
            raise EnvError(f'{name} by actors: a process has ended') from None

    answers()
    each = (memory() - before) / num_envs
    for connection in ours:
        connection.send(None)
    speed = sum(answers())
    for process in processes:
        process.join()
    return speed, each


def _actor(name: str, copies: int, seconds: float, connection: Connection) -> None:
    """Make a share of the copies, report that, wait for the others, and send the speed."""
    env = settled(name, 'own' if 'own' in backends(name) else 'sync', copies)
    once = stepper(env)
    connection.send(None)
    connection.recv()
    connection.send(frames_per_s(once, seconds))
    env.close()


def measure(name: str, backend: str, num_envs: int, seconds: float) -> dict[str, Any]:
    """Return the JSON object."""
    made = [settled(name, 'single', 1)]
    try:
        one = memory()
        if backend == 'actors':
            speed, each = _measure_actors(name, num_envs, seconds)
        elif backend == 'single':
            until = time.perf_counter() + seconds
            while len(made) <= _FEWEST_COPIES or (
                    len(made) <= _MOST_COPIES and time.perf_counter() < until):
                made.append(settled(name, 'single', 1))
            each = (memory() - one) / (len(made) - 1)
            speed = frames_per_s(stepper(made[0]), seconds)
        else:
            made.append(settled(name, backend, num_envs))
            each = (memory() - one) / num_envs
            speed = frames_per_s(stepper(made[-1]), seconds)
        space = getattr(made[0], 'single_observation_space', made[0].observation_space)
        return {'frames_per_s': speed, 'memory_bytes': max(each, 0.0),
                'observation_bytes': size(space)}
    finally:
        for env in made:
            env.close()


def main() -> int:
    """Measure, and print the object."""
    name, backend, num_envs, seconds = sys.argv[1:]
    try:
        print(json.dumps(measure(name, backend, int(num_envs), float(seconds))))
    except EnvError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
