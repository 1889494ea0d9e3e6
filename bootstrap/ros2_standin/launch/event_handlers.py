"""Event handlers for what launch files react to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ._unknown import unknown_attributes
from .action import Action
from .event import Event
from .event_handler import BaseEventHandler
from .events import ExecutionComplete, Shutdown
from .events.process import ProcessExited, ProcessIO, ProcessStarted
from .launch_context import LaunchContext
from .launch_description_entity import LaunchDescriptionEntity
from .some_entities_type import SomeEntitiesType
from .utilities import normalize_to_list_of_entities

__all__ = [
    'OnExecutionComplete',
    'OnProcessExit',
    'OnProcessIO',
    'OnProcessStart',
    'OnShutdown',
    'event_named',
]


def event_named(name: str) -> Callable[[Event], bool]:
    """Make a matcher for events by their name."""
    return lambda event: event.name == name


class _Answer:
    """What to do on an event: entities given beforehand, or a callable that gives some."""

    def __init__(self, answer: Any, what: str) -> None:
        self.entities: list[LaunchDescriptionEntity] = []
        self.callable: Callable | None = None
        if callable(answer):
            self.callable = answer
        elif isinstance(answer, (LaunchDescriptionEntity, Iterable)):
            self.entities = normalize_to_list_of_entities([answer])
            for entity in self.entities:
                if not isinstance(entity, LaunchDescriptionEntity):
                    raise TypeError(
                        f"expected all items in '{what}' iterable to be of type "
                        f"'LaunchDescriptionEntity' but got '{type(entity)}'"
                    )
        elif answer is not None:
            raise TypeError(f"'{what}' takes actions or a callable, got '{answer}'")

    def __call__(self, event: Event, context: LaunchContext) -> SomeEntitiesType | None:
        return self.entities if self.callable is None else self.callable(event, context)

    def __str__(self) -> str:
        return '<actions>' if self.callable is None else str(self.callable)


class _OnActionEvent(BaseEventHandler):
    """Base class of handlers for events of an action."""

    event_class: type[Event]
    what: str

    def __init__(self, target_action: Any, answer: Any, **kwargs: Any) -> None:
        if not (
            target_action is None or isinstance(target_action, Action) or callable(target_action)
        ):
            raise TypeError(
                f'{type(self).__name__}: target_action must be an action or a callable, '
                f"got '{target_action}'"
            )
        self._target = target_action
        self._answer = _Answer(answer, self.what)
        super().__init__(matcher=self._takes, **kwargs)

    def _takes(self, event: Event) -> bool:
        if not isinstance(event, self.event_class):
            return False
        action = getattr(event, 'action', None)
        if self._target is None or self._target is action:
            return True
        return not isinstance(self._target, Action) and self._target(action)

    def handle(self, event: Event, context: LaunchContext) -> SomeEntitiesType | None:
        super().handle(event, context)
        return self._answer(event, context)

    def describe(self) -> tuple[str, list[LaunchDescriptionEntity]]:
        text, entities = super().describe()
        return text, entities + self._answer.entities

    @property
    def handler_description(self) -> str:
        return str(self._answer)

    @property
    def matcher_description(self) -> str:
        return f'event == {self.event_class.__name__}'


class OnProcessStart(_OnActionEvent):
    """Answers the start of a process."""

    event_class = ProcessStarted
    what = 'on_start'

    def __init__(self, *, target_action: Any = None, on_start: Any, **kwargs: Any) -> None:
        """Take an action, or a predicate on actions, and actions or a callable to answer with."""
        super().__init__(target_action, on_start, **kwargs)


class OnProcessExit(_OnActionEvent):
    """Answers the end of a process."""

    event_class = ProcessExited
    what = 'on_exit'

    def __init__(self, *, target_action: Any = None, on_exit: Any, **kwargs: Any) -> None:
        """Take an action, or a predicate on actions, and actions or a callable to answer with."""
        super().__init__(target_action, on_exit, **kwargs)


class OnExecutionComplete(_OnActionEvent):
    """Answers the completion of an action."""

    event_class = ExecutionComplete
    what = 'on_completion'

    def __init__(self, *, target_action: Any = None, on_completion: Any, **kwargs: Any) -> None:
        """Take an action, or a predicate on actions, and actions or a callable to answer with."""
        super().__init__(target_action, on_completion, **kwargs)


class OnProcessIO(_OnActionEvent):
    """Answers what a process writes, with a callable per stream that is given the event."""

    event_class = ProcessIO
    what = 'on_stdout'

    def __init__(
        self,
        *,
        target_action: Any = None,
        on_stdin: Callable[[ProcessIO], SomeEntitiesType | None] | None = None,
        on_stdout: Callable[[ProcessIO], SomeEntitiesType | None] | None = None,
        on_stderr: Callable[[ProcessIO], SomeEntitiesType | None] | None = None,
        **kwargs: Any,
    ) -> None:
        """Take an action, or a predicate on actions, and the callables."""

        def answer(event: Any, context: LaunchContext) -> SomeEntitiesType | None:
            wanted = (
                on_stdout if event.from_stdout else on_stderr if event.from_stderr else on_stdin
            )
            return wanted(event) if wanted is not None else None

        super().__init__(target_action, answer, **kwargs)


class OnShutdown(BaseEventHandler):
    """Answers the shutdown of the launch."""

    def __init__(self, *, on_shutdown: Any, **kwargs: Any) -> None:
        """Take actions or a callable to answer with."""
        self._answer = _Answer(on_shutdown, 'on_shutdown')
        super().__init__(matcher=lambda event: isinstance(event, Shutdown), **kwargs)

    def handle(self, event: Event, context: LaunchContext) -> SomeEntitiesType | None:
        """Answer."""
        super().handle(event, context)
        return self._answer(event, context)

    def describe(self) -> tuple[str, list[LaunchDescriptionEntity]]:
        """Add the actions to the description."""
        text, entities = super().describe()
        return text, entities + self._answer.entities

    @property
    def handler_description(self) -> str:
        """Say what the handler does."""
        return str(self._answer)

    @property
    def matcher_description(self) -> str:
        """Say which events the handler takes."""
        return 'event issubclass of launch.events.Shutdown'


__getattr__ = unknown_attributes(__name__)
