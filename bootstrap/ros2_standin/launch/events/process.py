"""Events of processes."""

from typing import Any

from .._core import Event


class ProcessExited(Event):
    """A process has ended; the ``returncode`` is negative for a signal."""

    def __init__(
        self, *, action: Any, name: str, cmd: list[str], cwd: str | None,
        env: dict[str, str] | None, pid: int, returncode: int,
    ) -> None:
        self.action, self.process_name, self.cmd, self.cwd = action, name, cmd, cwd
        self.env, self.pid, self.returncode = env, pid, returncode
