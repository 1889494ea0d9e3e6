"""Events of processes, events addressed to processes, and the matchers that address them."""

from __future__ import annotations

import signal as signal_module
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._unknown import unknown_attributes
from ..event import Event

if TYPE_CHECKING:
    from ..actions import ExecuteLocal

    Matcher = Callable[[ExecuteLocal], bool]

__all__ = [
    'ProcessExited',
    'ProcessIO',
    'ProcessStarted',
    'ProcessStderr',
    'ProcessStdin',
    'ProcessStdout',
    'ProcessTargetedEvent',
    'RunningProcessEvent',
    'ShutdownProcess',
    'SignalProcess',
    'matches_executable',
    'matches_name',
    'matches_pid',
]


class RunningProcessEvent(Event):
    """Something happened to a process; base class."""

    name = 'launch.events.process.RunningProcessEvent'

    def __init__(
        self,
        *,
        action: ExecuteLocal,
        name: str,
        cmd: list[str],
        cwd: str | None,
        env: dict[str, str] | None,
        pid: int,
    ) -> None:
        """Keep what is known of the process."""
        self.action = action
        self.process_name = name
        self.cmd = cmd
        self.cwd = cwd
        self.env = env
        self.pid = pid

    @property
    def execute_process_action(self) -> ExecuteLocal:
        """The action that started the process."""
        return self.action


class ProcessStarted(RunningProcessEvent):
    """A process was started."""

    name = 'launch.events.process.ProcessStarted'


class ProcessExited(RunningProcessEvent):
    """A process ended."""

    name = 'launch.events.process.ProcessExited'

    def __init__(self, *, returncode: int, **kwargs: Any) -> None:
        """Keep the exit status; the number of a signal that ended it is negative."""
        super().__init__(**kwargs)
        self.returncode = returncode


class ProcessIO(RunningProcessEvent):
    """A process has written something, or is to be given something to read."""

    name = 'launch.events.process.ProcessIO'

    def __init__(self, *, text: bytes, fd: int, **kwargs: Any) -> None:
        """Keep the bytes, and which of the standard streams they belong to."""
        super().__init__(**kwargs)
        self.text = text
        self.from_stdin = fd == 0
        self.from_stdout = fd == 1
        self.from_stderr = fd == 2


class ProcessStdin(ProcessIO):
    """A process is to be given something to read."""

    name = 'launch.events.process.ProcessStdin'

    def __init__(self, *, text: bytes, **kwargs: Any) -> None:
        """Keep the bytes."""
        super().__init__(text=text, fd=0, **kwargs)


class ProcessStdout(ProcessIO):
    """A process has written to its standard output."""

    name = 'launch.events.process.ProcessStdout'

    def __init__(self, *, text: bytes, **kwargs: Any) -> None:
        """Keep the bytes."""
        super().__init__(text=text, fd=1, **kwargs)


class ProcessStderr(ProcessIO):
    """A process has written to its standard error."""

    name = 'launch.events.process.ProcessStderr'

    def __init__(self, *, text: bytes, **kwargs: Any) -> None:
        """Keep the bytes."""
        super().__init__(text=text, fd=2, **kwargs)


class ProcessTargetedEvent(Event):
    """Something is asked of a process; base class."""

    name = 'launch.events.process.ProcessTargetedEvent'

    def __init__(self, *, process_matcher: Matcher) -> None:
        """Keep what tells the processes that are meant."""
        self.process_matcher = process_matcher


class ShutdownProcess(ProcessTargetedEvent):
    """A process is to be ended."""

    name = 'launch.events.process.ShutdownProcess'


class SignalProcess(ProcessTargetedEvent):
    """A process is to be sent a signal."""

    name = 'launch.events.process.SignalProcess'

    def __init__(
        self, *, signal_number: str | signal_module.Signals, process_matcher: Matcher
    ) -> None:
        """Keep the signal; SIGKILL may be given as a text."""
        if not isinstance(signal_number, signal_module.Signals) and signal_number != 'SIGKILL':
            raise TypeError(
                "SignalProcess: signal_number takes a signal.Signals or the text 'SIGKILL', "
                f'got {signal_number!r}'
            )
        super().__init__(process_matcher=process_matcher)
        self.signal = signal_number

    @property
    def signal_name(self) -> str:
        """The name of the signal."""
        return self.signal if isinstance(self.signal, str) else self.signal.name


def _on_details(test: Callable[[dict[str, Any]], bool]) -> Matcher:
    """Make a matcher that is false for a process that has not been started."""
    return lambda action: action.process_details is not None and test(action.process_details)


def matches_pid(pid: int) -> Matcher:
    """Make a matcher for a process id."""
    return _on_details(lambda details: details.get('pid') == pid)


def matches_name(name: str) -> Matcher:
    """Make a matcher for the name of a process, which includes its number."""
    return _on_details(lambda details: details['name'] == name)


def matches_executable(executable: str) -> Matcher:
    """Make a matcher for the end of the path of an executable."""
    return _on_details(lambda details: details['cmd'][0].endswith(executable))


__getattr__ = unknown_attributes(__name__)
