"""One measurement of bench_env, in a new process.

Arguments: NAME BACKEND NUM_ENVS SECONDS. Prints one JSON object, ``frames_per_s``. An error is a
line.
"""

import contextlib
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

from vdl_ros.envs import dummy, factory
from vdl_ros.envs.checked_vector_env import EnvError

_ACTIONS = 256


class NotInstalledError(EnvError):
    """The library of an environment is not installed; the message has the command."""


def prepare(name: str) -> str:
    """Import the library that registers an environment; return its Gymnasium id.

    A name of Vizdoom means its installed version.
    """
    env_id = name
    if name.startswith(dummy.NAMESPACE):
        dummy.register_dummies(name)
    elif name.startswith(factory.ATARI):
        _import('ale_py', 'pip install ale-py')
    elif name.startswith('Vizdoom'):
        # It depends on pygame-ce, which would overwrite pygame; either works.
        _import('vizdoom.gymnasium_wrapper', 'pip install --no-deps vizdoom')
        env_id = max((known for known in gymnasium.registry if known.startswith(f'{name}-v')),
                     default=name)
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
    # The vector of ale-py is always preprocessed, unlike VDL's games.
    own = gymnasium.registry[env_id].vector_entry_point and not env_id.startswith(factory.ATARI)
    return ('sync', 'async', *(('own',) if own else ()), 'actors')


def make(name: str, backend: str, num_envs: int) -> Any:
    """Return a vector of an environment; not for ``actors``, which is not one process."""
    env_id = prepare(name)
    mode = 'vector_entry_point' if backend == 'own' else backend
    kwargs = {} if backend == 'own' else {'disable_env_checker': True}
    try:
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
    step, count, resetting = env.step, env.num_envs, 0

    def once() -> int:
        nonlocal resetting
        _, _, terminated, truncated, _ = step(next(actions))
        frames = count - resetting
        resetting = int(np.count_nonzero(terminated | truncated))
        return frames
    return once


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


def _measure_actors(name: str, num_envs: int, seconds: float) -> float:
    # Not forked: this process may have threads of the environment's library.
    context = multiprocessing.get_context('spawn')
    ours, processes = [], []
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
    for connection in ours:
        connection.send(None)
    speed = sum(answers())
    for process in processes:
        process.join()
    return speed


def _actor(name: str, copies: int, seconds: float, connection: Connection) -> None:
    """Make a share of the copies, report that, wait for the others, and send the speed."""
    env = make(name, 'own' if 'own' in backends(name) else 'sync', copies)
    once = stepper(env)
    connection.send(None)
    connection.recv()
    connection.send(frames_per_s(once, seconds))
    env.close()


def measure(name: str, backend: str, num_envs: int, seconds: float) -> float:
    if backend == 'actors':
        return _measure_actors(name, num_envs, seconds)
    with contextlib.closing(make(name, backend, num_envs)) as env:
        return frames_per_s(stepper(env), seconds)


def main() -> int:
    name, backend, num_envs, seconds = sys.argv[1:]
    try:
        print(json.dumps(
            {'frames_per_s': measure(name, backend, int(num_envs), float(seconds))}))
    except EnvError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
