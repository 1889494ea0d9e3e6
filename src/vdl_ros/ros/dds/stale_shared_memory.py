"""
Shared-memory files that killed processes left behind.

Fast DDS removes its files in ``/dev/shm`` when a process ends, and cannot when it is killed; with
64 MiB a process they add up. A file is removed only when no living process has it mapped or open
and nobody holds the lock on it, so this is safe while other graphs run.

Each node removes the segments of dead processes when it starts. ``doctor --clean`` also removes
their ports, which are small. A segment's name is never used again, but a process that starts may
take a dead port's name in the moment in which its lock is looked at, and find it locked.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

from vdl_ros.ros.dds import shm_files

__all__ = ['clean_stale_shared_memory', 'stale_shared_memory']

# Fast DDS 2 says fastrtps where Fast DDS 3 says fastdds.
NAME = re.compile(r'(?:sem\.)?(?P<group>(?:fastrtps|fastdds|fast_datasharing)_\w+?)'
                  r'(?:_el|_sl|_mutex)?')
YOUNG = 5.0  # seconds; a process that starts creates a file first and locks it then


def stale_shared_memory(
    root: Path = Path('/'), now: float | None = None, *, ports: bool = True,
) -> Iterator[Path]:
    """
    Yield Fast DDS's files in ``/dev/shm`` that no living process holds.

    Args:
        root: of the file system.
        now: the time in seconds since 1970 against which a file's age is taken.
        ports: whether ports count, or segments alone.
    """
    now = time.time() if now is None else now
    groups: dict[str, list[Path]] = {}
    with contextlib.suppress(OSError):
        for path in sorted((root / shm_files.FOLDER).iterdir()):
            match = NAME.fullmatch(path.name)
            if match and (ports or '_port' not in match['group']):
                groups.setdefault(match['group'], []).append(path)
    # A segment and its lock belong together.
    old = [group for group in groups.values() if all(_abandoned(file, now) for file in group)]
    held = shm_files.held(root) if old else set()
    for group in old:
        if not any(file.name in held for file in group):
            yield from group


def clean_stale_shared_memory(
    root: Path = Path('/'), now: float | None = None, *, ports: bool = True,
) -> tuple[int, int]:
    """Remove what :func:`stale_shared_memory` finds; return the number of files and of bytes."""
    files = size = 0
    for path in stale_shared_memory(root, now, ports=ports):
        with contextlib.suppress(OSError):
            length = path.stat().st_size
            path.unlink()
            files, size = files + 1, size + length
    return files, size


def _abandoned(path: Path, now: float) -> bool:
    try:
        return now - path.stat().st_mtime >= YOUNG and not shm_files.is_locked(path)
    except OSError:
        return False  # another user's, or just removed: not ours to judge
