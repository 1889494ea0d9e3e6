"""Fast DDS's files in ``/dev/shm``: which are mapped or open, and which are locked."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ['FOLDER', 'held', 'is_locked']

FOLDER = 'dev/shm'


def held(root: Path = Path('/')) -> set[str]:
    """Return the names of all files in ``/dev/shm`` that a process we may look at has in use."""
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
    Return whether a process has the lock on a file; also where ``/proc`` does not show it.

    Locks are seen across containers that share ``/dev/shm``. Who looks has a lock for a moment:
    where owners are exclusive, as of Fast DDS's ``_el``, that is a shared one, so that others who
    look at the same time do not take it for an owner's. Owners of ``_sl`` share.

    Raises:
        OSError: there is no such file, or it is another user's.
    """
    how = fcntl.LOCK_SH if path.name.endswith('_el') else fcntl.LOCK_EX
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
