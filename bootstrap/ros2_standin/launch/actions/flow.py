"""Actions that run Python code, react to events, emit them, wait, and write to the log."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from .. import logging
from ..action import Action
from ..event import Event
from ..event_handler import BaseEventHandler, EventHandler
from ..event_handlers import OnShutdown
from ..events import Shutdown as ShutdownEvent
from ..events import TimerEvent
from ..events.process import ProcessExited
from ..launch_context import LaunchContext
from ..launch_description_entity import LaunchDescriptionEntity
from ..some_substitutions_type import SomeSubstitutionsType
from ..utilities import (
    normalize_to_list_of_entities,
    normalize_to_list_of_substitutions,
    perform_substitutions,
)
from ..utilities.type_utils import normalize_typed_substitution, perform_typed_substitution


class OpaqueFunction(Action):
    """Calls a function with the context; it may return entities to visit."""

    def __init__(
        self,
        *,
        function: Callable,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **left_over_kwargs: Any,
    ) -> None:
        """Keep the function and its arguments after the context."""
        super().__init__(**left_over_kwargs)
        if not callable(function):
            raise TypeError(
                f"OpaqueFunction expected a callable for 'function', got '{type(function)}'"
            )
        self._function = function
        self._args = tuple(args or ())
        self._kwargs = dict(kwargs or {})

    def execute(self, context: LaunchContext) -> list[LaunchDescriptionEntity] | None:
        """Call the function."""
        return self._function(context, *self._args, **self._kwargs)


class OpaqueCoroutine(Action):
    """Runs a coroutine, which a shutdown cancels."""

    def __init__(
        self,
        *,
        coroutine: Callable[..., Awaitable[None]],
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        ignore_context: bool = False,
        **left_over_kwargs: Any,
    ) -> None:
        """Keep the coroutine function and its arguments; the context goes first by default."""
        super().__init__(**left_over_kwargs)
        if not inspect.iscoroutinefunction(coroutine):
            raise TypeError(
                "OpaqueCoroutine expected a coroutine function for 'coroutine', "
                f"got '{type(coroutine)}'"
            )
        self._coroutine = coroutine
        self._args = tuple(args or ())
        self._kwargs = dict(kwargs or {})
        self._ignore_context = ignore_context
        self._future: asyncio.Future | None = None

    def execute(self, context: LaunchContext) -> None:
        """Start the coroutine."""
        args = self._args if self._ignore_context else (context, *self._args)
        task = context.asyncio_loop.create_task(self._coroutine(*args, **self._kwargs))
        self._future = task

        def cancel(event: Event, context: LaunchContext) -> None:
            task.cancel()

        context.register_event_handler(OnShutdown(on_shutdown=cancel))

    def get_asyncio_future(self) -> asyncio.Future | None:
        """Give the task of the coroutine."""
        return self._future


class LogInfo(Action):
    """Writes a message."""

    def __init__(self, *, msg: SomeSubstitutionsType, **kwargs: Any) -> None:
        """Keep the message."""
        super().__init__(**kwargs)
        self.msg = normalize_to_list_of_substitutions(msg)

    def execute(self, context: LaunchContext) -> None:
        """Write it."""
        logging.get_logger('launch.user').info('%s', perform_substitutions(context, self.msg))


class RegisterEventHandler(Action):
    """Adds an event handler."""

    def __init__(self, event_handler: BaseEventHandler, **kwargs: Any) -> None:
        """Keep the handler."""
        super().__init__(**kwargs)
        self.event_handler = event_handler

    def describe_conditional_sub_entities(
        self,
    ) -> list[tuple[str, Iterable[LaunchDescriptionEntity]]]:
        """List what the handler leads to if its event comes."""
        text, entities = self.event_handler.describe()
        return [(text, normalize_to_list_of_entities(entities))] if entities else []

    def execute(self, context: LaunchContext) -> None:
        """Add the handler."""
        context.register_event_handler(self.event_handler)


class UnregisterEventHandler(Action):
    """Removes an event handler; the launch fails if it is not there."""

    def __init__(self, event_handler: BaseEventHandler, **kwargs: Any) -> None:
        """Keep the handler."""
        super().__init__(**kwargs)
        self.event_handler = event_handler

    def execute(self, context: LaunchContext) -> None:
        """Remove the handler."""
        context.unregister_event_handler(self.event_handler)


class EmitEvent(Action):
    """Emits an event."""

    def __init__(self, *, event: Event, **kwargs: Any) -> None:
        """Keep the event."""
        super().__init__(**kwargs)
        if not isinstance(event, Event):
            raise RuntimeError(f"EmitEvent() expected an event instance, got '{event}'.")
        self.event = event

    def execute(self, context: LaunchContext) -> None:
        """Emit it."""
        context.emit_event_sync(self.event)


class Shutdown(EmitEvent):
    """Shuts the launch down."""

    def __init__(self, *, reason: str = 'reason not given', **kwargs: Any) -> None:
        """Keep the reason."""
        super().__init__(event=ShutdownEvent(reason=reason), **kwargs)

    def execute(self, context: LaunchContext) -> None:
        """Tell if it is the end of a process that brings this about, and emit the event."""
        event = context.get_locals_as_dict().get('event')
        if isinstance(event, ProcessExited):
            logging.get_logger('launch').info(
                f'process[{event.process_name}] was required: shutting down launched system'
            )
        super().execute(context)


class _OnTimer(EventHandler):
    """Answers the event of a timer with its actions; there is one for all timers."""

    def __init__(self) -> None:
        super().__init__(matcher=lambda event: isinstance(event, TimerEvent))

    def handle(self, event: Any, context: LaunchContext) -> Any:
        super().handle(event, context)
        return event.timer_action.handle(context)


class TimerAction(Action):
    """Leads to actions when some time has passed, once."""

    def __init__(
        self,
        *,
        period: float | SomeSubstitutionsType,
        actions: Iterable[LaunchDescriptionEntity],
        cancel_on_shutdown: bool | SomeSubstitutionsType = True,
        **kwargs: Any,
    ) -> None:
        """Keep the seconds, the actions, and whether a shutdown cancels the timer."""
        super().__init__(**kwargs)
        if isinstance(period, (int, str)):
            period = float(period)
        self.period = normalize_typed_substitution(period, float)
        self.actions = list(actions)
        self._cancel_on_shutdown = normalize_typed_substitution(cancel_on_shutdown, bool)
        self._is_canceled = False
        self._locals: dict[str, Any] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._future: asyncio.Future | None = None

    def describe(self) -> str:
        """Give the period."""
        return f'TimerAction(period={self.period}, actions=<actions>)'

    def describe_conditional_sub_entities(
        self,
    ) -> list[tuple[str, Iterable[LaunchDescriptionEntity]]]:
        """List the actions that the time leads to."""
        return [(f'{self.period} seconds pass without being canceled', self.actions)]

    def get_asyncio_future(self) -> asyncio.Future | None:
        """Give the future that is done when the time has come or the timer is canceled."""
        return self._future

    def handle(self, context: LaunchContext) -> list[LaunchDescriptionEntity]:
        """Lead to the actions, with the locals that there were when the timer was started."""
        context.extend_locals(self._locals)
        return self.actions

    def cancel(self) -> None:
        """Keep the timer from leading to anything; also before it is executed, or too late."""
        self._is_canceled = True
        if self._timer is not None:
            self._timer.cancel()
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def execute(self, context: LaunchContext) -> None:
        """Start the time."""
        cancel_on_shutdown = perform_typed_substitution(context, self._cancel_on_shutdown, bool)
        if self._is_canceled or (context.is_shutdown and cancel_on_shutdown):
            return
        if not any(isinstance(handler, _OnTimer) for handler in context._event_handlers):
            context.register_event_handler(_OnTimer())
        self._locals = context.get_locals_as_dict()
        future = context.asyncio_loop.create_future()
        self._future = future

        def fire() -> None:
            context.emit_event_sync(TimerEvent(timer_action=self))
            future.set_result(None)

        period = perform_typed_substitution(context, self.period, float)
        self._timer = context.asyncio_loop.call_later(period, fire)
        if cancel_on_shutdown:
            context.register_event_handler(
                OnShutdown(on_shutdown=lambda event, context: self.cancel())
            )
