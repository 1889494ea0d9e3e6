"""Sources of launch descriptions: Python launch files."""

import os
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any

from ._core import ADVICE, LaunchContext, SomeSubstitutionsType, normalize, perform


class InvalidLaunchFileError(Exception):
    """A launch file cannot be loaded."""


class PythonLaunchDescriptionSource:
    """A Python launch file."""

    def __init__(self, launch_file_path: SomeSubstitutionsType) -> None:
        self._path = normalize(launch_file_path)
        self._description: Any = None

    def get_launch_description(self, context: LaunchContext) -> Any:
        """Return the LaunchDescription of the file, which is loaded once."""
        if self._description is None:
            self._description = _load(perform(context, self._path))
        return self._description

    def try_get_launch_description_without_context(self) -> Any:
        try:
            return self.get_launch_description(LaunchContext())
        except Exception:
            return None


def _load(path: str) -> Any:
    try:
        if os.path.splitext(path)[1] in ('.xml', '.yaml', '.yml'):
            raise NotImplementedError(f'a launch file in XML or YAML {ADVICE}')
        loader = SourceFileLoader('python_launch_file', path)
        module = module_from_spec(spec_from_loader(loader.name, loader))  # type: ignore[arg-type]
        loader.exec_module(module)
        if not hasattr(module, 'generate_launch_description'):
            raise AttributeError('there is no function generate_launch_description()')
        return module.generate_launch_description()
    except Exception as error:
        missing = 'unexpected keyword argument' in str(error) or (
            isinstance(error, ImportError) and str(error.name).startswith('launch'))
        raise InvalidLaunchFileError(f'{path}: {type(error).__name__}: {error}' + (
            f'; it {ADVICE}' if missing else '')) from error
