"""Event handlers: what to do when a process ends or the launch shuts down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._entity import Action, LaunchDescriptionEntity
from ._missing import missing_names, reject_keywords
from .event import Event
from .events import Shutdown
from .events.process import ProcessExited
from .launch_context import LaunchContext

__all__ = ['OnProcessExit', 'OnShutdown']


class _EventHandler:
    """Base: answers an event with entities, or with what a callable returns."""

    def __init__(self, keyword: str, answer: Any, unknown: dict[str, object]) -> None:
        reject_keywords(self, unknown)
        if not callable(answer):
            answer = [] if answer is None else answer
            answer = [answer] if isinstance(answer, LaunchDescriptionEntity) else list(answer)
            for each in answer:
                if not isinstance(each, LaunchDescriptionEntity):
                    raise TypeError(f'{keyword}: {each!r} is no action')
        self._answer = answer

    def matches(self, event: Event) -> bool:
        raise NotImplementedError

    def handle(self, event: Event, context: LaunchContext) -> Any:
        """Return an entity, several, or None."""
        context.extend_locals({'event': event})
        return self._answer(event, context) if callable(self._answer) else self._answer


class OnProcessExit(_EventHandler):
    """Reacts to the end of a process.

    Args:
        target_action: action whose process is meant; or a function that returns whether an
            action is; None: all.
        on_exit: an action, several, or a function of event and context that returns them.
    """

    def __init__(
        self, *, target_action: Action | Callable[[Action], bool] | None = None,
        on_exit: Any, **unknown: object,
    ) -> None:
        if not (target_action is None or isinstance(target_action, Action)
                or callable(target_action)):
            raise TypeError(f'target_action: {target_action!r} is no action')
        super().__init__('on_exit', on_exit, unknown)
        self._target = target_action

    def matches(self, event: Event) -> bool:
        """Return whether the event is the end of a process that is meant."""
        if not isinstance(event, ProcessExited):
            return False
        if self._target is None or isinstance(self._target, Action):
            return self._target in (None, event.action)
        return self._target(event.action)


class OnShutdown(_EventHandler):
    """Reacts to the shutdown of the launch."""

    def __init__(self, *, on_shutdown: Any, **unknown: object) -> None:
        super().__init__('on_shutdown', on_shutdown, unknown)

    def matches(self, event: Event) -> bool:
        """Return whether the event is the shutdown."""
        return isinstance(event, Shutdown)


__getattr__ = missing_names(__name__)
