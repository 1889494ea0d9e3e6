"""LaunchService: runs a launch description until nothing is left to do, or a shutdown."""

import asyncio
import logging as python_logging
import signal
from collections.abc import Iterable
from types import SimpleNamespace

from . import logging
from ._core import Event, LaunchContext, LaunchDescriptionEntity
from .event_handlers import OnShutdown
from .events import Shutdown


class LaunchService:
    """Visits a launch description and handles events; the exit status is 1 after an error.

    SIGINT shuts the launch down in order, with exit status 0. SIGTERM, SIGQUIT and SIGHUP do the
    same with exit status 1. The real package leaves processes behind on SIGTERM and SIGQUIT.
    """

    def __init__(
        self, *, argv: Iterable[str] | None = None, noninteractive: bool = False,
        debug: bool = False,
    ) -> None:
        python_logging.root.setLevel(python_logging.DEBUG if debug else python_logging.INFO)
        self._logger = logging.get_logger('launch')
        self.context = LaunchContext(argv=argv, noninteractive=noninteractive)
        self.context.register_event_handler(OnShutdown(on_shutdown=self._on_shutdown))
        self._descriptions: list[LaunchDescriptionEntity] = []
        self._pending: list[asyncio.Future] = []
        self._interrupted = False
        self._return_code = 0

    def include_launch_description(self, launch_description: LaunchDescriptionEntity) -> None:
        """Add a launch description; before the service runs."""
        self._descriptions.append(launch_description)

    def run(self) -> int:
        return asyncio.run(self._run())

    async def _run(self) -> int:
        loop = self.context.asyncio_loop = asyncio.get_running_loop()
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
            # nohup ignores SIGHUP.
            if signum != signal.SIGHUP or signal.getsignal(signum) is not signal.SIG_IGN:
                loop.add_signal_handler(signum, self._on_signal, signum)
        self._logger.info(f'All log files can be found below {logging.log_dir()}')
        level = python_logging.getLevelName(python_logging.root.level)
        self._logger.info(f'Default logging verbosity is set to {level}')
        queue = self.context._event_queue
        while True:
            try:
                descriptions, self._descriptions = self._descriptions, []
                self._visit_all(descriptions)
                self._drop_finished()
                if not self._pending and queue.empty():
                    if self.context.is_shutdown:
                        return self._return_code
                    self._shut_down('idle')
                event = await queue.get()
                if event is not None:
                    self._handle(event)
            except Exception as error:
                message = f'Caught exception in launch (see debug for traceback): {error}'
                self._logger.debug('traceback:', exc_info=True)
                self._logger.error(message)
                self._return_code = 1
                self._shut_down(message)

    def _handle(self, event: Event) -> None:
        for handler in tuple(self.context._event_handlers):
            if not handler.matches(event):
                continue
            outer, self.context.locals = self.context.locals, SimpleNamespace(event=event)
            try:
                entities = handler.handle(event, self.context)
                if isinstance(entities, LaunchDescriptionEntity):
                    entities = [entities]
                self._visit_all(entities)
            finally:
                self.context.locals = outer

    def _visit_all(self, entities: Iterable[LaunchDescriptionEntity] | None) -> None:
        for entity in entities or ():
            if not isinstance(entity, LaunchDescriptionEntity):
                raise TypeError(f'{entity!r} is neither an action nor a launch description')
            following = entity.visit(self.context)
            future = entity.get_asyncio_future()
            if future is not None:
                self._pending.append(future)
                future.add_done_callback(lambda _: self.context._event_queue.put_nowait(None))
            self._visit_all(following)

    def _drop_finished(self) -> None:
        finished = [future for future in self._pending if future.done()]
        self._pending = [future for future in self._pending if not future.done()]
        for future in finished:
            future.result()

    def _on_shutdown(self, event: Event, context: LaunchContext) -> None:
        context.is_shutdown = True

    def _shut_down(self, reason: str, *, due_to_sigint: bool = False) -> None:
        if not self.context.is_shutdown:
            self.context.emit_event_sync(Shutdown(reason=reason, due_to_sigint=due_to_sigint))
        self.context.is_shutdown = True

    def _on_signal(self, signum: signal.Signals) -> None:
        message = 'user interrupted with ctrl-c (SIGINT)'
        if signum != signal.SIGINT:
            self._logger.error(f'received {signum.name}, shutting down...')
            self._return_code = 1
            self._shut_down(f'received {signum.name}')
        elif self._interrupted:
            self._logger.warning(f'{message} again, ignoring...')
        else:
            self._logger.warning(message)
            self._interrupted = True
            self._shut_down('ctrl-c (SIGINT)', due_to_sigint=True)
