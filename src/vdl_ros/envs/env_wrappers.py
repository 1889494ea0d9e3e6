"""
Wrappers of environments by name: some of Gymnasium's, and those of the modules of this host.

Names and arguments may come from other hosts. So of Gymnasium's wrappers only those can be named
that compute, without files, windows or functions as arguments, and only with small numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import gymnasium
import gymnasium.wrappers

from vdl_ros.common.quoting import cause, quoted
from vdl_ros.common.settings import suggestion
from vdl_ros.envs.checked_vector_env import EnvError, check_memory
from vdl_ros.envs.env_arguments import parse_wrappers
from vdl_ros.envs.env_modules import WrapperClass, wrappers_of_modules

Wrapped: TypeAlias = 'gymnasium.Wrapper[Any, Any, Any, Any]'

__all__ = ['OF_GYMNASIUM', 'make_wrappers']

OF_GYMNASIUM = (
    'ClipAction', 'ClipReward', 'DelayObservation', 'DiscretizeAction', 'FilterObservation',
    'FlattenObservation', 'FrameStackObservation', 'GrayscaleObservation',
    'MaxAndSkipObservation', 'RepeatAction', 'RescaleAction', 'RescaleObservation',
    'ReshapeObservation', 'ResizeObservation', 'StickyAction', 'TimeAwareObservation')
# Of the numbers in their arguments: with it, none of them makes an observation that fills the
# memory before its size is checked.
_LARGEST = 256


def make_wrappers(
    text: str, num_envs: int,
) -> list[Callable[[gymnasium.Env[Any, Any]], Wrapped]]:
    """
    Return functions that wrap an environment, innermost first.

    Args:
        text: the setting ``env_wrappers``.
        num_envs: number of environments that will be wrapped.

    Raises:
        EnvError: an unknown wrapper, or arguments that are not allowed. The functions raise it
            if the wrapper refuses the environment or the arguments.
    """
    found = parse_wrappers(text)
    names = [name for name, _ in found]
    for name, arguments in found:
        if name not in OF_GYMNASIUM:
            continue
        if names.count(name) > 1:
            raise EnvError(f'env_wrappers: {name} is named twice')
        for number in _numbers(arguments):
            if abs(number) > _LARGEST:
                raise EnvError(f'env_wrappers: {name}: {quoted(number)} is not allowed: at most '
                               f'{_LARGEST}')
    return [partial(_wrap, name, _find(name), arguments, num_envs) for name, arguments in found]


def _find(name: str) -> WrapperClass:
    """Return a wrapper by its name, with or without its module; import nothing."""
    if name in OF_GYMNASIUM:
        found: WrapperClass = getattr(gymnasium.wrappers, name)
        return found
    known = dict(wrappers_of_modules())
    fitting = [full for full, each in known.items() if name in (full, each.__name__)]
    if len(fitting) > 1:
        raise EnvError(f'env_wrappers: {name!r} is not unique: {", ".join(sorted(fitting))}')
    if not fitting:
        among = [*OF_GYMNASIUM, *known, *(each.__name__ for each in known.values())]
        raise EnvError(f'env_wrappers: no wrapper {quoted(name)} in the env_modules of this host, '
                       f"or among Gymnasium's that may be named{suggestion(name, among)}")
    return known[fitting[0]]


def _wrap(
    name: str, wrapper: Any, arguments: dict[str, Any], num_envs: int,
    env: gymnasium.Env[Any, Any],
) -> Wrapped:
    try:
        wrapped: Wrapped = wrapper(
            env, **{key: tuple(value) if isinstance(value, list) else value
                    for key, value in arguments.items()})
    # Their code may raise anything; Gymnasium's asserts.
    except Exception as error:
        raise EnvError(f'env_wrappers: {name}: {cause(error)}') from error
    space = wrapped.observation_space
    if isinstance(space, gymnasium.spaces.Box):
        check_memory(num_envs, math.prod(space.shape) * space.dtype.itemsize)
    return wrapped


def _numbers(value: Any) -> Iterator[int | float]:
    """Yield the numbers in plain data."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _numbers(each)
    elif isinstance(value, int | float):
        yield value
