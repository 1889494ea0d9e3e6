"""Child: a process that was started, what it writes, and how it is brought to an end."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

# How long after the end of a process its output is waited for.  The pipes may stay open for as
# long as a process lives that it has started itself.
_DRAIN_SECONDS = 0.5
# How often the group of a shell is looked at after the end of the shell.
_GROUP_POLL_SECONDS = 0.05

OnOutput = Callable[[int, bytes], None]


class _Protocol(asyncio.SubprocessProtocol):
    """Passes on what comes through pipes, and the end of the process."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def connection_made(self, transport: Any) -> None:
        self._child.on_connected(transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._child.on_output(fd, data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._child.on_closed(fd)

    def process_exited(self) -> None:
        self._child.exited.set()


class _TerminalProtocol(asyncio.Protocol):
    """Passes on what comes through a pseudo terminal, whose end is an error of the system."""

    def __init__(self, child: Child, fd: int) -> None:
        self._child = child
        self._fd = fd

    def data_received(self, data: bytes) -> None:
        self._child.on_output(self._fd, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._child.on_closed(self._fd)


class Child:
    """
    A process with its two output streams.

    It stays in the process group of the launch, so that the terminal and whatever cleans up by
    process group reach it.  Only a shell gets a group of its own, as what it runs has to be
    signalled along with it.
    """

    def __init__(self, on_start: Callable[[Child], None], on_output: OnOutput) -> None:
        """Have the start passed on, and then the bytes written on stdout (1) and stderr (2)."""
        self.on_start = on_start
        self.on_output = on_output
        self.exited = asyncio.Event()
        self.pid = 0
        self.owns_group = False
        self._open_streams = {1, 2}
        self._drained = asyncio.Event()
        self._transport: Any = None
        self._terminals: list[Any] = []
        self._killed = False

    async def start(
        self,
        cmd: list[str],
        *,
        cwd: str | None,
        env: dict[str, str] | None,
        shell: bool,
        emulate_tty: bool,
    ) -> None:
        """Start the process; raises what the system says if it cannot be."""
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {'cwd': cwd, 'env': env, 'start_new_session': shell}
        masters: dict[int, int] = {}
        try:
            if emulate_tty:
                for fd, name in ((1, 'stdout'), (2, 'stderr')):
                    masters[fd], options[name] = os.openpty()
            self.owns_group = shell
            if shell:
                await loop.subprocess_shell(lambda: _Protocol(self), ' '.join(cmd), **options)
            else:
                await loop.subprocess_exec(lambda: _Protocol(self), *cmd, **options)
        except BaseException:
            for master in masters.values():
                os.close(master)
            raise
        finally:
            for name in ('stdout', 'stderr'):
                if name in options:
                    os.close(options[name])
        # What was written to the terminals in the meantime waits there.
        for fd, master in masters.items():
            terminal = _TerminalProtocol(self, fd)
            transport, _ = await loop.connect_read_pipe(
                lambda terminal=terminal: terminal,  # type: ignore[misc]
                os.fdopen(master, 'rb', 0),
            )
            self._terminals.append(transport)

    def on_connected(self, transport: Any) -> None:
        """Take note of the start of the process, which is before any of its output."""
        self._transport = transport
        self.pid = transport.get_pid()
        self.on_start(self)

    def on_closed(self, fd: int) -> None:
        """Take note of the end of an output stream."""
        self._open_streams.discard(fd)
        if not self._open_streams:
            self._drained.set()

    async def wait(self) -> int:
        """Wait for the end of the process and of its output, and give the exit status."""
        await self.exited.wait()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._drained.wait(), _DRAIN_SECONDS)
        return self._transport.get_returncode()

    async def wait_for_group(self) -> None:
        """Wait until nothing is left of the group of a shell, or it has been killed."""
        while self.owns_group and not self._killed:
            try:
                os.killpg(self.pid, 0)
            except (ProcessLookupError, PermissionError):
                return
            await asyncio.sleep(_GROUP_POLL_SECONDS)

    def close(self) -> None:
        """Let go of the pipes."""
        for transport in self._terminals:
            transport.close()
        self._transport.close()

    @property
    def returncode(self) -> int | None:
        """The exit status, or None if the process has not ended."""
        return self._transport.get_returncode()

    def is_gone(self) -> bool:
        """Say whether the process has ended; what a shell has started may be left."""
        return self.exited.is_set() and not self.owns_group

    def send(self, signum: int) -> None:
        """Send a signal to the process, and to the group of a shell; it may be gone already."""
        self._killed = self._killed or signum == signal.SIGKILL
        with contextlib.suppress(ProcessLookupError):
            if self.owns_group:
                os.killpg(self.pid, signum)
            elif not self.exited.is_set():
                self._transport.send_signal(signum)


class LineSplitter:
    """One of the output streams of a process, cut into lines."""

    def __init__(self, write: Callable[[str], None]) -> None:
        """Have each line passed on."""
        self._write = write
        self._decoder = codecs.getincrementaldecoder('utf-8')('replace')
        self._rest = ''
        self.text = ''

    def feed(self, data: bytes, *, keep: bool) -> None:
        """Take what was written; with `keep` it is added to `text`, too."""
        text = self._decoder.decode(data)
        if keep:
            self.text += text
        *lines, self._rest = (self._rest + text).split('\n')
        for line in lines:
            # A terminal ends lines with a carriage return, too.
            self._write(line.removesuffix('\r'))

    def flush(self) -> None:
        """Pass on what comes after the last end of a line."""
        if self._rest:
            self._write(self._rest)
        self._rest = ''
