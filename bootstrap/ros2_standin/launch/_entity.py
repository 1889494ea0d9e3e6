"""Bases of what a launch description consists of: LaunchDescriptionEntity and Action."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ._missing import reject_keywords
from .launch_context import LaunchContext


class LaunchDescriptionEntity:
    """An action or a launch description."""

    def describe_sub_entities(self) -> Sequence[LaunchDescriptionEntity]:
        """Return the entities that are known before the launch runs."""
        return []

    def visit(self, context: LaunchContext) -> Sequence[LaunchDescriptionEntity] | None:
        """Do the work, without blocking; return the entities to visit next."""
        return None

    def get_asyncio_future(self) -> asyncio.Future | None:
        """Return the future that is done when the work is, or None."""
        return None


class Action(LaunchDescriptionEntity):
    """Base of the actions."""

    def __init__(self, **unknown: object) -> None:
        reject_keywords(self, unknown)

    def visit(self, context: LaunchContext) -> Sequence[LaunchDescriptionEntity] | None:
        """Execute the action."""
        return self.execute(context)

    def execute(self, context: LaunchContext) -> Sequence[LaunchDescriptionEntity] | None:
        """Do the work; return the entities to visit next."""
        return None
