"""Substitutions: texts, launch configurations, environment variables and paths."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from ._core import (
    LaunchContext,
    SomeSubstitutionsType,
    Substitution,
    TextSubstitution,  # noqa: F401 (launch files import it from here)
    describe,
    normalize,
    perform,
)


class SubstitutionFailure(RuntimeError):  # noqa: N818 (the name in the real package)
    """A substitution has no text."""


class LaunchConfiguration(Substitution):
    """Value of a launch configuration, which a launch argument or an action sets."""

    _kind, _title = 'launch configuration', 'LaunchConfig'

    def __init__(self, variable_name: SomeSubstitutionsType, *, default: Any = None) -> None:
        self.variable_name = normalize(variable_name)
        if isinstance(default, (bool, int, float)):
            default = str(default)
        self._default = None if default is None else normalize(default)

    def describe(self) -> str:
        return f'{self._title}({describe(self.variable_name)})'

    def perform(self, context: LaunchContext) -> str:
        """Return the value; raises SubstitutionFailure if there is none."""
        name, values = perform(context, self.variable_name), self._values(context)
        if name in values:
            return values[name]
        if self._default is None:
            raise SubstitutionFailure(f"{self._kind} '{name}' does not exist")
        return perform(context, self._default)

    def _values(self, context: LaunchContext) -> Mapping[str, str]:
        return context.launch_configurations


class EnvironmentVariable(LaunchConfiguration):
    """Value of an environment variable."""

    _kind, _title = 'environment variable', 'EnvVar'

    def __init__(
        self, name: SomeSubstitutionsType, *, default_value: SomeSubstitutionsType | None = None,
    ) -> None:
        super().__init__(name, default=default_value)

    def _values(self, context: LaunchContext) -> Mapping[str, str]:
        return context.environment


class PathJoinSubstitution(Substitution):
    """Path of several parts."""

    def __init__(self, substitutions: Iterable[str | Substitution]) -> None:
        self.substitutions = normalize(substitutions)

    def describe(self) -> str:
        return f"PathJoin('{describe(self.substitutions)}')"

    def perform(self, context: LaunchContext) -> str:
        return os.path.join(*(each.perform(context) for each in self.substitutions))
