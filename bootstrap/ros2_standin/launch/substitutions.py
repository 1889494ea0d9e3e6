"""Substitutions: texts, launch configurations, environment variables and paths."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from ._missing import missing_names
from ._substitution import (
    SomeSubstitutionsType,
    Substitution,
    TextSubstitution,
    describe,
    normalize,
    perform,
)
from .launch_context import LaunchContext

__all__ = [
    'EnvironmentVariable', 'LaunchConfiguration', 'PathJoinSubstitution', 'SubstitutionFailure',
    'TextSubstitution',
]


class SubstitutionFailure(RuntimeError):  # noqa: N818 (the name in the real package)
    """A substitution has no text."""


class LaunchConfiguration(Substitution):
    """Value of a launch configuration, which a launch argument or an action sets."""

    def __init__(self, variable_name: SomeSubstitutionsType, *, default: Any = None) -> None:
        self.variable_name = normalize(variable_name)
        if isinstance(default, (bool, int, float)):
            default = str(default)
        self._default = None if default is None else normalize(default)

    def describe(self) -> str:
        """Return the name."""
        return f'LaunchConfig({describe(self.variable_name)})'

    def perform(self, context: LaunchContext) -> str:
        """Return the value; raises SubstitutionFailure if there is none."""
        name = perform(context, self.variable_name)
        if name in context.launch_configurations:
            return context.launch_configurations[name]
        if self._default is None:
            raise SubstitutionFailure(f"launch configuration '{name}' does not exist")
        return perform(context, self._default)


class EnvironmentVariable(Substitution):
    """Value of an environment variable."""

    def __init__(
        self, name: SomeSubstitutionsType, *, default_value: SomeSubstitutionsType | None = None,
    ) -> None:
        self.name = normalize(name)
        self.default_value = None if default_value is None else normalize(default_value)

    def describe(self) -> str:
        """Return the name."""
        return f'EnvVar({describe(self.name)})'

    def perform(self, context: LaunchContext) -> str:
        """Return the value; raises SubstitutionFailure if there is none."""
        name = perform(context, self.name)
        if name in context.environment:
            return context.environment[name]
        if self.default_value is None:
            raise SubstitutionFailure(f"environment variable '{name}' does not exist")
        return perform(context, self.default_value)


class PathJoinSubstitution(Substitution):
    """Path of several parts."""

    def __init__(self, substitutions: Iterable[str | Substitution]) -> None:
        self.substitutions = normalize(substitutions)

    def describe(self) -> str:
        """Return the parts."""
        return f"PathJoin('{describe(self.substitutions)}')"

    def perform(self, context: LaunchContext) -> str:
        """Return the path."""
        return os.path.join(*(each.perform(context) for each in self.substitutions))


__getattr__ = missing_names(__name__)
