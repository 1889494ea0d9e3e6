"""Files of Fast DDS in ``/dev/shm``: which are in use, which are locked."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ['FOLDER', 'files_in_use', 'is_locked']

FOLDER = 'dev/shm'


def files_in_use(root: Path = Path('/')) -> set[str]:
    """Return the names of the files in ``/dev/shm`` that a readable process has mapped or open."""
    names = set()
    for process in _processes(root):
        with contextlib.suppress(OSError):
            for line in (process / 'maps').read_text(errors='replace').splitlines():
                if '/dev/shm/' in line:
                    names.add(line.rpartition('/dev/shm/')[2].removesuffix(' (deleted)'))
        with contextlib.suppress(OSError):
            for link in (process / 'fd').iterdir():
                with contextlib.suppress(OSError):
                    target = os.readlink(link)
                    if '/dev/shm/' in target:
                        names.add(target.rpartition('/dev/shm/')[2])
    return names


def _processes(root: Path) -> Iterable[Path]:
    return (path for path in (root / 'proc').iterdir() if path.name.isdigit())


def is_locked(path: Path) -> bool:
    """
    Return whether a process holds the lock on a file, even if ``/proc`` does not show it.

    Locks are visible across containers that share ``/dev/shm``. The test itself takes the lock for
    a moment. For Fast DDS's ``_el`` files, whose owners lock exclusively, it takes a shared one,
    so that concurrent tests do not mistake each other for an owner. Owners of ``_sl`` share.

    Raises:
        OSError: the file is missing or belongs to another user.
    """
    kind = fcntl.LOCK_SH if path.name.endswith('_el') else fcntl.LOCK_EX
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
