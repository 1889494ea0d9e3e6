"""The lock on the folder of a run: one process at a time may write it."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path
from typing import IO

__all__ = ['LAUNCH_FILE', 'in_use', 'lock']

#: The file that is locked while a process writes the run.
LAUNCH_FILE = '.launch_id'
# Errors of flock on file systems without locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def lock(file: IO[str]) -> None:
    """
    Lock the open ``LAUNCH_FILE``, until it is closed or the process ends.

    Raises:
        BlockingIOError: another process has locked it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def in_use(path: Path) -> bool:
    """Return whether a process writes the run in the folder ``path``."""
    try:
        with (path / LAUNCH_FILE).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
