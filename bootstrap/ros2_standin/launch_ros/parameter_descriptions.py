"""Parameters of a node that need more than a plain value to describe them."""

from __future__ import annotations

import atexit
import functools
import os
import tempfile
from pathlib import Path
from typing import Any

import yaml
from launch._unknown import unknown_attributes
from launch.launch_context import LaunchContext
from launch.some_substitutions_type import SomeSubstitutionsType
from launch.substitutions import SubstitutionFailure
from launch.utilities import (
    ensure_argument_type,
    normalize_to_list_of_substitutions,
    perform_substitutions,
)
from launch.utilities.type_utils import normalize_typed_substitution, perform_typed_substitution

__all__ = ['Parameter', 'ParameterFile', 'ParameterValue']


class ParameterValue:
    """A value that is to have a certain type, or the one that YAML gives it."""

    def __init__(self, value: Any, *, value_type: Any = None) -> None:
        """Keep the value and the type, for example `str` or `List[int]`."""
        self.value = normalize_typed_substitution(value, value_type)
        self.value_type = value_type

    def __str__(self) -> str:
        """Give the value and the type."""
        return (
            f'launch_ros.description.ParameterValue(value={self.value}, '
            f'value_type={self.value_type})'
        )

    def evaluate(self, context: LaunchContext) -> Any:
        """Work the value out."""
        return perform_typed_substitution(context, self.value, self.value_type)


class Parameter:
    """A parameter that is given to a node on its command line."""

    def __init__(self, name: SomeSubstitutionsType, value: Any, *, value_type: Any = None) -> None:
        """Keep the name and the value."""
        self.name = normalize_to_list_of_substitutions(name)
        self._parameter_value = ParameterValue(value, value_type=value_type)

    @property
    def value(self) -> Any:
        """The value, not worked out."""
        return self._parameter_value.value

    @property
    def value_type(self) -> Any:
        """The type that the value is to have."""
        return self._parameter_value.value_type

    def __str__(self) -> str:
        """Give the name, the value and the type."""
        return (
            f'launch_ros.description.Parameter(name={self.name}, value={self.value}, '
            f'value_type={self.value_type})'
        )

    def evaluate(self, context: LaunchContext) -> tuple[str, Any]:
        """Work the name and the value out."""
        return (
            perform_substitutions(context, self.name),
            self._parameter_value.evaluate(context),
        )


class ParameterFile:
    """A YAML file of parameters; with `allow_substs` the `$(...)` in it are worked out."""

    def __init__(
        self,
        param_file: SomeSubstitutionsType | os.PathLike | bytes,
        *,
        allow_substs: bool | SomeSubstitutionsType = False,
    ) -> None:
        """Keep the path."""
        self.param_file: Any = param_file
        if isinstance(param_file, bytes):
            self.param_file = os.fsdecode(param_file)
        elif not isinstance(param_file, os.PathLike):
            self.param_file = normalize_to_list_of_substitutions(param_file)
        ensure_argument_type(allow_substs, bool, 'allow_subst', 'ParameterFile()')
        self.allow_substs = allow_substs

    def __str__(self) -> str:
        """Give the path."""
        return (
            f'launch_ros.description.ParameterFile(param_file={self.param_file}, '
            f'allow_substs={self.allow_substs})'
        )

    def evaluate(self, context: LaunchContext) -> Path:
        """Give the path of the file, or that of a copy with the substitutions worked out."""
        path = self.param_file
        if isinstance(path, list):
            path = perform_substitutions(context, path)
        if not self.allow_substs:
            return Path(path)
        from .utilities.substitution_text import parse_substitution

        template = parse_substitution(Path(path).read_text(encoding='utf-8'))
        text = perform_substitutions(context, template)
        try:
            yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise SubstitutionFailure(
                f"The substituted parameter file '{path}' is not a valid yaml file: {error}"
            ) from error
        return write_temporary_file(text)


def write_temporary_file(text: str) -> Path:
    """Write a parameter file that is there until the launch ends."""
    handle, path = tempfile.mkstemp(prefix='launch_params_', dir=_temporary_directory())
    with open(handle, 'w', encoding='utf-8') as file:
        file.write(text)
    return Path(path)


@functools.cache
def _temporary_directory() -> str:
    directory: Any | None = tempfile.TemporaryDirectory(prefix='launch_params_')
    assert directory is not None
    atexit.register(directory.cleanup)
    return directory.name


__getattr__ = unknown_attributes(__name__)
