"""LaunchContext: the state of a running launch that actions and substitutions work on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, MutableMapping
from types import SimpleNamespace
from typing import Any

from ._missing import missing_names
from .event import Event

__all__ = ['LaunchContext']


class LaunchContext:
    """Launch configurations, environment, event handlers and event queue of a launch.

    The environment is that of this process.
    """

    def __init__(self, *, argv: Iterable[str] | None = None, noninteractive: bool = False) -> None:
        self.argv = [] if argv is None else argv
        self.noninteractive = noninteractive
        self.launch_configurations: dict[str, Any] = {}
        self.is_shutdown = False
        self.asyncio_loop: Any = None
        self._scopes: list[tuple[dict[str, Any], dict[str, str]]] = []
        self._locals: dict[str, Any] = {}
        self._event_handlers: list[Any] = []
        # None wakes the launch service up.
        self._event_queue: asyncio.Queue[Event | None] = asyncio.Queue()

    @property
    def environment(self) -> MutableMapping[str, str]:
        """The environment of this process."""
        return os.environ

    @property
    def locals(self) -> Any:
        """What event handlers leave for the actions that they return, as attributes."""
        return SimpleNamespace(**self._locals)

    def extend_locals(self, extensions: dict[str, Any]) -> None:
        """Add locals, which last while the event is handled."""
        self._locals.update(extensions)

    def get_locals_as_dict(self) -> dict[str, Any]:
        """Return a copy of the locals."""
        return dict(self._locals)

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

    def perform_substitution(self, substitution: Any) -> str:
        """Return the text of a substitution."""
        return substitution.perform(self)


__getattr__ = missing_names(__name__)
