"""
ExecuteLocal: runs a program, logs what it writes, and brings it down when the launch ends.

A process is asked to end with SIGINT, then with SIGTERM, then killed; the seconds in between are
`sigterm_timeout` and `sigkill_timeout`.  The SIGINT is left out after a Ctrl-C, for then the
terminal has sent one to the process as well, and a second one would interrupt it while it is
ending.  It is sent all the same if the launch is not interactive or not in the foreground of the
terminal, since then the first one cannot have come from there.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from .. import logging
from .._child import Child, LineSplitter
from ..action import Action
from ..conditions import evaluate_condition_expression
from ..descriptions import Executable
from ..event_handler import EventHandler
from ..event_handlers import OnProcessExit, OnProcessIO, OnShutdown
from ..events import Shutdown
from ..events.process import (
    ProcessExited,
    ProcessIO,
    ProcessStarted,
    ProcessStderr,
    ProcessStdout,
    ShutdownProcess,
    SignalProcess,
)
from ..launch_context import LaunchContext
from ..launch_description_entity import LaunchDescriptionEntity
from ..some_substitutions_type import SomeSubstitutionsType
from ..substitutions import LaunchConfiguration
from ..utilities import normalize_to_list_of_substitutions, perform_substitutions
from ..utilities.type_utils import normalize_typed_substitution, perform_typed_substitution
from .flow import OpaqueFunction


def _terminal_sends_sigint() -> bool:
    """Say whether a Ctrl-C of the terminal goes to the process group of the launch."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError, AttributeError):
        return False


