"""
LaunchService: runs launch descriptions until nothing is left to do or a shutdown is asked for.

It is one loop over the queue of events of the context.  Whatever goes on outside the queue, such
as a process, is a future; a future that is done puts a wake-up in the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging as python_logging
import signal
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from . import logging
from .event import Event
from .event_handler import EventHandler
from .event_handlers import OnShutdown
from .events import IncludeLaunchDescription, Shutdown
from .launch_context import LaunchContext
from .launch_description import LaunchDescription
from .launch_description_entity import LaunchDescriptionEntity
from .utilities import visit_all_entities_and_collect_futures


class LaunchService:
    """
    Visits launch descriptions, handles events, and ends with an exit status.

    SIGINT shuts the launch down in order and leaves the exit status at 0.  SIGTERM, SIGQUIT and
    SIGHUP do the same and make it 1: other than in the real package, which just ends on the
    first two, no process is left behind then.
    """

    def __init__(
        self,
        *,
        argv: Iterable[str] | None = None,
        noninteractive: bool = False,
        debug: bool = False,
    ) -> None:
        """Make the context and the handlers that everything hangs on."""
        logging.launch_config.level = python_logging.DEBUG if debug else python_logging.INFO
        self._debug = debug
        self._logger = logging.get_logger('launch')
        self._context = LaunchContext(argv=argv, noninteractive=noninteractive)
        self._context.register_event_handler(_IncludeHandler())
        self._context.register_event_handler(OnShutdown(on_shutdown=self._note_shutdown))
        self._pending: list[asyncio.Future] = []
        self._shutting_down = False
        self._interrupted = False
        self._return_code = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task | None = None

    @property
    def context(self) -> LaunchContext:
        """The launch context."""
        return self._context

    @property
    def event_loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop while the service is running, or None."""
        return self._loop

    @property
    def task(self) -> asyncio.Task | None:
        """The task that the service is running in, or None."""
        return self._task

    def include_launch_description(self, launch_description: LaunchDescription) -> None:
        """Have a launch description visited; may be called from any thread."""
        self.emit_event(IncludeLaunchDescription(launch_description))

    def emit_event(self, event: Event) -> None:
        """Emit an event; may be called from any thread, and before the service is running."""
        if self._loop is None or self._loop is _running_loop():
            self._context.emit_event_sync(event)
        else:
            self._loop.call_soon_threadsafe(self._context.emit_event_sync, event)

    def shutdown(self, force_sync: bool = False) -> Any | None:
        """
        Ask for a shutdown; does nothing if the service is not running.

        Called in the event loop without `force_sync`, it gives something to await, as the real
        one does.
        """
        if self._loop is None:
            return None
        if self._loop is not _running_loop():
            self._loop.call_soon_threadsafe(self._shut_down, 'LaunchService.shutdown() called')
            return None
        self._shut_down('LaunchService.shutdown() called')
        return None if force_sync else asyncio.sleep(0)

    def run(self, *, shutdown_when_idle: bool = True) -> int:
        """Run in an event loop of its own; see `run_async`."""
        return asyncio.run(self.run_async(shutdown_when_idle=shutdown_when_idle))

    async def run_async(self, *, shutdown_when_idle: bool = True) -> int:
        """Run until shut down, and give the exit status: 1 if there was an error."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError('LaunchService can only be run in the main thread.')
        if self._loop is not None:
            raise RuntimeError('LaunchService cannot be run multiple times concurrently.')
        self._loop = asyncio.get_running_loop()
        self._loop.set_debug(self._debug)
        self._loop.set_exception_handler(self._on_loop_exception)
        self._task = asyncio.current_task()
        self._context._set_asyncio_loop(self._loop)
        self._return_code = 0
        try:
            with self._signal_handlers(self._loop):
                logging.log_launch_config(logger=self._logger)
                await self._handle_events(shutdown_when_idle)
        finally:
            self._context._set_asyncio_loop(None)
            self._loop = None
            self._shutting_down = False
        return self._return_code

    async def _handle_events(self, shutdown_when_idle: bool) -> None:
        queue = self._context._event_queue
        while True:
            try:
                self._drop_finished()
                if not self._pending and queue.empty():
                    if self._shutting_down:
                        return
                    if shutdown_when_idle:
                        self._shut_down('idle')
                event = await queue.get()
                if event is not None:
                    self._handle(event)
            except asyncio.CancelledError:
                # Somebody cancels the task that the service runs in: bring the processes down
                # nevertheless.
                self._logger.error('run task was canceled')
                self._return_code = 1
                self._shut_down('run task was canceled')
            except Exception as error:
                message = f'Caught exception in launch (see debug for traceback): {error}'
                self._logger.debug('traceback:', exc_info=True)
                self._logger.error(message)
                self._return_code = 1
                self._shut_down(message)

    def _handle(self, event: Event) -> None:
        self._logger.debug("processing event: '%s'", event)
        for handler in tuple(self._context._event_handlers):
            if not handler.matches(event):
                continue
            self._context._push_locals()
            try:
                entities = handler.handle(event, self._context)
                if entities is None or isinstance(entities, LaunchDescriptionEntity):
                    entities = [] if entities is None else [entities]
                for entity in entities:
                    if entity is not None:
                        self._visit(entity)
            finally:
                self._context._pop_locals()

    def _visit(self, entity: LaunchDescriptionEntity) -> None:
        if not isinstance(entity, LaunchDescriptionEntity):
            raise RuntimeError(
                f"expected a LaunchDescriptionEntity from event_handler, got '{entity}'"
            )
        for _, future in visit_all_entities_and_collect_futures(entity, self._context):
            self._pending.append(future)
            future.add_done_callback(lambda _: self._context._event_queue.put_nowait(None))

    def _drop_finished(self) -> None:
        """Forget the futures that are done; raise the first exception that is in one."""
        pending = self._pending + self._context._completion_futures
        self._context._completion_futures.clear()
        self._pending = [future for future in pending if not future.done()]
        errors = [
            future.exception()
            for future in pending
            if future.done() and not future.cancelled() and future.exception() is not None
        ]
        for error in errors[1:]:
            self._logger.error(error)
        if errors and errors[0] is not None:
            raise errors[0]

    def _on_loop_exception(self, loop: Any, details: dict[str, Any]) -> None:
        self._return_code = 1
        loop.default_exception_handler(details)

    def _note_shutdown(self, event: Event, context: LaunchContext) -> None:
        self._shutting_down = True
        context._set_is_shutdown(True)

    def _shut_down(self, reason: str, *, due_to_sigint: bool = False) -> None:
        if not self._shutting_down:
            self._context.emit_event_sync(Shutdown(reason=reason, due_to_sigint=due_to_sigint))
        self._shutting_down = True
        self._context._set_is_shutdown(True)

    def _on_signal(self, signum: signal.Signals) -> None:
        if signum != signal.SIGINT:
            self._logger.error(f'received {signum.name}, shutting down...')
            self._return_code = 1
            self._shut_down(f'received {signum.name}')
            return
        message = 'user interrupted with ctrl-c (SIGINT)'
        if self._interrupted:
            self._logger.warning(f'{message} again, ignoring...')
            return
        self._logger.warning(message)
        self._interrupted = True
        self._shut_down('ctrl-c (SIGINT)', due_to_sigint=True)

    @contextlib.contextmanager
    def _signal_handlers(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        before = {
            signum: signal.getsignal(signum)
            for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)
        }
        if before[signal.SIGHUP] is signal.SIG_IGN:
            # This is what nohup asks for.
            del before[signal.SIGHUP]
        for signum in before:
            loop.add_signal_handler(signum, self._on_signal, signum)
        try:
            yield
        finally:
            for signum, handler in before.items():
                loop.remove_signal_handler(signum)
                signal.signal(signum, handler if handler is not None else signal.SIG_DFL)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class _IncludeHandler(EventHandler):
    """Visits the launch description of an IncludeLaunchDescription event."""

    def __init__(self) -> None:
        super().__init__(matcher=lambda event: isinstance(event, IncludeLaunchDescription))

    def handle(self, event: Any, context: LaunchContext) -> LaunchDescription:
        super().handle(event, context)
        return event.launch_description
