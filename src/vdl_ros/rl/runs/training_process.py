"""One training as a process of its own: start or resume it, interrupt it, read its summary."""

import contextlib
import dataclasses
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from vdl_ros.common.children import SAVING_S, telling
from vdl_ros.common.command_line import EXIT_DISK, say
from vdl_ros.common.files import in_use, read_json
from vdl_ros.common.quoting import shown
from vdl_ros.rl.runs.run_config import GIVEN_AGAIN

#: Time that a training has to save its checkpoint when it is interrupted, s.
_GRACE_S = SAVING_S + 30.0
# Time between looks at the process, and between two lines that say how trainings go, s.
_POLL_S, _TELL_S = 0.1, 9.0
# Of a log, the end that is read, bytes, and the longest line that is repeated.
_READ, _LONGEST = 4096, 200
# Why a run is over, and is not resumed.
_COMPLETE = ('total_steps', 'stop_at_return', 'eval_patience')


class TrainingError(RuntimeError):
    """A training that failed; the message is one line and names its log."""


@dataclasses.dataclass(frozen=True)
class TrainingProcess:
    """A run of ``vdl_ros.local_training``, which learns in one process without ROS.

    ``settings`` are texts by name, with ``total_steps``; a run does not keep ``start_settings``:
    each start gets them. The output of its process is beside the folder, in ``<name>.log``.
    """

    folder: Path
    settings: Mapping[str, str]
    start_settings: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def log(self) -> Path:
        return self.folder.with_name(f'{self.folder.name}.log')

    @property
    def name(self) -> str:
        return f'{self.folder.parent.name}/{self.folder.name}'

    def newest_line(self) -> str:
        """Return the last line of its log, '' if there is none."""
        with contextlib.suppress(OSError), self.log.open('rb') as log:
            log.seek(max(log.seek(0, os.SEEK_END) - _READ, 0))
            lines = log.read().decode(errors='replace').splitlines()
            return next((shown(' '.join(each.split()), _LONGEST)
                         for each in reversed(lines) if each.strip()), '')
        return ''

    @property
    def runs(self) -> list['TrainingProcess']:
        return [self]

    @property
    def is_begun(self) -> bool:
        return all((run.folder / 'checkpoint.pt').is_file() for run in self.runs)

    def summary(self) -> dict[str, Any] | None:
        """Return what summary.json has of a run that is complete, else None."""
        found = [run._summary() for run in self.runs]
        return None if None in found else found[0]

    def _summary(self) -> dict[str, Any] | None:
        found = read_json(self.folder / 'summary.json')
        reason, steps = found.get('ended_by'), found.get('agent_steps')
        if reason not in _COMPLETE or not isinstance(steps, int) or (
                reason == 'total_steps' and steps < int(self.settings['total_steps'])):
            return None
        return found

    def command(self) -> list[str]:
        settings = {'run_dir': str(self.folder), **self.settings}
        if self.is_begun:
            settings = {'resume': str(self.folder), **{
                name: self.settings[name] for name in ('total_steps', *GIVEN_AGAIN)
                if name in self.settings}}
        return [sys.executable, '-m', 'vdl_ros.local_training',
                *options({**settings, **self.start_settings})]

    def run(self, stop: Callable[[], bool]) -> dict[str, Any] | None:
        """Run it until it is complete, or resume it; return its summary.

        Call it in a thread that lives as long: the training ends, with a checkpoint, when this
        thread or process dies. ``stop`` is asked all the time; once it returns true, the training
        is interrupted, keeps its checkpoint, and None is returned. A TrainingError names the log;
        so does an OSError, after which it goes on when there is room on the disk.
        """
        if found := self.summary():
            return found
        pause = threading.Event()
        # A training whose parent was killed ends by itself, soon.
        with telling(f'{self.name}: waits for another process that uses its folder,'):
            while any(in_use(run.folder) for run in self.runs):
                if stop():
                    return None
                pause.wait(_POLL_S)
        if not self.is_begun:
            # Ended before its first checkpoint: nothing of it can be used.
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open('a') as log, subprocess.Popen(
                [*self.command(), '--parent', str(os.getpid())], stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True) as process, \
                _News.turn(self):
            while process.poll() is None:
                if stop():
                    self._interrupt(process)
                    return None
                _News.tell(self)
                pause.wait(_POLL_S)
        found = self.summary()
        if found is None:
            if process.returncode == EXIT_DISK:
                raise OSError(errno.ENOSPC, f'not saved; see {self.log}')
            code = process.returncode
            why = f'by {signal.Signals(-code).name}' if code < 0 else (
                f'with status {code} after {self.newest_line()!r}')
            raise TrainingError(f'failed {why}; see {self.log}')
        return found

    def _interrupt(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGTERM)
        say(f'{self.name}: interrupted, has {_GRACE_S:g} s to save')
        with telling(f'{self.name}: has not ended'):
            try:
                process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                say(f'{self.name}: killed after {_GRACE_S:g} s; what it has learned since its '
                    'last checkpoint is lost')


class _News:
    """Says the newest line of each training of this process that runs, one at a time."""

    _lock = threading.Lock()
    _turns: ClassVar[list[TrainingProcess]] = []
    _due = 0.0

    @classmethod
    @contextlib.contextmanager
    def turn(cls, training: TrainingProcess) -> Iterator[None]:
        with cls._lock:
            if not cls._turns:
                cls._due = time.monotonic() + _TELL_S
            cls._turns.append(training)
        try:
            yield
        finally:
            with cls._lock:
                cls._turns.remove(training)

    @classmethod
    def tell(cls, training: TrainingProcess) -> None:
        with cls._lock:
            if time.monotonic() >= cls._due and cls._turns[0] is training:
                cls._turns.append(cls._turns.pop(0))
                cls._due = time.monotonic() + _TELL_S
                say(f'{training.name}: {training.newest_line() or "starts"}')


def options(settings: Mapping[str, str]) -> list[str]:
    return [word for name, value in settings.items() for word in (f'--{name}', value)]
