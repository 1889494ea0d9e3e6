"""Event handlers: what to do when a process ends or the launch shuts down."""

from collections.abc import Callable
from typing import Any

from ._core import Action, Event, LaunchContext
from .events import Shutdown
from .events.process import ProcessExited

__all__ = ['OnProcessExit', 'OnShutdown']


class _EventHandler:
    """Base: answers an event with an action, several, or what a function returns."""

    _answer: Any

    def handle(self, event: Event, context: LaunchContext) -> Any:
        return self._answer(event, context) if callable(self._answer) else self._answer


class OnProcessExit(_EventHandler):
    """Reacts to the end of a process.

    Args:
        target_action: action whose process is meant; or a function that returns whether an
            action is; None: all.
        on_exit: an action, several, or a function of event and context that returns them.
    """

    def __init__(
        self, *, target_action: Action | Callable[[Action], bool] | None = None, on_exit: Any,
    ) -> None:
        self._target, self._answer = target_action, on_exit

    def matches(self, event: Event) -> bool:
        if not isinstance(event, ProcessExited):
            return False
        if self._target is None or isinstance(self._target, Action):
            return self._target in (None, event.action)
        return self._target(event.action)


class OnShutdown(_EventHandler):
    """Reacts to the shutdown of the launch."""

    def __init__(self, *, on_shutdown: Any) -> None:
        self._answer = on_shutdown

    def matches(self, event: Event) -> bool:
        return isinstance(event, Shutdown)
