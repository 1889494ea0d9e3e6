"""What the modules of `launch` share: context, events, entities, and texts known while it runs."""

import asyncio
import os
from collections.abc import Iterable, MutableMapping, Sequence
from types import SimpleNamespace
from typing import Any

ADVICE = ('is not part of this stand-in for the ROS 2 launch system; '
          'source a ROS 2 distribution to use the real package')


class Event:
    """Something that happened in a launch and that event handlers react to."""


class LaunchContext:
    """Launch configurations, environment, event handlers and event queue of a launch.

    The environment is that of this process. ``locals`` has the event that is being handled.
    """

    def __init__(self, *, argv: Iterable[str] | None = None, noninteractive: bool = False) -> None:
        self.argv = [] if argv is None else argv
        self.noninteractive = noninteractive
        self.launch_configurations: dict[str, Any] = {}
        self.is_shutdown = False
        self.asyncio_loop: Any = None
        self.locals = SimpleNamespace()
        self._scopes: list[tuple[dict[str, Any], dict[str, str]]] = []
        self._event_handlers: list[Any] = []
        # None wakes the launch service up.
        self._event_queue: asyncio.Queue[Event | None] = asyncio.Queue()

    @property
    def environment(self) -> MutableMapping[str, str]:
        return os.environ

    def _push_scope(self) -> None:
        self._scopes.append((dict(self.launch_configurations), dict(os.environ)))

    def _pop_scope(self) -> None:
        self.launch_configurations, environment = self._scopes.pop()
        os.environ.clear()
        os.environ.update(environment)

    def register_event_handler(self, event_handler: Any) -> None:
        """Add an event handler before all others."""
        self._event_handlers.insert(0, event_handler)

    def emit_event_sync(self, event: Event) -> None:
        """Put an event into the queue; only for the thread of the event loop."""
        self._event_queue.put_nowait(event)

    def perform_substitution(self, substitution: 'Substitution') -> str:
        return substitution.perform(self)


class LaunchDescriptionEntity:
    """An action or a launch description."""

    def describe_sub_entities(self) -> Sequence['LaunchDescriptionEntity']:
        return []

    def visit(self, context: LaunchContext) -> 'Sequence[LaunchDescriptionEntity] | None':
        return None

    def get_asyncio_future(self) -> asyncio.Future | None:
        return None


class Action(LaunchDescriptionEntity):
    """Base of the actions."""

    def visit(self, context: LaunchContext) -> Sequence[LaunchDescriptionEntity] | None:
        return self.execute(context)

    def execute(self, context: LaunchContext) -> Sequence[LaunchDescriptionEntity] | None:
        return None


class Substitution:
    """A text that is known once the launch is running."""

    def describe(self) -> str:
        return repr(self)

    def perform(self, context: LaunchContext) -> str:
        raise NotImplementedError


SomeSubstitutionsType = str | Substitution | Iterable[str | Substitution]


class TextSubstitution(Substitution):
    """A constant text."""

    def __init__(self, *, text: str) -> None:
        self.text = text

    def describe(self) -> str:
        return f"'{self.text}'"

    def perform(self, context: LaunchContext) -> str:
        return self.text


def normalize(some: SomeSubstitutionsType) -> list[Substitution]:
    """Return a text, a substitution, or a sequence of both as a list of substitutions."""
    items = [some] if isinstance(some, (str, Substitution)) else list(some)
    result = [TextSubstitution(text=item) if isinstance(item, str) else item for item in items]
    for item in result:
        if not isinstance(item, Substitution):
            raise TypeError(f'{item!r} is neither a text nor a substitution')
    return result


def perform(context: LaunchContext, substitutions: Sequence[Substitution]) -> str:
    return ''.join(context.perform_substitution(each) for each in substitutions)


def describe(substitutions: Sequence[Substitution]) -> str:
    return ' + '.join(each.describe() for each in substitutions)
