"""ExecuteProcess: runs a program, logs its output, and stops it when the launch shuts down.

A process gets SIGINT, after `sigterm_timeout` seconds SIGTERM, and after `sigkill_timeout` more
SIGKILL. After a Ctrl-C the SIGINT is left out, since the terminal has sent one to the process as
well, and a second one would interrupt its orderly end. It is sent nevertheless if the launch is
noninteractive or not in the foreground of the terminal.
"""

import asyncio
import codecs
import contextlib
import itertools
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from . import logging
from ._core import Action, LaunchContext, SomeSubstitutionsType, normalize, perform
from .event_handlers import OnProcessExit, OnShutdown
from .events import Shutdown
from .events.process import ProcessExited
from .substitutions import LaunchConfiguration

# How long to wait for the output of a process that has ended: its children may keep pipes open.
_DRAIN_SECONDS = 0.5
_numbers = itertools.count(1)


class _Process(asyncio.SubprocessProtocol):
    """A running process, whose output is passed on by lines.

    It stays in the process group of the launch, so that the terminal and whatever ends a process
    group reach it.
    """

    def __init__(
        self, on_start: Callable[['_Process'], None], writers: dict[int, Callable[[str], None]],
    ) -> None:
        self.pid = 0
        self.exited = asyncio.Event()
        self._on_start = on_start
        self._writers = writers
        self._decoders = {fd: codecs.getincrementaldecoder('utf-8')('replace') for fd in writers}
        self._rests = dict.fromkeys(writers, '')
        self._open = set(writers)
        self._drained = asyncio.Event()
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.pid = transport.get_pid()
        self._on_start(self)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        text = self._rests[fd] + self._decoders[fd].decode(data)
        *lines, self._rests[fd] = text.split('\n')
        for line in lines:
            self._writers[fd](line.removesuffix('\r'))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        if not self._open:
            self._drained.set()

    def process_exited(self) -> None:
        self.exited.set()

    async def wait(self) -> int:
        """Return the exit status once the process has ended and its output is written."""
        await self.exited.wait()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._drained.wait(), _DRAIN_SECONDS)
        for fd, rest in self._rests.items():
            if rest:
                self._writers[fd](rest)
        returncode = self._transport.get_returncode()
        self._transport.close()
        return returncode

    def send_signal(self, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if not self.exited.is_set():
                self._transport.send_signal(signum)


class ExecuteProcess(Action):
    """Runs a command line.

    Args:
        name: of the process; a number follows it.
        output: 'screen', 'log' or 'both'.
        on_exit: actions when the process has ended; see OnProcessExit.
        sigterm_timeout: seconds from SIGINT to SIGTERM, 5 by default.
        sigkill_timeout: seconds from SIGTERM to SIGKILL, 5 by default.
    """

    def __init__(
        self,
        *,
        cmd: Iterable[SomeSubstitutionsType],
        name: SomeSubstitutionsType | None = None,
        output: SomeSubstitutionsType = 'log',
        on_exit: Any = None,
        sigterm_timeout: SomeSubstitutionsType | float | None = None,
        sigkill_timeout: SomeSubstitutionsType | float | None = None,
    ) -> None:
        self._cmd = [normalize(part) for part in cmd]
        self._name = None if name is None else normalize(name)
        self._output = normalize(output)
        self._on_exit = on_exit
        self._sigterm_timeout = _timeout('sigterm_timeout', sigterm_timeout)
        self._sigkill_timeout = _timeout('sigkill_timeout', sigkill_timeout)
        self._details: dict[str, Any] = {}
        self._finished: asyncio.Future | None = None
        self._stop_with_sigint = True

    def get_asyncio_future(self) -> asyncio.Future | None:
        return self._finished

    @property
    def process_details(self) -> dict[str, Any] | None:
        """Name, command and environment of the process, its pid once it runs; None before."""
        return self._details or None

    def command(self, context: LaunchContext) -> list[str]:
        return [perform(context, part) for part in self._cmd]

    def execute(self, context: LaunchContext) -> None:
        """Start the process, unless the launch is shutting down."""
        cmd = self.command(context)
        name = os.path.basename(cmd[0]) if self._name is None else perform(context, self._name)
        name = f'{name}-{next(_numbers)}'
        if self._details:
            raise RuntimeError(f"action '{self._details['name']}' was executed more than once")
        self._details = {'action': self, 'name': name, 'cmd': cmd, 'cwd': None,
                         'env': dict(context.environment)}
        if context.is_shutdown:
            return
        self._logger = logging.get_logger(name)
        self._writers = logging.output_writers(name, perform(context, self._output))
        self._sigterm_s = float(perform(context, self._sigterm_timeout))
        self._sigkill_s = float(perform(context, self._sigkill_timeout))
        self._stop = asyncio.Event()
        context.register_event_handler(OnShutdown(on_shutdown=self._on_shutdown))
        context.register_event_handler(OnProcessExit(target_action=self, on_exit=self._on_exit))
        self._finished = context.asyncio_loop.create_task(self._run(context))

    async def _run(self, context: LaunchContext) -> None:
        process = None if self._stop.is_set() else await self._start()
        if process is None:
            return
        escalation = asyncio.create_task(self._stop_on_shutdown(process))
        try:
            returncode = await process.wait()
        finally:
            escalation.cancel()
        if returncode == 0:
            self._logger.info(f'process has finished cleanly [pid {process.pid}]')
        else:
            self._logger.error(f'process has died [pid {process.pid}, exit code {returncode}, '
                               f"cmd '{' '.join(self._details['cmd'])}'].")
        context.emit_event_sync(
            ProcessExited(**self._details, returncode=returncode))

    async def _start(self) -> _Process | None:
        def on_start(process: _Process) -> None:
            self._details['pid'] = process.pid
            self._logger.info(f'process started with pid [{process.pid}]')

        try:
            _, process = await asyncio.get_running_loop().subprocess_exec(
                lambda: _Process(on_start, self._writers), *self._details['cmd'],
                env=self._details['env'])
        except Exception:
            self._logger.error(
                f'exception occurred while executing process:\n{traceback.format_exc()}')
            return None
        return process

    def _on_shutdown(self, event: Shutdown, context: LaunchContext) -> None:
        if not self._stop.is_set():
            self._stop_with_sigint = (
                not event.due_to_sigint or context.noninteractive or not _in_foreground())
            self._stop.set()

    async def _stop_on_shutdown(self, process: _Process) -> None:
        await self._stop.wait()
        if self._stop_with_sigint:
            self._signal(process, 'SIGINT')
        await asyncio.sleep(self._sigterm_s)
        self._escalate(process, self._sigterm_s, 'SIGINT', 'SIGTERM')
        await asyncio.sleep(self._sigkill_s)
        self._escalate(process, self._sigterm_s + self._sigkill_s, 'SIGTERM', 'SIGKILL')

    def _escalate(self, process: _Process, seconds: float, sent: str, following: str) -> None:
        if process.exited.is_set():
            return
        self._logger.error(
            f"process[{self._details['name']}] failed to terminate '{seconds:g}' seconds after "
            f"receiving '{sent}', escalating to '{following}'")
        self._signal(process, following)

    def _signal(self, process: _Process, name: str) -> None:
        self._logger.info(f"sending signal '{name}' to process[{self._details['name']}]")
        process.send_signal(signal.Signals[name])


def _timeout(name: str, seconds: Any) -> Any:
    if seconds is None:
        return normalize(LaunchConfiguration(name, default='5'))
    return normalize(str(seconds) if isinstance(seconds, (int, float)) else seconds)


def _in_foreground() -> bool:
    """Return whether the terminal sends the signal of a Ctrl-C to the processes of the launch."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError, AttributeError):
        return False
