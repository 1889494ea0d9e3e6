"""LaunchContext: the state of a running launch that actions and substitutions work on."""

from __future__ import annotations

import asyncio
import collections
import os
from collections.abc import Iterable, MutableMapping
from typing import Any

from . import logging
from .event import Event
from .event_handler import BaseEventHandler
from .substitution import Substitution


class Locals:
    """Read-only view of the locals of a context, as attributes."""

    def __init__(self, values: dict[str, Any]) -> None:
        """Keep the values."""
        self.__dict__['_values'] = values

    def __getattr__(self, name: str) -> Any:
        """Look a local up."""
        try:
            return self.__dict__['_values'][name]
        except KeyError:
            known = ', '.join(self.__dict__['_values'])
            raise AttributeError(
                f"context.locals does not contain attribute '{name}', it contains: [{known}]"
            ) from None

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse to change anything."""
        raise AttributeError(f"can't set attribute '{name}', locals are read-only")


class LaunchContext:
    """
    Launch configurations, environment, locals, event handlers and the queue of events.

    The environment is the one of this process, so that whatever runs in the launch sees it.
    """

    def __init__(
        self, *, argv: Iterable[str] | None = None, noninteractive: bool = False
    ) -> None:
        """Begin with no configurations and the environment as it is."""
        self.argv = argv if argv is not None else []
        self.noninteractive = noninteractive
        self.launch_configurations: dict[str, Any] = {}
        self._configurations_stack: list[dict[str, Any]] = []
        self._environment_stack: list[dict[str, str]] = []
        self._first_environment = dict(os.environ)
        self._globals: dict[str, Any] = {}
        self._locals: dict[str, Any] = {}
        self._locals_stack: list[dict[str, Any]] = []
        self._is_shutdown = False
        self._asyncio_loop: asyncio.AbstractEventLoop | None = None
        # None in the queue only wakes the launch service up.
        self._event_queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._event_handlers: collections.deque[BaseEventHandler] = collections.deque()
        self._completion_futures: list[asyncio.Future] = []
        self._logger = logging.get_logger('launch.launch_context')

    @property
    def is_shutdown(self) -> bool:
        """Whether the launch is shutting down."""
        return self._is_shutdown

    def _set_is_shutdown(self, state: bool) -> None:
        self._is_shutdown = state

    @property
    def asyncio_loop(self) -> Any:
        """The event loop of the running launch service, or None."""
        return self._asyncio_loop

    def _set_asyncio_loop(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._asyncio_loop = loop

    def add_completion_future(self, completion_future: asyncio.Future) -> None:
        """Keep the launch from being idle until the future is done."""
        self._completion_futures.append(completion_future)
        completion_future.add_done_callback(lambda _: self._event_queue.put_nowait(None))

    # Locals: what entities yielded by an event handler or an included file can refer to.

    def _push_locals(self) -> None:
        self._locals_stack.append(dict(self._locals))

    def _pop_locals(self) -> None:
        self._locals = self._locals_stack.pop()

    def extend_globals(self, extensions: dict[str, Any]) -> None:
        """Add locals that outlive the handling of an event."""
        self._globals.update(extensions)

    def extend_locals(self, extensions: dict[str, Any]) -> None:
        """Add locals."""
        self._locals.update(extensions)

    def get_locals_as_dict(self) -> dict[str, Any]:
        """Give the locals as a dictionary."""
        return {**self._globals, **self._locals}

    @property
    def locals(self) -> Any:
        """The locals as attributes of an object."""
        return Locals(self.get_locals_as_dict())

    # Scopes of launch configurations and of the environment.

    def _push_launch_configurations(self) -> None:
        self._configurations_stack.append(dict(self.launch_configurations))

    def _pop_launch_configurations(self) -> None:
        if not self._configurations_stack:
            raise RuntimeError('launch_configurations stack unexpectedly empty')
        self.launch_configurations = self._configurations_stack.pop()

    @property
    def environment(self) -> MutableMapping[str, str]:
        """The environment of this process."""
        return os.environ

    def _push_environment(self) -> None:
        self._environment_stack.append(dict(os.environ))

    def _pop_environment(self) -> None:
        if not self._environment_stack:
            raise RuntimeError('environment stack unexpectedly empty')
        self._restore_environment(self._environment_stack.pop())

    def _reset_environment(self) -> None:
        self._restore_environment(self._first_environment)

    def _restore_environment(self, environment: dict[str, str]) -> None:
        os.environ.clear()
        os.environ.update(environment)

    # Events.

    def would_handle_event(self, event: Event) -> bool:
        """Say whether any handler takes the event."""
        return any(handler.matches(event) for handler in self._event_handlers)

    def register_event_handler(
        self, event_handler: BaseEventHandler, append: bool = False
    ) -> None:
        """Add a handler: by default before, with `append` after all the others."""
        if append:
            self._event_handlers.append(event_handler)
        else:
            self._event_handlers.appendleft(event_handler)

    def unregister_event_handler(self, event_handler: BaseEventHandler) -> None:
        """Remove a handler; ValueError if it is not there."""
        self._event_handlers.remove(event_handler)

    def emit_event_sync(self, event: Event) -> None:
        """Put an event in the queue; to be called in the thread of the event loop."""
        self._logger.debug("emitting event: '%s'", event.name)
        self._event_queue.put_nowait(event)

    async def emit_event(self, event: Event) -> None:
        """Put an event in the queue, from a coroutine."""
        self.emit_event_sync(event)

    def perform_substitution(self, substitution: Substitution) -> str:
        """Work out the text of a substitution."""
        return substitution.perform(self)
