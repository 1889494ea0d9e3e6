"""The modules with environments that a user names, and the arguments and wrappers of those.

Names of environments and wrappers come over the graph, names of modules never do: what comes over
the graph can only choose among what this process has imported.
"""

import importlib
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import gymnasium
import gymnasium.wrappers

from vdl_ros.common.opengl import refuse_unusable_backend
from vdl_ros.common.quoting import cause, quoted, text_of
from vdl_ros.common.settings import SettingError, suggestion
from vdl_ros.envs.checked_vector_env import EnvError, check_memory
from vdl_ros.envs.env_config import EnvModulesConfig
from vdl_ros.envs.foreign import ForeignCall, foreign_errors

Wrapped: TypeAlias = 'gymnasium.Wrapper[Any, Any, Any, Any]'

_NAME = re.compile(r'[^\W\d]\w*(\.[^\W\d]\w*)*')
_imported: list[str] = []


def import_modules(config: EnvModulesConfig) -> None:
    """Import the modules; only with names that a user of this host gave to this process.

    Raises:
        SettingError: a name that is not allowed, or a module that cannot be imported: its name
            and the cause in one line.
    """
    refuse_unusable_backend()  # before a module, or later an environment, imports MuJoCo
    for name in filter(None, map(str.strip, config.env_modules.split(','))):
        if not _NAME.fullmatch(name):
            raise SettingError(f'env_modules: {quoted(name)} is not allowed: names of modules, '
                               'such as my_package.envs, separated by commas')
        try:
            with ForeignCall(f'env_modules: {name!r}', 'being imported'):
                importlib.import_module(name)
        except foreign_errors() as error:
            raise SettingError(f'env_modules: {name!r} cannot be imported: '
                               f'{_reason(name, error)}{version_hint(error)}') from error
        if name not in _imported:
            _imported.append(name)


def imported_modules() -> list[str]:
    return list(_imported)


def version_hint(error: BaseException) -> str:
    """Return the end of a line about an error that other versions of packages may not raise."""
    # Of a name that a later version has not any more.
    is_due = isinstance(error, ImportError | AttributeError) and not isinstance(
        error, ModuleNotFoundError)
    return '; if it needs other versions of packages: docs/environments.md#versions' if (
        is_due) else ''


def wrappers_of_modules() -> Iterator[tuple[str, type[Wrapped]]]:
    """Yield the wrappers that the imported modules and their submodules define, by full name."""
    for name, module in list(sys.modules.items()):
        if not any(name == each or name.startswith(f'{each}.') for each in _imported):
            continue
        for found in list(getattr(module, '__dict__', {}).values()):
            # Those that a module only imports are not its own: RecordVideo writes files.
            if isinstance(found, type) and issubclass(found, gymnasium.Wrapper) \
                    and found.__module__ == name and not found.__name__.startswith('_'):
                yield f'{name}.{found.__name__}', found


def _reason(name: str, error: BaseException) -> str:
    """Return why a module was not imported, with what helps if it was not found."""
    top = name.partition('.')[0]
    if not isinstance(error, ModuleNotFoundError) or error.name not in (name, top):
        hint = '; it calls rclpy.init(), as this node does: its own nodes need a context of ' \
               'their own' if 'Context.init() must' in text_of(error) else ''
        return f'{cause(error)}{hint}'
    here = Path(f'{top}.py').is_file() or Path(top).is_dir()
    return f'{text_of(error)}; ' + (
        'it is in this folder: export PYTHONPATH=$PWD:$PYTHONPATH' if here else
        'install it, or add its folder to PYTHONPATH')


# Characters of a setting, and levels of nesting.
_MAX_CHARACTERS = 8192
_MAX_DEPTH = 8
# Arguments of gymnasium.make and make_vec, which are not the environment's own.
_RESERVED = frozenset({
    'additional_wrappers', 'disable_env_checker', 'id', 'max_episode_steps', 'num_envs',
    'render_mode', 'vector_kwargs', 'vectorization_mode', 'wrappers'})
_WRAPPERS = ('names separated by commas, or a JSON list such as ' '["A", {"B": {"argument": 1}}]')


