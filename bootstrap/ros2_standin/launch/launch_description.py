"""LaunchDescription: the list of entities that a launch file returns."""

from __future__ import annotations

from collections.abc import Iterable

from ._entity import LaunchDescriptionEntity
from ._missing import missing_names, reject_keywords
from .actions import DeclareLaunchArgument, declared_arguments
from .launch_context import LaunchContext

__all__ = ['LaunchDescription']


class LaunchDescription(LaunchDescriptionEntity):
    """Entities in the order in which they are visited."""

    def __init__(
        self, initial_entities: Iterable[LaunchDescriptionEntity] | None = None,
        **unknown: object,
    ) -> None:
        reject_keywords(self, unknown)
        self.entities = list(initial_entities or ())

    def add_action(self, action: LaunchDescriptionEntity) -> None:
        """Append an entity."""
        self.entities.append(action)

    def describe_sub_entities(self) -> list[LaunchDescriptionEntity]:
        """Return the entities."""
        return self.entities

    def visit(self, context: LaunchContext) -> list[LaunchDescriptionEntity]:
        """Return the entities."""
        return self.entities

    def get_launch_arguments(self) -> list[DeclareLaunchArgument]:
        """Return the declared arguments, also of included files; of a name the first one."""
        found: dict[str, DeclareLaunchArgument] = {}
        for argument in declared_arguments(self.entities, in_includes=True):
            found.setdefault(argument.name, argument)
        return list(found.values())


__getattr__ = missing_names(__name__)
