"""LaunchDescriptionEntity: anything that can be an item of a launch description."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .launch_context import LaunchContext


class LaunchDescriptionEntity:
    """
    Base class of actions and launch descriptions.

    The launch service visits an entity, keeps its future if it has one, and then visits the
    entities that the visit returned.  The describing methods serve `--show-args` and `--print`,
    which look at a description without running it.
    """

    def describe(self) -> str:
        """Say what this entity is."""
        raise NotImplementedError(f'{type(self).__name__} does not describe itself')

    def describe_sub_entities(self) -> list[LaunchDescriptionEntity]:
        """List the entities that a visit is sure to lead to."""
        return []

    def describe_conditional_sub_entities(
        self,
    ) -> list[tuple[str, Iterable[LaunchDescriptionEntity]]]:
        """List the entities that a visit may lead to, each group with its condition in words."""
        return []

    def visit(self, context: LaunchContext) -> list[LaunchDescriptionEntity] | None:
        """Do what the entity is for; must not block."""
        return None

    def get_asyncio_future(self) -> asyncio.Future | None:
        """Give the future that is done when the work begun by the visit is, or None."""
        return None