def parse_kwargs(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    found = _read('env_kwargs', text, 'a JSON object such as {"size": 5}')
    if not isinstance(found, dict):
        raise EnvError(f'env_kwargs: {quoted(text)} is not allowed: a JSON object such as '
                       '{"size": 5}')
    for name in found:
        if name in _RESERVED:
            raise EnvError(f'env_kwargs: {name!r} is not allowed: the program sets it; '
                           'see time_limit, num_envs and env_wrappers')
    return found


def parse_wrappers(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Return name and arguments of each wrapper in ``env_wrappers``, innermost first."""
    text = text.strip()
    if not text.startswith(('[', '{', '"')):
        return [(name, {}) for each in text.split(',') if (name := each.strip())]
    found = _read('env_wrappers', text, _WRAPPERS)
    result: list[tuple[str, dict[str, Any]]] = []
    for each in found if isinstance(found, list) else [found]:
        if isinstance(each, str):
            result.append((each, {}))
        elif isinstance(each, dict) and all(isinstance(more, dict) for more in each.values()):
            result += each.items()
        else:
            raise EnvError(f'env_wrappers: {quoted(each)} is not allowed: {_WRAPPERS}')
    return result


def _read(name: str, text: str, allowed: str) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    if len(text) > _MAX_CHARACTERS:
        raise EnvError(f'{name}: {len(text)} characters are not allowed: at most '
                       f'{_MAX_CHARACTERS}')
    try:
        found = json.loads(text, parse_constant=refuse)
    # The parser calls itself for each level of nesting.
    except (ValueError, RecursionError) as error:
        raise EnvError(f'{name}: {quoted(text)} is not allowed: {allowed}') from error
    if any(depth >= _MAX_DEPTH and isinstance(each, dict | list) for depth, each in _walk(found)):
        raise EnvError(f'{name}: {quoted(text)} is not allowed: nested at most {_MAX_DEPTH} times')
    return found


def _walk(value: Any, depth: int = 0) -> Iterator[tuple[int, Any]]:
    """Yield all values in plain data with their depth, the outer ones first."""
    yield depth, value
    inner = value.values() if isinstance(value, dict) else value
    for each in inner if isinstance(value, dict | list) else ():
        yield from _walk(each, depth + 1)


OF_GYMNASIUM = (
    'ClipAction', 'ClipReward', 'DelayObservation', 'DiscretizeAction', 'FilterObservation',
    'FlattenObservation', 'FrameStackObservation', 'GrayscaleObservation',
    'MaxAndSkipObservation', 'RepeatAction', 'RescaleAction', 'RescaleObservation',
    'ReshapeObservation', 'ResizeObservation', 'StickyAction', 'TimeAwareObservation')
# Of the numbers in their arguments: with it, none of them makes an observation that fills the
# memory before its size is checked.
_MAX_ARGUMENT = 256


def make_wrappers(text: str, num_envs: int) -> list[Callable[[gymnasium.Env[Any, Any]], Wrapped]]:
    """Return functions that wrap each of ``num_envs`` environments, innermost first.

    They raise an EnvError if the wrapper refuses the environment or the arguments.
    """
    found = parse_wrappers(text)
    names = [name for name, _ in found]
    for name, arguments in found:
        if name not in OF_GYMNASIUM:
            continue
        if names.count(name) > 1:
            raise EnvError(f'env_wrappers: {name} is named twice')
        for _, value in _walk(arguments):
            if isinstance(value, int | float) and abs(value) > _MAX_ARGUMENT:
                raise EnvError(f'env_wrappers: {name}: {quoted(value)} is not allowed: at most '
                               f'{_MAX_ARGUMENT}')
    return [partial(_wrap, name, _find(name), arguments, num_envs) for name, arguments in found]


def _find(name: str) -> type[Wrapped]:
    """Return a wrapper by its name, with or without its module; import nothing."""
    if name in OF_GYMNASIUM:
        found: type[Wrapped] = getattr(gymnasium.wrappers, name)
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
    except foreign_errors() as error:
        raise EnvError(f'env_wrappers: {name}: {cause(error)}') from error
    space = wrapped.observation_space
    if isinstance(space, gymnasium.spaces.Box):
        check_memory(num_envs, math.prod(space.shape) * space.dtype.itemsize)
    return wrapped
