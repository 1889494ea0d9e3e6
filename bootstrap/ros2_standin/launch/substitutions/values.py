"""Substitutions for texts, launch configurations, paths and what is made of them."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from typing import Any

from ..launch_context import LaunchContext
from ..some_substitutions_type import SomeSubstitutionsType
from ..substitution import Substitution
from ..utilities import normalize_to_list_of_substitutions, perform_substitutions


class SubstitutionFailure(RuntimeError):  # noqa: N818 (the name in the real package)
    """A substitution cannot be worked out."""


def describe_all(substitutions: Iterable[Substitution], separator: str = ' + ') -> str:
    """Describe substitutions in a row."""
    return separator.join(substitution.describe() for substitution in substitutions)


def normalize_default(default: Any) -> list[Substitution] | None:
    """Turn a default value, which may be a number or a bool, into substitutions; keep None."""
    if default is None:
        return None
    items = default if isinstance(default, Iterable) else [default]
    if isinstance(items, str):
        items = [items]
    return normalize_to_list_of_substitutions(
        [item if isinstance(item, (str, Substitution)) else str(item) for item in items]
    )


class TextSubstitution(Substitution):
    """A text as it is."""

    def __init__(self, *, text: str) -> None:
        """Keep the text."""
        if not isinstance(text, str):
            raise TypeError(f"TextSubstitution expected Text object got '{type(text)}' instead.")
        self.text = text

    def describe(self) -> str:
        """Give the text in quotes."""
        return f"'{self.text}'"

    def perform(self, context: LaunchContext) -> str:
        """Give the text."""
        return self.text


class LaunchConfiguration(Substitution):
    """The value of a launch configuration, as set by an argument or an action."""

    def __init__(
        self, variable_name: SomeSubstitutionsType, *, default: Any | None = None
    ) -> None:
        """Keep the name, and the default for a configuration that is not set."""
        self.variable_name = normalize_to_list_of_substitutions(variable_name)
        self._default = normalize_default(default)

    def describe(self) -> str:
        """Name the configuration."""
        return f'LaunchConfig({describe_all(self.variable_name)})'

    def perform(self, context: LaunchContext) -> str:
        """Look the configuration up."""
        name = perform_substitutions(context, self.variable_name)
        if name in context.launch_configurations:
            return context.launch_configurations[name]
        if self._default is None:
            raise SubstitutionFailure(f"launch configuration '{name}' does not exist")
        return perform_substitutions(context, self._default)


class PathJoinSubstitution(Substitution):
    """A path made of its parts."""

    def __init__(self, substitutions: Iterable[str | Substitution]) -> None:
        """Keep the parts."""
        self.substitutions = normalize_to_list_of_substitutions(substitutions)

    def describe(self) -> str:
        """List the parts."""
        return f"PathJoin('{describe_all(self.substitutions)}')"

    def perform(self, context: LaunchContext) -> str:
        """Join the parts."""
        return os.path.join(*(sub.perform(context) for sub in self.substitutions))


class ThisLaunchFile(Substitution):
    """The path of the launch file that is being visited."""

    def describe(self) -> str:
        """Say what this is."""
        return 'ThisLaunchFile()'

    def perform(self, context: LaunchContext) -> str:
        """Give the path."""
        return _launch_file_local(context, 'current_launch_file_path', self)


class ThisLaunchFileDir(Substitution):
    """The directory of the launch file that is being visited."""

    def describe(self) -> str:
        """Say what this is."""
        return 'ThisLaunchFileDir()'

    def perform(self, context: LaunchContext) -> str:
        """Give the directory."""
        return _launch_file_local(context, 'current_launch_file_directory', self)


def _launch_file_local(context: LaunchContext, name: str, asker: Substitution) -> str:
    try:
        return context.get_locals_as_dict()[name]
    except KeyError:
        raise SubstitutionFailure(
            f'{type(asker).__name__} used outside of a launch file (in a script)'
        ) from None


class LocalSubstitution(Substitution):
    """A local of the context, such as `event.pid` in an event handler."""

    def __init__(self, expression: str, description: str | None = None) -> None:
        """Keep the expression."""
        self.expression = expression
        self.description = description

    def describe(self) -> str:
        """Give the description, or else the expression."""
        return f"LocalVar('{self.description or self.expression}')"

    def perform(self, context: LaunchContext) -> str:
        """Evaluate the expression, which begins with the name of a local."""
        return str(eval('context_locals.' + self.expression, {'context_locals': context.locals}))


class PythonExpression(Substitution):
    """A Python expression whose value is taken as a text."""

    def __init__(
        self,
        expression: SomeSubstitutionsType,
        python_modules: SomeSubstitutionsType = ('math',),
    ) -> None:
        """Keep the expression and the names of the modules that it uses."""
        self.expression = normalize_to_list_of_substitutions(expression)
        self.python_modules = normalize_to_list_of_substitutions(python_modules)

    def describe(self) -> str:
        """Give the expression and the modules."""
        modules = describe_all(self.python_modules, ', ')
        return f'PythonExpr({describe_all(self.expression)}, [{modules}])'

    def perform(self, context: LaunchContext) -> str:
        """Evaluate the expression; what `math` has can be used without its name."""
        names: dict[str, Any] = {}
        for substitution in self.python_modules:
            module = importlib.import_module(context.perform_substitution(substitution))
            if module.__name__ == 'math':
                names.update(vars(module))
            names[module.__name__] = module
        return str(eval(perform_substitutions(context, self.expression), {}, names))
