"""Event handlers: what to do when an event of some kind comes by."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ._unknown import reject_keywords
from .event import Event
from .some_entities_type import SomeEntitiesType

if TYPE_CHECKING:
    from .launch_context import LaunchContext
    from .launch_description_entity import LaunchDescriptionEntity


class BaseEventHandler:
    """A matcher for events; derived classes say what to do with an event that matches."""

    def __init__(
        self,
        *,
        matcher: Callable[[Event], bool],
        handle_once: bool = False,
        **unknown: object,
    ) -> None:
        """Keep the matcher; with `handle_once` the handler goes after the first event."""
        reject_keywords(self, unknown)
        self._matcher = matcher
        self.handle_once = handle_once

    @property
    def handler_description(self) -> str | None:
        """Say what the handler does."""
        return None

    @property
    def matcher_description(self) -> str | None:
        """Say which events the handler takes."""
        return None

    def matches(self, event: Event) -> bool:
        """Say whether this handler takes the event."""
        return self._matcher(event)

    def describe(self) -> tuple[str, list[LaunchDescriptionEntity]]:
        """Give the handler in words, and the entities that it is known to lead to."""
        return (
            f"{type(self).__name__}(matcher='{self.matcher_description}', "
            f"handler='{self.handler_description}', handle_once={self.handle_once})"
        ), []

    def handle(self, event: Event, context: LaunchContext) -> SomeEntitiesType | None:
        """Make the event a local of the context; derived classes call this first."""
        context.extend_locals({'event': event})
        if self.handle_once:
            context.unregister_event_handler(self)
        return None


class EventHandler(BaseEventHandler):
    """A handler that answers an event with entities given beforehand."""

    def __init__(
        self,
        *,
        matcher: Callable[[Event], bool],
        entities: SomeEntitiesType | None = None,
        handle_once: bool = False,
        **unknown: object,
    ) -> None:
        """Keep the entities to answer with."""
        super().__init__(matcher=matcher, handle_once=handle_once, **unknown)
        self.entities = entities

    def describe(self) -> tuple[str, list[LaunchDescriptionEntity]]:
        """Add the entities to the description."""
        from .utilities import normalize_to_list_of_entities

        text, entities = super().describe()
        if self.entities is not None:
            entities += normalize_to_list_of_entities([self.entities])
        return text, entities

    def handle(self, event: Event, context: LaunchContext) -> SomeEntitiesType | None:
        """Answer with the entities."""
        super().handle(event, context)
        return self.entities
