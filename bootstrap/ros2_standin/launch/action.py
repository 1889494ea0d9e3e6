"""Action: an entity that does something, if its condition is met."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ._unknown import reject_keywords
from .condition import Condition
from .launch_description_entity import LaunchDescriptionEntity

if TYPE_CHECKING:
    from .launch_context import LaunchContext


class Action(LaunchDescriptionEntity):
    """Base class of the actions of a launch file."""

    def __init__(self, *, condition: Condition | None = None, **unknown: object) -> None:
        """Keep the condition; every keyword that no derived class took is refused here."""
        reject_keywords(self, unknown)
        self.condition = condition

    def describe(self) -> str:
        """Say what this action is."""
        return repr(self)

    def get_sub_entities(self) -> list[LaunchDescriptionEntity]:
        """List the entities that executing this leads to, as far as that is known."""
        return []

    def describe_sub_entities(self) -> list[LaunchDescriptionEntity]:
        """List the sub-entities if nothing can keep them from being visited."""
        return self.get_sub_entities() if self.condition is None else []

    def describe_conditional_sub_entities(
        self,
    ) -> list[tuple[str, Iterable[LaunchDescriptionEntity]]]:
        """List the sub-entities that hang on the condition."""
        if self.condition is None:
            return []
        return [(f'Conditionally included by {self.describe()}', self.get_sub_entities())]

    def visit(self, context: LaunchContext) -> list[LaunchDescriptionEntity] | None:
        """Execute the action if its condition is met, and tell when it is complete."""
        if self.condition is not None and not self.condition.evaluate(context):
            return None
        try:
            return self.execute(context)
        finally:
            self._tell_completion(context)

    def execute(self, context: LaunchContext) -> list[LaunchDescriptionEntity] | None:
        """Do what the action is for."""
        return None

    def _tell_completion(self, context: LaunchContext) -> None:
        from .events import ExecutionComplete

        event = ExecutionComplete(action=self)
        if not context.would_handle_event(event):
            return
        future = self.get_asyncio_future()
        if future is None:
            context.emit_event_sync(event)
        else:
            future.add_done_callback(lambda _: context.emit_event_sync(event))
