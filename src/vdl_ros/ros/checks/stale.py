"""
Shared-memory files that killed processes left behind.

Fast DDS removes its files in ``/dev/shm`` when a process ends, and cannot when it is killed; with
64 MiB a process they add up. A file is removed only when no living process has it mapped or open
and nobody holds the lock on it, so this is safe while other graphs run.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ['clean_stale_shared_memory', 'stale_shared_memory']

# Fast DDS 2 says fastrtps where Fast DDS 3 says fastdds.
NAME = re.compile(r'(?:sem\.)?(?P<group>(?:fastrtps|fastdds|fast_datasharing)_\w+?)'
                  r'(?:_el|_sl|_mutex)?')
YOUNG = 5.0  # seconds; a process that starts creates a file first and locks it then


def stale_shared_memory(root: Path = Path('/'), now: float | None = None) -> list[Path]:
    """
    Return Fast DDS's files in ``/dev/shm`` that no living process holds.

    ``now`` is the time in seconds since 1970 against which a file's age is taken.
    """
    now = time.time() if now is None else now
    groups: dict[str, list[Path]] = {}
    with contextlib.suppress(OSError):
        for path in sorted((root / 'dev/shm').iterdir()):
            match = NAME.fullmatch(path.name)
            if match:
                groups.setdefault(match['group'], []).append(path)
    held = _held(root) if groups else set()
    return [path for files in groups.values()
            if not any(file.name in held for file in files)
            and all(_abandoned(file, now) for file in files) for path in files]


def clean_stale_shared_memory(root: Path = Path('/'), now: float | None = None) -> tuple[int, int]:
    """Remove what :func:`stale_shared_memory` finds; return the number of files and of bytes."""
    files = size = 0
    for path in stale_shared_memory(root, now):
        with contextlib.suppress(OSError):
            length = path.stat().st_size
            path.unlink()
            files, size = files + 1, size + length
    return files, size


def _held(root: Path) -> set[str]:
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


def _abandoned(path: Path, now: float) -> bool:
    # Locks are seen across containers that share /dev/shm, where /proc shows nothing.
    try:
        if now - path.stat().st_mtime < YOUNG:
            return False
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False  # another user's, or just removed: not ours to judge
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
