"""
Shared-memory files that killed processes left behind.

Fast DDS removes its files in ``/dev/shm`` when a process ends, and cannot when it is killed; with
64 MiB a process they add up. So each node removes those of dead processes when it starts, and
``doctor --clean`` on request. A file is removed only when no living process has it mapped or open
and nobody holds the lock on it, so this is safe while other graphs run.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

from vdl_ros.ros import shm_files

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
    return [path for group in _stale_groups(root, now) for path in group]


def clean_stale_shared_memory(root: Path = Path('/'), now: float | None = None) -> tuple[int, int]:
    """Remove what :func:`stale_shared_memory` finds; return the number of files and of bytes."""
    files = size = 0
    # Each group as soon as it was looked at: a process that starts may take the name of a port.
    for path in (path for group in _stale_groups(root, now) for path in group):
        with contextlib.suppress(OSError):
            length = path.stat().st_size
            path.unlink()
            files, size = files + 1, size + length
    return files, size


def _stale_groups(root: Path, now: float | None) -> Iterator[list[Path]]:
    """Yield the files that belong together, such as a segment and its lock, if all are stale."""
    now = time.time() if now is None else now
    groups: dict[str, list[Path]] = {}
    with contextlib.suppress(OSError):
        for path in sorted((root / shm_files.FOLDER).iterdir()):
            match = NAME.fullmatch(path.name)
            if match:
                groups.setdefault(match['group'], []).append(path)
    old = [group for group in groups.values() if all(_abandoned(file, now) for file in group)]
    held = shm_files.held(root) if old else set()
    for group in old:
        if not any(file.name in held for file in group) \
                and all(_abandoned(file, now) for file in group):
            yield group


def _abandoned(path: Path, now: float) -> bool:
    try:
        return now - path.stat().st_mtime >= YOUNG and not shm_files.is_locked(path)
    except OSError:
        return False  # another user's, or just removed: not ours to judge
