"""What a person has to confirm before a robot goes on, kept in a file."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import psutil

from vdl_ros.common.files import atomic_file

# The launch has started this process in the place of another one.
_ENDED = 'the actor before has ended'
# The time at which a process started is known as exactly, s.
_SAME_S = 1.0


class _File(msgspec.Struct):
    launch: str
    reason: str
    process: int
    started: float

    @classmethod
    def of(cls, launch: str, reason: str) -> _File:
        return cls(launch, reason, os.getpid(), psutil.Process().create_time())

    @property
    def lives(self) -> bool:
        """Whether its process runs; another one may have the same number, as after a reboot."""
        try:
            found = psutil.Process(self.process).create_time()
        except psutil.Error:
            return False
        return abs(found - self.started) < _SAME_S


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
        with atomic_file(self._path) as partial:
            partial.write_bytes(msgspec.json.encode(_File.of(self._launch, self.reason)))
