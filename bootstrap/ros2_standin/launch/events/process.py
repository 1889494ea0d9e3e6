"""Events of processes."""

from __future__ import annotations

from typing import Any

from .._missing import missing_names
from ..event import Event

__all__ = ['ProcessExited']


class ProcessExited(Event):
    """A process has ended; the ``returncode`` is negative for a signal."""

    name = 'launch.events.process.ProcessExited'

    def __init__(
        self, *, action: Any, name: str, cmd: list[str], cwd: str | None,
        env: dict[str, str] | None, pid: int, returncode: int,
    ) -> None:
        self.action = action
        self.process_name = name
        self.cmd = cmd
        self.cwd = cwd
        self.env = env
        self.pid = pid
        self.returncode = returncode


__getattr__ = missing_names(__name__)
