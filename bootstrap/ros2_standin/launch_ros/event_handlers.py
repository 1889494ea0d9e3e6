"""Event handlers for lifecycle nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from launch._unknown import unknown_attributes
from launch.event import Event
from launch.event_handler import EventHandler
from launch.some_entities_type import SomeEntitiesType

from .actions import LifecycleNode
from .events.lifecycle import StateTransition

__all__ = ['OnStateTransition']


class OnStateTransition(EventHandler):
    """Answers transitions of lifecycle nodes; what is not given may be anything."""

    def __init__(
        self,
        *,
        entities: SomeEntitiesType,
        target_lifecycle_node: LifecycleNode | None = None,
        transition: str | None = None,
        start_state: str | None = None,
        goal_state: str | None = None,
        matcher: Callable[[Event], bool] | None = None,
        **kwargs: Any,
    ) -> None:
        """Keep the node, the labels of the transition and its states, and the answer."""
        if not isinstance(target_lifecycle_node, (LifecycleNode, type(None))):
            raise RuntimeError("OnStateTransition requires a 'LifecycleNode' action as the target")
        wanted = {
            'action': target_lifecycle_node,
            'transition': transition,
            'start_state': start_state,
            'goal_state': goal_state,
        }

        def takes(event: Event) -> bool:
            return isinstance(event, StateTransition) and all(
                value is None or getattr(event, name) == value for name, value in wanted.items()
            )

        super().__init__(matcher=matcher or takes, entities=entities, **kwargs)


__getattr__ = unknown_attributes(__name__)
