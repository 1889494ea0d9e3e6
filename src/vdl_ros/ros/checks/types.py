"""What a check is given and what it gives back."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ['Finding', 'System', 'amount']


@dataclasses.dataclass(frozen=True)
class Finding:
    """
    One line of the doctor.

    ``status`` is ``ok``, ``warn`` or ``fail``; ``advice`` says what to do and is empty when there
    is nothing to do. ``figures`` holds numbers with their unit in the name, for ``--json``.
    """

    name: str
    status: str
    finding: str
    advice: str = ''
    figures: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class System:
    """
    The machine that is looked at.

    ``root`` is where its ``/proc``, ``/sys``, ``/dev`` and ``/etc`` are found, ``space`` the size
    and free bytes of ``/dev/shm`` where they are not to be asked from the system.
    """

    root: Path = Path('/')
    environ: Mapping[str, str] = dataclasses.field(default_factory=lambda: os.environ)
    space: tuple[int, int] | None = None

    def text(self, path: str) -> str | None:
        """Return a file's text without the surrounding blanks, or ``None``."""
        try:
            return (self.root / path).read_text(errors='replace').strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """Return the first whole number in a file, or ``None``."""
        words = (self.text(path) or '').split()
        return int(words[0]) if words and words[0].lstrip('-').isdigit() else None

    def shared_memory(self) -> tuple[int, int] | None:
        """Return size and free space of ``/dev/shm`` in bytes, or ``None``."""
        if self.space is not None:
            return self.space
        try:
            stat = os.statvfs(self.root / 'dev/shm')
        except OSError:
            return None
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize


def amount(count: float) -> str:
    """Return a number of bytes in words, in powers of 1024."""
    for unit in ('B', 'KiB', 'MiB'):
        if abs(count) < 1024:
            return f'{count:.0f} {unit}'
        count /= 1024
    return f'{count:.1f} GiB'
