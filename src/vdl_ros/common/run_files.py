"""Files of a run's folder: files that are replaced whole, and the table ``progress.csv``."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ['ProgressTable', 'atomic_file', 'write_text']


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a file beside ``path`` to write to; it becomes ``path`` if nothing is raised."""
    partial = path.with_name(path.name + '.partial')
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with atomic_file(path) as partial:
        partial.write_text(text)


class ProgressTable:
    """A CSV file of numbers; the first column is the step and increases."""

    def __init__(
        self, path: Path, columns: Sequence[str], defaults: Mapping[str, str] | None = None,
    ) -> None:
        """
        Read and write the file ``path``.

        Args:
            path: the file; it may be missing.
            columns: names, in order.
            defaults: values of columns that files of earlier versions do not have.
        """
        self._path, self._columns, self._defaults = path, columns, dict(defaults or {})

    def rows(self) -> list[dict[str, float]]:
        """Return the rows so far, without a row that a crash cut short."""
        return [row for row, _ in self._lines()]

    def truncate(self, last_step: float) -> None:
        """Rewrite the file with its header and the rows up to ``last_step``."""
        kept = [line for row, line in self._lines() if row[self._columns[0]] <= last_step]
        with atomic_file(self._path) as partial, partial.open('w', newline='') as stream:
            writer = csv.DictWriter(stream, self._columns, extrasaction='ignore')
            writer.writeheader()
            writer.writerows(kept)

    def append(self, row: Mapping[str, object]) -> None:
        """Add a row; ``row`` must have all columns."""
        with self._path.open('a', newline='') as stream:
            csv.writer(stream).writerow([row[name] for name in self._columns])

    def _lines(self) -> list[tuple[dict[str, float], dict[str, str]]]:
        """Return each row as numbers and as text."""
        try:
            with self._path.open(newline='') as stream:
                lines = list(csv.DictReader(stream))
        except FileNotFoundError:
            return []
        rows = []
        for line in lines:
            # Columns of the file override the defaults: one that was cut short stays so.
            line = self._defaults | line
            try:
                rows.append(({name: float(line[name]) for name in self._columns}, line))
            except (KeyError, TypeError, ValueError):
                continue
        return rows
