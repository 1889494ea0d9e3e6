"""One measurement of bench_env, in a new process, since memory is measured as well.

Arguments: NAME BACKEND NUM_ENVS SECONDS. Prints one JSON object: ``frames_per_s``;
``memory_first_bytes``, the memory of the first copy with its library, and ``memory_bytes``, that
of each further copy; ``observation``; ``backends``; or ``missing`` or ``error``, a line each.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np
from gymnasium import spaces

from benchmarks.env.actors import measure_actors
from benchmarks.env.backends import NotInstalledError, backends, make, prepare
from benchmarks.env.stepping import frames_per_s, is_vector, memory, settle, stepper
from vdl_ros.envs.checked_vector_env import EnvError

__all__ = ['leaves', 'measure']

# Many copies, since memory grows by pages.
_MOST_COPIES = 64
_FEWEST_COPIES = 4


def leaves(space: spaces.Space[Any], name: str = '') -> list[dict[str, Any]]:
    """Return name, shape, dtype, elements and bytes of every array in an observation."""
    if isinstance(space, spaces.Dict):
        return [leaf for key, part in space.spaces.items() for leaf in leaves(part, str(key))]
    if isinstance(space, spaces.Tuple):
        return [leaf for number, part in enumerate(space.spaces)
                for leaf in leaves(part, str(number))]
    if space.shape is None or space.dtype is None:
        raise EnvError(f'observations: {type(space).__name__} has no size')
    elements = int(np.prod(space.shape, dtype=np.int64))
    return [{'name': name, 'shape': list(space.shape), 'dtype': str(space.dtype),
             'elements': elements, 'bytes': elements * space.dtype.itemsize}]


def measure(name: str, backend: str, num_envs: int, seconds: float) -> dict[str, Any]:
    """Return the JSON object without ``missing`` and ``error``.

    Raises:
        EnvError: it cannot be measured.
    """
    empty = memory()
    prepare(name)
    first = make(name, 'single', 1)
    made = [first]
    try:
        settle(first)
        one = memory()
        if backend == 'actors':
            speed, each = measure_actors(name, num_envs, seconds)
        elif backend == 'single':
            until = time.perf_counter() + seconds
            while len(made) <= _FEWEST_COPIES or (
                    len(made) <= _MOST_COPIES and time.perf_counter() < until):
                made.append(make(name, 'single', 1))
                settle(made[-1])
            each = (memory() - one) / (len(made) - 1)
            speed = frames_per_s(stepper(first), seconds)
        else:
            made.append(make(name, backend, num_envs))
            settle(made[-1])
            each = (memory() - one) / num_envs
            speed = frames_per_s(stepper(made[-1]), seconds)
        return {
            'frames_per_s': speed, 'memory_bytes': max(each, 0.0),
            'memory_first_bytes': one - empty,
            'observation': leaves(first.single_observation_space if is_vector(first)
                                  else first.observation_space),
            'backends': list(backends(name)),
        }
    finally:
        for env in made:
            env.close()


def main() -> int:
    """Measure, and print the object."""
    name, backend, num_envs, seconds = sys.argv[1:]
    # Libraries may print; only the object belongs on standard output.
    output = os.fdopen(os.dup(1), 'w')
    os.dup2(2, 1)
    try:
        result = measure(name, backend, int(num_envs), float(seconds))
    except NotInstalledError as error:
        result = {'missing': str(error)}
    except EnvError as error:
        result = {'error': str(error)}
    print(json.dumps(result), file=output, flush=True)
    return 0
