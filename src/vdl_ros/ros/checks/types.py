"""Input and result of a check."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ['Finding', 'System', 'amount']


@dataclasses.dataclass(frozen=True)
class Finding:
    """
    One line of the doctor's report.

    ``status`` is ``ok``, ``warn`` or ``fail``; ``advice`` is a remedy, or empty. ``figures`` holds
    numbers for ``--json``, with the unit in their names.
    """

    name: str
    status: str
    finding: str
    advice: str = ''
    figures: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class System:
    """
    The machine to check.

    ``root`` contains its ``/proc``, ``/sys``, ``/dev`` and ``/etc``. ``space`` overrides the size
    and the free space of ``/dev/shm``, in bytes.
    """

    root: Path = Path('/')
    environ: Mapping[str, str] = dataclasses.field(default_factory=lambda: os.environ)
    space: tuple[int, int] | None = None

    def text(self, path: str) -> str | None:
        """Return the stripped text of a file, or ``None``."""
        try:
            return (self.root / path).read_text(errors='replace').strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """Return the integer at the start of a file, or ``None``."""
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
    """Return a number of bytes with a binary unit, such as 2 KiB."""
    for unit in ('B', 'KiB', 'MiB'):
        if abs(count) < 1024:
            return f'{count:.0f} {unit}'
        count /= 1024
    return f'{count:.1f} GiB'
