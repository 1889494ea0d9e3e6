"""Copies of an environment in processes that do not wait for each other, as in actors.

AsyncVectorEnv has a process for each copy, and its step waits for the slowest one. Here each core
has a process, with a share of the copies in one vector.
"""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.env.backends import backends, make
from benchmarks.env.stepping import frames_per_s, memory, settle, stepper
from vdl_ros.envs.checked_vector_env import EnvError

__all__ = ['measure_actors', 'shares']


def shares(num_envs: int, cores: int) -> list[int]:
    """Return the number of copies of each process: as equal as possible, at least 1."""
    count = min(num_envs, cores)
    return [num_envs // count + (index < num_envs % count) for index in range(count)]


def measure_actors(name: str, num_envs: int, seconds: float) -> tuple[float, float]:
    """Return frames per second of all processes, and bytes of memory for each copy.

    Raises:
        EnvError: a process failed.
    """
    # Not forked: this process may have threads of the environment's library.
    context = multiprocessing.get_context('spawn')
    parts = shares(num_envs, len(os.sched_getaffinity(0)))
    pairs = [context.Pipe() for _ in parts]
    processes = [
        context.Process(target=_actor, args=(name, part, seconds, theirs), daemon=True)
        for part, (_, theirs) in zip(parts, pairs, strict=True)]
    before = memory()
    for process in processes:
        process.start()
    for _, theirs in pairs:
        theirs.close()
    ours = [pair[0] for pair in pairs]
    _gather(name, ours)
    each = (memory() - before) / num_envs
    for connection in ours:
        connection.send(None)
    speed = sum(_gather(name, ours))
    for process in processes:
        process.join()
    return speed, each


def _gather(name: str, connections: list[Connection]) -> list[Any]:
    """Return an answer of each process; EnvError if one ended."""
    answers = []
    for connection in connections:
        try:
            answers.append(connection.recv())
        except EOFError:
            raise EnvError(f'{name} by actors: a process has ended') from None
    return answers


def _actor(name: str, copies: int, seconds: float, connection: Connection) -> None:
    """Make a share of the copies, report that, wait for the others, and send the speed."""
    env = make(name, 'own' if 'own' in backends(name) else 'sync', copies)
    settle(env)
    once = stepper(env)
    connection.send(None)
    connection.recv()
    connection.send(frames_per_s(once, seconds))
    env.close()
