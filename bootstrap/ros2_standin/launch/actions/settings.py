"""Actions on launch configurations and on the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..action import Action
from ..launch_context import LaunchContext
from ..some_substitutions_type import SomeSubstitutionsType
from ..utilities import normalize_to_list_of_substitutions, perform_substitutions
from ..utilities.type_utils import normalize_typed_substitution, perform_typed_substitution


class _Named(Action):
    """Base class of actions on something that has a name."""

    def __init__(self, name: SomeSubstitutionsType, **kwargs: Any) -> None:
        """Keep the name."""
        super().__init__(**kwargs)
        self.name = normalize_to_list_of_substitutions(name)


class _Valued(_Named):
    """Base class of actions that give a value to something that has a name."""

    def __init__(
        self, name: SomeSubstitutionsType, value: SomeSubstitutionsType, **kwargs: Any
    ) -> None:
        """Keep the name and the value."""
        super().__init__(name, **kwargs)
        self.value = normalize_to_list_of_substitutions(value)


class SetLaunchConfiguration(_Valued):
    """Sets a launch configuration."""

    def execute(self, context: LaunchContext) -> None:
        """Set it."""
        value = perform_substitutions(context, self.value)
        context.launch_configurations[perform_substitutions(context, self.name)] = value


class UnsetLaunchConfiguration(_Named):
    """Removes a launch configuration, if it is set."""

    def execute(self, context: LaunchContext) -> None:
        """Remove it."""
        context.launch_configurations.pop(perform_substitutions(context, self.name), None)


class PushLaunchConfigurations(Action):
    """Begins a scope of launch configurations."""

    def execute(self, context: LaunchContext) -> None:
        """Remember the configurations."""
        context._push_launch_configurations()


class PopLaunchConfigurations(Action):
    """Ends a scope of launch configurations."""

    def execute(self, context: LaunchContext) -> None:
        """Go back to what was remembered."""
        context._pop_launch_configurations()


class ResetLaunchConfigurations(Action):
    """Removes all launch configurations but the ones that are given."""

    def __init__(
        self,
        launch_configurations: Mapping[SomeSubstitutionsType, SomeSubstitutionsType] | None = None,
        **kwargs: Any,
    ) -> None:
        """Keep the configurations to set."""
        super().__init__(**kwargs)
        self._kept = [
            (normalize_to_list_of_substitutions(name), normalize_to_list_of_substitutions(value))
            for name, value in (launch_configurations or {}).items()
        ]

    def execute(self, context: LaunchContext) -> None:
        """Work the given ones out, which may refer to the others, and then remove the others."""
        kept = {
            perform_substitutions(context, name): perform_substitutions(context, value)
            for name, value in self._kept
        }
        context.launch_configurations.clear()
        context.launch_configurations.update(kept)


class SetEnvironmentVariable(_Valued):
    """Sets an environment variable."""

    def execute(self, context: LaunchContext) -> None:
        """Set it."""
        value = perform_substitutions(context, self.value)
        context.environment[perform_substitutions(context, self.name)] = value


class AppendEnvironmentVariable(_Valued):
    """Puts a value after, or before, what an environment variable has."""

    def __init__(
        self,
        name: SomeSubstitutionsType,
        value: SomeSubstitutionsType,
        prepend: bool | SomeSubstitutionsType = False,
        separator: SomeSubstitutionsType = os.pathsep,
        **kwargs: Any,
    ) -> None:
        """Keep the name, the value, and where and how it is put there."""
        super().__init__(name, value, **kwargs)
        self.prepend = normalize_typed_substitution(prepend, bool)
        self.separator = normalize_to_list_of_substitutions(separator)

    def execute(self, context: LaunchContext) -> None:
        """Extend the variable, or set it if it is not set."""
        name = perform_substitutions(context, self.name)
        parts = [perform_substitutions(context, self.value)]
        if name in context.environment:
            parts.insert(0, context.environment[name])
        if perform_typed_substitution(context, self.prepend, bool):
            parts.reverse()
        context.environment[name] = perform_substitutions(context, self.separator).join(parts)


class UnsetEnvironmentVariable(_Named):
    """Removes an environment variable, if it is set."""

    def execute(self, context: LaunchContext) -> None:
        """Remove it."""
        context.environment.pop(perform_substitutions(context, self.name), None)


class PushEnvironment(Action):
    """Begins a scope of the environment."""

    def execute(self, context: LaunchContext) -> None:
        """Remember the environment."""
        context._push_environment()


class PopEnvironment(Action):
    """Ends a scope of the environment."""

    def execute(self, context: LaunchContext) -> None:
        """Go back to what was remembered."""
        context._pop_environment()


class ResetEnvironment(Action):
    """Goes back to the environment that the launch began with."""

    def execute(self, context: LaunchContext) -> None:
        """Go back."""
        context._reset_environment()
