"""
Imports the modules that a user of this host names; they register environments.

Names of environments and wrappers come over the graph, names of modules never do: what comes over
the graph can only choose among what this process has imported.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium

from vdl_ros.common.quoting import cause, quoted
from vdl_ros.common.settings import SettingError
from vdl_ros.envs.env_modules_config import EnvModulesConfig

__all__ = ['WrapperClass', 'import_modules', 'wrappers_of_modules']

WrapperClass = type['gymnasium.Wrapper[object, object, object, object]']

_NAME = re.compile(r'[^\W\d]\w*(\.[^\W\d]\w*)*')
_imported: list[str] = []


def import_modules(config: EnvModulesConfig) -> None:
    """
    Import the modules; only with names that a user of this host gave to this process.

    Raises:
        SettingError: a name that is not allowed, or a module that cannot be imported: its name
            and the cause in one line.
    """
    for name in filter(None, map(str.strip, config.env_modules.split(','))):
        if not _NAME.fullmatch(name):
            raise SettingError(f'env_modules: {quoted(name)} is not allowed: names of modules, '
                               'such as my_package.envs, separated by commas')
        try:
            importlib.import_module(name)
        # A module that ends the process, too.
        except (Exception, SystemExit) as error:
            raise SettingError(
                f'env_modules: {name!r} cannot be imported: {_reason(name, error)}') from error
        if name not in _imported:
            _imported.append(name)


def wrappers_of_modules() -> Iterator[tuple[str, WrapperClass]]:
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
        return cause(error)
    here = Path(f'{top}.py').is_file() or Path(top).is_dir()
    return f'{error}; ' + ('it is in this folder: export PYTHONPATH=$PWD:$PYTHONPATH' if here else
                           'install it, or add its folder to PYTHONPATH')
