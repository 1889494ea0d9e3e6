"""LaunchDescription: the list of entities that a launch file returns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from . import logging
from .action import Action
from .launch_description_entity import LaunchDescriptionEntity

if TYPE_CHECKING:
    from .actions import DeclareLaunchArgument, IncludeLaunchDescription
    from .launch_context import LaunchContext

    ArgumentAndIncludes = tuple[DeclareLaunchArgument, list[IncludeLaunchDescription] | None]


class LaunchDescription(LaunchDescriptionEntity):
    """What to launch, in order."""

    def __init__(
        self,
        initial_entities: Iterable[LaunchDescriptionEntity] | None = None,
        *,
        deprecated_reason: str | None = None,
    ) -> None:
        """Begin with some entities; a reason for being deprecated is logged when visited."""
        self.entities = list(initial_entities) if initial_entities is not None else []
        self.deprecated_reason = deprecated_reason

    @property
    def deprecated(self) -> bool:
        """Whether a reason was given for not using this any more."""
        return self.deprecated_reason is not None

    def add_entity(self, entity: LaunchDescriptionEntity) -> None:
        """Append an entity."""
        self.entities.append(entity)

    def add_action(self, action: Action) -> None:
        """Append an action."""
        self.add_entity(action)

    def visit(self, context: LaunchContext) -> list[LaunchDescriptionEntity] | None:
        """Lead to the entities."""
        if self.deprecated_reason is not None:
            path = context.get_locals_as_dict().get('current_launch_file_path')
            logging.get_logger().warning(
                f'launch file [{path}] is deprecated: {self.deprecated_reason}'
                if path
                else f'deprecated launch description: {self.deprecated_reason}'
            )
        return self.entities

    def describe(self) -> str:
        """Say what this is."""
        return repr(self)

    def describe_sub_entities(self) -> list[LaunchDescriptionEntity]:
        """List the entities."""
        return self.entities

    def get_launch_arguments(
        self, conditional_inclusion: bool = False
    ) -> list[DeclareLaunchArgument]:
        """List the arguments declared here and in what this includes."""
        pairs = self.get_launch_arguments_with_include_launch_description_actions(
            conditional_inclusion
        )
        return [argument for argument, _ in pairs]

    def get_launch_arguments_with_include_launch_description_actions(
        self, conditional_inclusion: bool = False
    ) -> list[ArgumentAndIncludes]:
        """
        List the declared arguments, each with the include actions on the way to it.

        The first declaration of a name counts.  Arguments behind a reset of the launch
        configurations cannot be given from outside and are left out.
        """
        from .actions import (
            DeclareLaunchArgument,
            IncludeLaunchDescription,
            ResetLaunchConfigurations,
        )

        found: dict[str, ArgumentAndIncludes] = {}

        def search(
            entities: Iterable[LaunchDescriptionEntity],
            conditional: bool,
            includes: list[IncludeLaunchDescription] | None,
        ) -> None:
            for entity in entities:
                if isinstance(entity, ResetLaunchConfigurations):
                    return
                if isinstance(entity, DeclareLaunchArgument) and entity.name not in found:
                    entity._conditionally_included = conditional or entity.condition is not None
                    found[entity.name] = entity, includes
                inner = includes
                if isinstance(entity, IncludeLaunchDescription):
                    # The siblings in an included file share a list: the arguments of an include
                    # are still set when the next one is visited.
                    inner = [] if includes is None else includes
                    inner.append(entity)
                search(entity.describe_sub_entities(), False, inner)
                for _, sub_entities in entity.describe_conditional_sub_entities():
                    search(sub_entities, True, inner)

        search(self.entities, conditional_inclusion, None)
        return list(found.values())