class ExecuteLocal(Action):
    """Runs an Executable."""

    def __init__(
        self,
        *,
        process_description: Executable,
        shell: bool = False,
        sigterm_timeout: SomeSubstitutionsType | None = None,
        sigkill_timeout: SomeSubstitutionsType | None = None,
        emulate_tty: bool = False,
        output: Any = 'log',
        output_format: str = '[{this.process_description.final_name}] {line}',
        cached_output: bool = False,
        log_cmd: bool = False,
        on_exit: Any = None,
        respawn: bool | SomeSubstitutionsType = False,
        respawn_delay: float | None = None,
        respawn_max_retries: int = -1,
        **kwargs: Any,
    ) -> None:
        """Keep the options; a negative number of retries means no end of them."""
        super().__init__(**kwargs)
        self.process_description = process_description
        self.shell = shell
        self.sigterm_timeout = _timeout('sigterm_timeout', sigterm_timeout)
        self.sigkill_timeout = _timeout('sigkill_timeout', sigkill_timeout)
        self.emulate_tty = emulate_tty
        output = os.environ.get('OVERRIDE_LAUNCH_PROCESS_OUTPUT', output)
        self.output: Any = (
            output if isinstance(output, dict) else normalize_to_list_of_substitutions(output)
        )
        self.process_details: dict[str, Any] | None = None
        self._output_format = output_format
        self._cached_output = cached_output
        self._log_cmd = log_cmd
        self._on_exit = on_exit
        self._respawn = normalize_typed_substitution(respawn, bool)
        self._respawn_delay = respawn_delay or 0.0
        self._respawn_max_retries = respawn_max_retries
        self._respawns = 0
        self._child: Child | None = None
        self._streams: dict[int, LineSplitter] = {}
        self._finished: asyncio.Future | None = None
        # Set once the process is to be brought down; whether with a SIGINT is in the next one.
        self._stop: asyncio.Event | None = None
        self._stop_with_sigint = True
        self._was_executed = False

    # What the action is and does, as seen from outside.

    def get_sub_entities(self) -> list[LaunchDescriptionEntity]:
        """List the actions that the end of the process leads to."""
        return self._on_exit if isinstance(self._on_exit, list) else []

    def get_asyncio_future(self) -> asyncio.Future | None:
        """Give the future that is done when the process has ended and is not started again."""
        return self._finished

    @property
    def return_code(self) -> int | None:
        """The exit status of the process, or None if it has not ended."""
        return None if self._child is None else self._child.returncode

    def get_stdout(self) -> str:
        """Give what was written to stdout; needs `cached_output`."""
        return self._cached(1)

    def get_stderr(self) -> str:
        """Give what was written to stderr; needs `cached_output`."""
        return self._cached(2)

    def _cached(self, fd: int) -> str:
        if not self._cached_output:
            raise RuntimeError('cached output must be true to be able to get what was written')
        return self._streams[fd].text if fd in self._streams else ''

    def prepare(self, context: LaunchContext) -> None:
        """Perform the substitutions of the command."""
        self.process_description.prepare(context, self)

    def execute(self, context: LaunchContext) -> None:
        """Start the process, unless the launch is shutting down already."""
        self.prepare(context)
        final = self.process_description
        name = final.final_name
        if self._was_executed:
            raise RuntimeError(f"ExecuteLocal action '{name}': executed more than once")
        self._was_executed = True
        if name is None or context.is_shutdown:
            return
        self.process_details = {
            'action': self,
            'name': name,
            'cmd': final.final_cmd,
            'cwd': final.final_cwd,
            'env': final.final_env,
        }
        self._logger = logging.get_logger(name)
        output = self.output
        if not isinstance(output, dict):
            output = perform_substitutions(context, output)
        for fd, write in enumerate(logging.output_writers(name, output), 1):
            self._streams[fd] = LineSplitter(functools.partial(self._write_line, write))
        respawn = perform_typed_substitution(context, self._respawn, bool)
        self._register_event_handlers(context)
        self._stop = asyncio.Event()
        self._finished = context.asyncio_loop.create_future()
        self._task = context.asyncio_loop.create_task(self._run(context, respawn))
        self._task.add_done_callback(self._finish)

    def _write_line(self, write: Callable[[str], None], line: str) -> None:
        write(self._output_format.format(line=line, this=self))

    def _finish(self, task: asyncio.Task) -> None:
        assert self._finished is not None
        error = None if task.cancelled() else task.exception()
        if error is None:
            self._finished.set_result(None)
        else:
            self._finished.set_exception(error)

    # The course of the process.

    async def _run(self, context: LaunchContext, respawn: bool) -> None:
        assert self._stop is not None
        while not self._stop.is_set():
            child = await self._start(context)
            if child is None:
                return
            escalation = asyncio.create_task(self._bring_down_when_asked(context, child))
            try:
                returncode = await child.wait()
                if self._stop.is_set():
                    await child.wait_for_group()
            finally:
                escalation.cancel()
            self._report_exit(child.pid, returncode)
            context.emit_event_sync(ProcessExited(returncode=returncode, **self._details))
            child.close()
            retries_left = self._respawns < self._respawn_max_retries
            if not respawn or not (retries_left or self._respawn_max_retries < 0):
                return
            self._respawns += 1
            try:
                await asyncio.wait_for(self._stop.wait(), self._respawn_delay)
            except asyncio.TimeoutError:
                # Nobody asked for an end in the meantime.
                continue

    @property
    def _details(self) -> dict[str, Any]:
        assert self.process_details is not None
        return self.process_details

    async def _start(self, context: LaunchContext) -> Child | None:
        details = self._details
        if self._log_cmd:
            self._logger.info(
                f"process details: cmd='{_join(details['cmd'])}', cwd='{details['cwd']}', "
                f"custom_env?={details['env'] is not None}"
            )
        emulate_tty = self.emulate_tty
        if 'emulate_tty' in context.launch_configurations:
            emulate_tty = evaluate_condition_expression(
                context,
                normalize_to_list_of_substitutions(context.launch_configurations['emulate_tty']),
            )

        def on_start(child: Child) -> None:
            self._child = child
            self._logger.info(f'process started with pid [{child.pid}]')
            details['pid'] = child.pid
            context.emit_event_sync(ProcessStarted(**details))

        def on_output(fd: int, data: bytes) -> None:
            event = ProcessStdout if fd == 1 else ProcessStderr
            context.emit_event_sync(event(text=data, **details))

        child = Child(on_start, on_output)
        try:
            await child.start(
                details['cmd'],
                cwd=details['cwd'],
                env=details['env'],
                shell=self.shell,
                emulate_tty=emulate_tty,
            )
        except Exception:
            self._logger.error(
                f'exception occurred while executing process:\n{traceback.format_exc()}'
            )
            return None
        return child

    def _report_exit(self, pid: int, returncode: int) -> None:
        if returncode == 0:
            self._logger.info(f'process has finished cleanly [pid {pid}]')
        else:
            self._logger.error(
                f'process has died [pid {pid}, exit code {returncode}, '
                f"cmd '{_join(self._details['cmd'])}']."
            )

    async def _bring_down_when_asked(self, context: LaunchContext, child: Child) -> None:
        assert self._stop is not None
        await self._stop.wait()
        if self._stop_with_sigint or child.owns_group:
            self._signal('SIGINT')
        text = perform_substitutions(context, self.sigterm_timeout)
        seconds = float(text)
        await asyncio.sleep(seconds)
        if child.is_gone():
            return
        self._report_escalation(text, 'SIGINT', 'SIGTERM')
        self._signal('SIGTERM')
        more_seconds = float(perform_substitutions(context, self.sigkill_timeout))
        await asyncio.sleep(more_seconds)
        if child.is_gone():
            return
        self._report_escalation(str(seconds + more_seconds), 'SIGTERM', 'SIGKILL')
        self._signal('SIGKILL')

    def _report_escalation(self, seconds: str, sent: str, next_one: str) -> None:
        self._logger.error(
            f"process[{self._details['name']}] failed to terminate '{seconds}' seconds after "
            f"receiving '{sent}', escalating to '{next_one}'"
        )

    def _signal(self, name: str) -> None:
        assert self._child is not None
        self._logger.info(f"sending signal '{name}' to process[{self._details['name']}]")
        self._child.send(signal.Signals[name])

    # Events that concern the process.

    def _register_event_handlers(self, context: LaunchContext) -> None:
        # The last one registered is the first to see an event: what the process wrote last is
        # out before anything is done about its end.
        for handler in (
            EventHandler(
                matcher=lambda event: isinstance(event, ShutdownProcess),
                entities=OpaqueFunction(function=self._on_shutdown_process),
            ),
            EventHandler(
                matcher=lambda event: isinstance(event, SignalProcess),
                entities=OpaqueFunction(function=self._on_signal_process),
            ),
            OnProcessIO(target_action=self, on_stdout=self._on_output, on_stderr=self._on_output),
            OnShutdown(on_shutdown=self._on_shutdown),
            OnProcessExit(target_action=self, on_exit=self._on_exit),
            OnProcessExit(target_action=self, on_exit=self._flush),
        ):
            context.register_event_handler(handler)

    def _on_output(self, event: ProcessIO) -> None:
        self._streams[1 if event.from_stdout else 2].feed(event.text, keep=self._cached_output)

    def _flush(self, event: ProcessExited, context: LaunchContext) -> None:
        for stream in self._streams.values():
            stream.flush()

    def _on_shutdown(self, event: Shutdown, context: LaunchContext) -> None:
        by_terminal = (
            event.due_to_sigint and not context.noninteractive and _terminal_sends_sigint()
        )
        self._ask_to_stop(with_sigint=not by_terminal)

    def _on_shutdown_process(self, context: LaunchContext) -> None:
        if context.locals.event.process_matcher(self):
            self._ask_to_stop(with_sigint=True)

    def _ask_to_stop(self, *, with_sigint: bool) -> None:
        if self._stop is not None and not self._stop.is_set():
            self._stop_with_sigint = with_sigint
            self._stop.set()

    def _on_signal_process(self, context: LaunchContext) -> None:
        event = context.locals.event
        if not event.process_matcher(self):
            return
        if self._child is None:
            raise RuntimeError('Signal event received before subprocess transport available.')
        if not self._child.exited.is_set():
            self._signal(event.signal_name)


def _timeout(name: str, seconds: Any) -> Any:
    if seconds is None:
        seconds = LaunchConfiguration(name, default='5')
    elif isinstance(seconds, (int, float)):
        seconds = str(seconds)
    return normalize_to_list_of_substitutions(seconds)


def _join(cmd: Iterable[str]) -> str:
    return ' '.join(part for part in cmd if part.strip())
