"""Actions that launch files consist of."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from . import logging
from ._core import (
    ADVICE,
    Action,
    Event,
    LaunchContext,
    LaunchDescriptionEntity,
    SomeSubstitutionsType,
    normalize,
    perform,
)
from ._execute_process import ExecuteProcess  # noqa: F401 (launch files import it from here)
from .event_handlers import OnShutdown
from .events import Shutdown as ShutdownEvent
from .events.process import ProcessExited
from .launch_description_sources import PythonLaunchDescriptionSource


class DeclareLaunchArgument(Action):
    """Declares a launch argument, which becomes a launch configuration.

    Args:
        default_value: None: the argument is required.
        description: for `--show-args`.
        choices: the allowed values; None: all.
    """

    def __init__(
        self, name: str, *, default_value: SomeSubstitutionsType | None = None,
        description: str | None = None, choices: Sequence[str] | None = None,
    ) -> None:
        self.name = name
        self.choices = choices
        self.default_value = None if default_value is None else normalize(default_value)
        if choices is not None:
            description = f'One of: {choices}' if description is None else (
                f'{description.removesuffix(".")}. Valid choices are: {choices}')
        self.description = description or 'no description given'

    def execute(self, context: LaunchContext) -> None:
        configurations = context.launch_configurations
        if self.name not in configurations:
            if self.default_value is None:
                raise RuntimeError(f'Required launch argument "{self.name}" (description: '
                                   f'"{self.description}") was not provided')
            configurations[self.name] = perform(context, self.default_value)
        if self.choices is not None and configurations[self.name] not in self.choices:
            raise RuntimeError(
                f'Argument "{self.name}" provided value "{configurations[self.name]}" is not '
                f'valid. Valid options are: {self.choices}')


class IncludeLaunchDescription(Action):
    """Includes a launch file, whose arguments stay set as launch configurations."""

    def __init__(
        self, launch_description_source: PythonLaunchDescriptionSource | SomeSubstitutionsType, *,
        launch_arguments: Iterable[tuple[SomeSubstitutionsType, SomeSubstitutionsType]] = (),
    ) -> None:
        if not isinstance(launch_description_source, PythonLaunchDescriptionSource):
            launch_description_source = PythonLaunchDescriptionSource(launch_description_source)
        self._source = launch_description_source
        self._arguments = [(normalize(name), value) for name, value in launch_arguments or ()]

    def describe_sub_entities(self) -> list[LaunchDescriptionEntity]:
        """Return the included description if it can be loaded before the launch runs."""
        description = self._source.try_get_launch_description_without_context()
        return [] if description is None else [description]

    def execute(self, context: LaunchContext) -> list[LaunchDescriptionEntity]:
        description = self._source.get_launch_description(context)
        given = [perform(context, name) for name, _ in self._arguments]
        for argument in declared_arguments(description.entities, in_includes=False):
            if argument.default_value is None and argument.name not in given:
                raise RuntimeError(
                    f"Included launch description missing required argument '{argument.name}' "
                    f"(description: '{argument.description}'), given: [{', '.join(given)}]")
        return [*(SetLaunchConfiguration(*each) for each in self._arguments), description]


class GroupAction(Action):
    """Runs actions in a scope of launch configurations and environment of their own."""

    def __init__(self, actions: Iterable[Action]) -> None:
        self._actions = [OpaqueFunction(function=LaunchContext._push_scope), *actions,
                         OpaqueFunction(function=LaunchContext._pop_scope)]

    def describe_sub_entities(self) -> Sequence[LaunchDescriptionEntity]:
        return self._actions

    def execute(self, context: LaunchContext) -> Sequence[LaunchDescriptionEntity]:
        return self._actions


class OpaqueFunction(Action):
    """Calls a function with the context; it may return entities to visit."""

    def __init__(self, *, function: Callable[[LaunchContext], Any]) -> None:
        self._function = function

    def execute(self, context: LaunchContext) -> Sequence[LaunchDescriptionEntity] | None:
        return self._function(context)


class LogInfo(Action):
    """Logs a message."""

    def __init__(self, *, msg: SomeSubstitutionsType) -> None:
        self._msg = normalize(msg)

    def execute(self, context: LaunchContext) -> None:
        logging.get_logger('launch.user').info('%s', perform(context, self._msg))


class SetLaunchConfiguration(Action):
    """Sets a launch configuration."""

    def __init__(self, name: SomeSubstitutionsType, value: SomeSubstitutionsType) -> None:
        self._name, self._value = normalize(name), normalize(value)

    def execute(self, context: LaunchContext) -> None:
        value = perform(context, self._value)
        context.launch_configurations[perform(context, self._name)] = value


class SetEnvironmentVariable(SetLaunchConfiguration):
    """Sets an environment variable."""

    def execute(self, context: LaunchContext) -> None:
        context.environment[perform(context, self._name)] = perform(context, self._value)


class RegisterEventHandler(Action):
    """Adds an event handler."""

    def __init__(self, event_handler: Any) -> None:
        self._event_handler = event_handler

    def execute(self, context: LaunchContext) -> None:
        context.register_event_handler(self._event_handler)


class Shutdown(Action):
    """Shuts the launch down."""

    def __init__(self, *, reason: str = 'reason not given') -> None:
        self._reason = reason

    def execute(self, context: LaunchContext) -> None:
        """Log which process was required, if the end of one is the cause; emit the event."""
        event = getattr(context.locals, 'event', None)
        if isinstance(event, ProcessExited):
            logging.get_logger('launch').info(
                f'process[{event.process_name}] was required: shutting down launched system')
        context.emit_event_sync(ShutdownEvent(reason=self._reason))


class TimerAction(Action):
    """Runs actions after some seconds, unless the launch shuts down before."""

    def __init__(
        self, *, period: float, actions: Iterable[Action], cancel_on_shutdown: bool = False,
    ) -> None:
        if not cancel_on_shutdown:
            raise TypeError(f'cancel_on_shutdown={cancel_on_shutdown!r} {ADVICE}')
        self._period, self._actions = float(period), list(actions)
        self._over: asyncio.Future | None = None

    def describe_sub_entities(self) -> Sequence[LaunchDescriptionEntity]:
        return self._actions

    def get_asyncio_future(self) -> asyncio.Future | None:
        return self._over

    def execute(self, context: LaunchContext) -> None:
        if not context.is_shutdown:
            cancel = asyncio.Event()
            context.register_event_handler(OnShutdown(
                on_shutdown=lambda event, context: cancel.set()))
            handler = _OnTimer(self._actions)
            context.register_event_handler(handler)
            self._over = context.asyncio_loop.create_task(
                self._run(context, handler.event, cancel))

    async def _run(self, context: LaunchContext, event: Event, cancel: asyncio.Event) -> None:
        try:
            await asyncio.wait_for(cancel.wait(), self._period)
        except asyncio.TimeoutError:
            context.emit_event_sync(event)


class _OnTimer:
    """Answers the event of one timer with its actions."""

    def __init__(self, actions: Sequence[Action]) -> None:
        self.event, self._actions = Event(), actions

    def matches(self, event: Event) -> bool:
        return event is self.event

    def handle(self, event: Event, context: LaunchContext) -> Sequence[Action]:
        return [] if context.is_shutdown else self._actions


def declared_arguments(
    entities: Iterable[LaunchDescriptionEntity], *, in_includes: bool,
) -> Iterator[DeclareLaunchArgument]:
    for entity in entities:
        if isinstance(entity, DeclareLaunchArgument):
            yield entity
        elif in_includes or not isinstance(entity, IncludeLaunchDescription):
            yield from declared_arguments(entity.describe_sub_entities(), in_includes=in_includes)


class LaunchDescription(LaunchDescriptionEntity):
    """Entities in the order in which they are visited."""

    def __init__(self, initial_entities: Iterable[LaunchDescriptionEntity] | None = None) -> None:
        self.entities = list(initial_entities or ())

    def add_action(self, action: LaunchDescriptionEntity) -> None:
        self.entities.append(action)

    def describe_sub_entities(self) -> list[LaunchDescriptionEntity]:
        return self.entities

    def visit(self, context: LaunchContext) -> list[LaunchDescriptionEntity]:
        return self.entities

    def get_launch_arguments(self) -> list[DeclareLaunchArgument]:
        found: dict[str, DeclareLaunchArgument] = {}
        for argument in declared_arguments(self.entities, in_includes=True):
            found.setdefault(argument.name, argument)
        return list(found.values())
