"""
Find and remove shared-memory files of killed processes.

Fast DDS removes its files in ``/dev/shm`` when a process exits, but not when it is killed: 64 MiB
per process remain. A file is removed only if no running process has it mapped or open and no
process holds its lock, so this is safe while other graphs run.

Each node removes the segments of dead processes when it starts. ``doctor --clean`` also removes
their ports, which are small. Names of segments are not reused, but a starting process may reuse
the name of a dead port while its lock is tested, and find it locked.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

from vdl_ros.ros.dds import shm_files

__all__ = ['clean_stale_shared_memory', 'stale_shared_memory']

# The prefix is fastrtps in Fast DDS 2 and fastdds in Fast DDS 3.
NAME = re.compile(r'(?:sem\.)?(?P<group>(?:fastrtps|fastdds|fast_datasharing)_\w+?)'
                  r'(?:_el|_sl|_mutex)?')
MIN_AGE_S = 5.0  # a starting process creates a file, then locks it


def stale_shared_memory(
    root: Path = Path('/'), now: float | None = None, *, ports: bool = True,
) -> Iterator[Path]:
    """
    Yield the files of Fast DDS in ``/dev/shm`` that no running process uses.

    Args:
        root: of the file system.
        now: Unix time for the age of files, s; the current time by default.
        ports: whether to include ports, besides segments.
    """
    now = time.time() if now is None else now
    groups: dict[str, list[Path]] = {}
    with contextlib.suppress(OSError):
        for path in sorted((root / shm_files.FOLDER).iterdir()):
            match = NAME.fullmatch(path.name)
            if match and (ports or '_port' not in match['group']):
                groups.setdefault(match['group'], []).append(path)
    # A segment and its lock are removed together.
    old = [group for group in groups.values() if all(_abandoned(file, now) for file in group)]
    used = shm_files.files_in_use(root) if old else set()
    for group in old:
        if not any(file.name in used for file in group):
            yield from group


def clean_stale_shared_memory(
    root: Path = Path('/'), now: float | None = None, *, ports: bool = True,
) -> tuple[int, int]:
    """Remove the files of :func:`stale_shared_memory`; return their number and size in bytes."""
    files = size = 0
    for path in stale_shared_memory(root, now, ports=ports):
        with contextlib.suppress(OSError):
            length = path.stat().st_size
            path.unlink()
            files, size = files + 1, size + length
    return files, size


def _abandoned(path: Path, now: float) -> bool:
    try:
        return now - path.stat().st_mtime >= MIN_AGE_S and not shm_files.is_locked(path)
    except OSError:
        return False  # of another user, or just removed
