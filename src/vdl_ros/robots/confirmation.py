"""What a person has to confirm before a robot goes on, kept in a file."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

import msgspec
import psutil

from vdl_ros import PARENT_PID
from vdl_ros.common.files import atomic_file

# The launch has started this process in the place of another one.
_ENDED = 'the actor before has ended'
# The time at which a process started is known as exactly, s.
_SAME_S = 1.0


def _started(process: int) -> float:
    """Return when a process started, Unix, s; NaN: it does not run."""
    try:
        return psutil.Process(process).create_time()
    except psutil.Error:
        return math.nan


class _File(msgspec.Struct):
    launch: str
    reason: str
    process: int
    started: float
    launcher: int = 0
    launcher_started: float = 0.0

    @classmethod
    def of(cls, launch: str, reason: str) -> _File:
        own = os.getpid()
        return cls(launch, reason, own, _started(own), PARENT_PID, _started(PARENT_PID))

    @property
    def lives(self) -> bool:
        """Whether its process runs; another one may have the same number, as after a reboot."""
        return abs(_started(self.process) - self.started) < _SAME_S

    @property
    def may_restart(self) -> bool:
        return abs(_started(self.launcher) - self.launcher_started) < _SAME_S


def _remove_finished(folder: Path) -> None:
    """Remove the files of robots whose process has ended, and who would start it again."""
    for path in folder.glob('*.json'):
        with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError, RecursionError):
            found = msgspec.json.decode(path.read_bytes(), type=_File)
            if not found.lives and not found.may_restart:
                path.unlink()


class Confirmation:
    """Why a person has to confirm that a robot may go on: ``reason``, or ''.

    It survives the process, whose end is a reason too. It ends with its launch: who starts another
    one asks for motion.

    Args:
        path: the file, which may be missing; None: none.
        launch: the same for all processes that one launch starts one after the other.
    """

    def __init__(self, path: Path | None = None, launch: str = '') -> None:
        self._path, self._launch = path, launch
        self.reason = ''
        if path is None:
            return
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_File)
            if found.launch == launch:
                self.reason = found.reason or ('' if found.lives else _ENDED)
            elif found.lives and found.process != os.getpid():
                # Of another environment of the same robot, which was there first.
                self._path = None
        except FileNotFoundError:
            pass
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
            self.reason = f'{path} cannot be read: {type(error).__name__}'

    def save(self) -> None:
        """Write the reason, if there is one, and the process; raise OSError."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        _remove_finished(self._path.parent)
        with atomic_file(self._path) as partial:
            partial.write_bytes(msgspec.json.encode(_File.of(self._launch, self.reason)))
