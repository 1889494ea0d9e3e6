"""Actions that make up the structure of launch files: arguments, includes and groups."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import logging
from ..action import Action
from ..launch_context import LaunchContext
from ..launch_description_entity import LaunchDescriptionEntity
from ..launch_description_source import LaunchDescriptionSource
from ..launch_description_sources import AnyLaunchDescriptionSource
from ..some_substitutions_type import SomeSubstitutionsType
from ..utilities import normalize_to_list_of_substitutions, perform_substitutions
from .settings import (
    PopEnvironment,
    PopLaunchConfigurations,
    PushEnvironment,
    PushLaunchConfigurations,
    ResetEnvironment,
    ResetLaunchConfigurations,
    SetLaunchConfiguration,
)


class DeclareLaunchArgument(Action):
    """
    Declares an argument of a launch file, which is set as a launch configuration.

    Visiting it makes sure that the configuration is set: to the default if it was not given, and
    if there is none the launch fails.
    """

    def __init__(
        self,
        name: str,
        *,
        default_value: SomeSubstitutionsType | None = None,
        description: str | None = None,
        choices: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """Keep the declaration; a default that is a plain text must be among the choices."""
        super().__init__(**kwargs)
        self.name = name
        self.choices = choices
        self.default_value = (
            None if default_value is None else normalize_to_list_of_substitutions(default_value)
        )
        if choices is not None and not choices:
            raise RuntimeError(
                'Provided choices arg is empty. Use None to ignore the choice list.'
            )
        if choices and isinstance(default_value, str) and default_value not in choices:
            raise RuntimeError(
                f'Provided default_value "{default_value}" is not in provided choices '
                f'"{choices}".'
            )
        if description is None:
            description = 'no description given' if choices is None else f'One of: {choices}'
        elif choices is not None:
            description += '' if description.endswith('.') else '.'
            description += f' Valid choices are: {choices}'
        self.description = description
        # Set by LaunchDescription while it searches for the declared arguments.
        self._conditionally_included = False

    def execute(self, context: LaunchContext) -> None:
        """Set the configuration to the default if it is not set, and check it."""
        configurations = context.launch_configurations
        if self.name not in configurations:
            if self.default_value is None:
                logging.get_logger('launch.actions.declare_launch_argument').error(
                    f'Required launch argument "{self.name}" (description: "{self.description}") '
                    'was not provided'
                )
                raise RuntimeError(f'Required launch argument "{self.name}" was not provided.')
            configurations[self.name] = perform_substitutions(context, self.default_value)
        if self.choices is not None and configurations[self.name] not in self.choices:
            message = (
                f'Argument "{self.name}" provided value "{configurations[self.name]}" is not '
                f'valid. Valid options are: {self.choices}'
            )
            logging.get_logger('launch.actions.declare_launch_argument').error(message)
            raise RuntimeError(message)


class IncludeLaunchDescription(Action):
    """
    Includes a launch file.

    Its arguments are set as launch configurations and, as includes are no scope of their own,
    stay set.  The locals that name the current launch file stay those of the included one, too.
    """

    def __init__(
        self,
        launch_description_source: LaunchDescriptionSource | SomeSubstitutionsType,
        *,
        launch_arguments: Iterable[tuple[SomeSubstitutionsType, SomeSubstitutionsType]]
        | None = None,
        **kwargs: Any,
    ) -> None:
        """Keep the source and the arguments."""
        super().__init__(**kwargs)
        if not isinstance(launch_description_source, LaunchDescriptionSource):
            launch_description_source = AnyLaunchDescriptionSource(launch_description_source)
        self.launch_description_source = launch_description_source
        self.launch_arguments = tuple(launch_arguments or ())

    def get_sub_entities(self) -> list[LaunchDescriptionEntity]:
        """Give the included launch description if it can be loaded before launching."""
        description = self.launch_description_source.try_get_launch_description_without_context()
        return [] if description is None else [description]

    def execute(self, context: LaunchContext) -> list[LaunchDescriptionEntity]:
        """Load the file, check that its required arguments are given, and lead to it."""
        description = self.launch_description_source.get_launch_description(context)
        path = os.path.abspath(self.launch_description_source.location)
        context.extend_locals(
            {
                'current_launch_file_path': path,
                'current_launch_file_directory': (
                    os.path.dirname(path)
                    if os.path.exists(path)
                    else self.launch_description_source.location
                ),
            }
        )
        given = self._argument_names(context)
        arguments = description.get_launch_arguments_with_include_launch_description_actions()
        for argument, includes in arguments:
            if argument._conditionally_included or argument.default_value is not None:
                continue
            for include in includes or []:
                given += include._argument_names_without_context()
            if argument.name not in given:
                raise RuntimeError(
                    'Included launch description missing required argument '
                    f"'{argument.name}' (description: '{argument.description}'), "
                    f"given: [{', '.join(given)}]"
                )
        settings = [SetLaunchConfiguration(name, value) for name, value in self.launch_arguments]
        return [*settings, description]

    def _argument_names(self, context: LaunchContext) -> list[str]:
        return [
            perform_substitutions(context, normalize_to_list_of_substitutions(name))
            for name, _ in self.launch_arguments
        ]

    def _argument_names_without_context(self) -> list[str]:
        try:
            return self._argument_names(LaunchContext())
        except Exception:
            # Names that hang on configurations cannot be checked before they are set.
            return []


class GroupAction(Action):
    """
    Leads to actions in a scope of launch configurations and environment of their own.

    Without `forwarding` the scope begins with only the configurations that are given here.
    """

    def __init__(
        self,
        actions: Iterable[Action],
        *,
        scoped: bool = True,
        forwarding: bool = True,
        launch_configurations: Mapping[SomeSubstitutionsType, SomeSubstitutionsType] | None = None,
        **kwargs: Any,
    ) -> None:
        """Keep the actions, and the configurations to set first."""
        super().__init__(**kwargs)
        self._entities: list[LaunchDescriptionEntity] = list(actions)
        configurations = dict(launch_configurations or {})
        settings: list[LaunchDescriptionEntity] = [
            SetLaunchConfiguration(name, value) for name, value in configurations.items()
        ]
        if scoped and not forwarding:
            settings = [ResetEnvironment(), ResetLaunchConfigurations(configurations)]
        self._entities = settings + self._entities
        if scoped:
            self._entities = [
                PushLaunchConfigurations(),
                PushEnvironment(),
                *self._entities,
                PopEnvironment(),
                PopLaunchConfigurations(),
            ]

    def get_sub_entities(self) -> list[LaunchDescriptionEntity]:
        """List the actions, and the ones that make the scope."""
        return self._entities

    def execute(self, context: LaunchContext) -> list[LaunchDescriptionEntity]:
        """Lead to the actions."""
        return self._entities
