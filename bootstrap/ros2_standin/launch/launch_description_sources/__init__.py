"""Sources of launch descriptions: Python launch files."""

from __future__ import annotations

import os
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType

from .._unknown import unknown_attributes
from ..invalid_launch_file_error import InvalidLaunchFileError
from ..launch_description import LaunchDescription
from ..launch_description_source import LaunchDescriptionSource
from ..some_substitutions_type import SomeSubstitutionsType

__all__ = [
    'AnyLaunchDescriptionSource',
    'InvalidPythonLaunchFileError',
    'PythonLaunchDescriptionSource',
    'get_launch_description_from_any_launch_file',
    'get_launch_description_from_python_launch_file',
    'load_python_launch_file_as_module',
]


class InvalidPythonLaunchFileError(Exception):
    """A Python file is not a launch file."""


def load_python_launch_file_as_module(python_launch_file_path: str) -> ModuleType:
    """Execute a launch file as a module of its own, which is not put among the loaded ones."""
    loader = SourceFileLoader('python_launch_file', python_launch_file_path)
    spec = spec_from_loader(loader.name, loader)
    if spec is None:
        raise RuntimeError(f"cannot load '{python_launch_file_path}'")
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def get_launch_description_from_python_launch_file(
    python_launch_file_path: str,
) -> LaunchDescription:
    """Load a Python launch file and have it generate its launch description."""
    module = load_python_launch_file_as_module(python_launch_file_path)
    generate = getattr(module, 'generate_launch_description', None)
    if generate is None:
        raise InvalidPythonLaunchFileError(
            f"launch file at '{python_launch_file_path}' does not contain the required function "
            "'generate_launch_description()'"
        )
    return generate()


def get_launch_description_from_any_launch_file(launch_file_path: str) -> LaunchDescription:
    """Load a launch file, which here has to be a Python one; say so if it is not."""
    extension = os.path.splitext(launch_file_path)[1][1:]
    if extension in ('xml', 'yaml', 'yml'):
        raise InvalidLaunchFileError(
            extension,
            likely_errors=[
                NotImplementedError(
                    f"'{launch_file_path}': this stand-in for the ROS 2 launch system reads "
                    'Python launch files only; XML and YAML need a ROS 2 distribution'
                )
            ],
        )
    try:
        return get_launch_description_from_python_launch_file(launch_file_path)
    except Exception as error:
        raise InvalidLaunchFileError(extension, likely_errors=[error]) from error


class PythonLaunchDescriptionSource(LaunchDescriptionSource):
    """A Python launch file."""

    def __init__(self, launch_file_path: SomeSubstitutionsType) -> None:
        """Keep the path."""
        super().__init__(None, launch_file_path, 'interpreted python launch file')

    def _get_launch_description(self, location: str) -> LaunchDescription:
        return get_launch_description_from_python_launch_file(location)


class AnyLaunchDescriptionSource(LaunchDescriptionSource):
    """A launch file of any kind that can be read, which here means a Python one."""

    def __init__(self, launch_file_path: SomeSubstitutionsType) -> None:
        """Keep the path."""
        super().__init__(None, launch_file_path, 'interpreted launch file')

    def _get_launch_description(self, location: str) -> LaunchDescription:
        return get_launch_description_from_any_launch_file(location)


__getattr__ = unknown_attributes(__name__)
