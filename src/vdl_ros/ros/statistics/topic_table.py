"""The table of ``topic_stats``: a row for each subscription, as text, on a terminal or a pipe."""

from __future__ import annotations

import fnmatch
import math
import shutil
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TextIO

from vdl_ros.ros.statistics.statistics_reader import LOSS, Figures, Window, combine

__all__ = ['Row', 'Screen', 'TopicTable', 'table_text']

# After how many windows' silence a row is marked, and after how many it goes.
_MARKED, _GONE = 3.0, 15.0
# How long a window is taken to be, s, whatever it says of itself.
_SHORTEST_S, _LONGEST_S = 1.0, 60.0
# A stranger who makes up names does not fill the memory, nor does one who talks fast.
_MOST_ROWS, _MOST_WINDOWS = 1000, 10_000
_HEAD = ('topic', 'node', 'rate Hz', 'age ms', 'std ms', 'max ms', 'samples', 'lost', '')
_WORDS = 2
_WIDEST = 60


@dataclass(frozen=True)
class Row:
    """One subscription; ``silent_s`` is 0 while its node reports."""

    topic: str
    node: str
    figures: Figures
    silent_s: float = 0.0


@dataclass
class _Source:
    """What was heard of one subscription: windows with the moments when they came."""

    heard_at: float
    window_s: float = _SHORTEST_S
    lost: Window | None = None
    windows: deque[tuple[float, Window]] = field(
        default_factory=lambda: deque(maxlen=_MOST_WINDOWS))


class TopicTable:
    """
    Collects windows and makes rows of them.

    Attributes:
        left_out: reports that were no use: malformed, of other metrics, or of too many names.
    """

    def __init__(self, topics: str = '*', span_s: float = 2.0) -> None:
        """
        Start without rows.

        Args:
            topics: patterns as of a shell, separated by commas. One that does not begin with
                / is meant in every namespace.
            span_s: figures are over the windows that came in the last ``span_s`` seconds, and
                over the newest one if none did.
        """
        self._patterns = [each if each.startswith('/') else f'*/{each}'
                          for each in (part.strip() for part in topics.split(',')) if each]
        self._span_s = span_s
        self._sources: dict[tuple[str, str], _Source] = {}
        self.left_out = 0

    def add(self, window: Window | None, now: float) -> None:
        """Take a window that was heard at ``now`` (s, monotonic); None is counted, no more."""
        if window is None:
            self.left_out += 1
            return
        # A topic without a name is nobody's namespace.
        if not any(fnmatch.fnmatchcase(window.topic or '/', each) for each in self._patterns):
            return
        key = window.topic, window.node
        if key not in self._sources and len(self._sources) >= _MOST_ROWS:
            self.left_out += 1
            return
        source = self._sources.setdefault(key, _Source(now))
        source.heard_at = now
        if window.metric == LOSS:
            source.lost = window
            return
        if not math.isnan(window.seconds):
            source.window_s = min(max(window.seconds, _SHORTEST_S), _LONGEST_S)
        source.windows.append((now, window))

    def has_rows(self) -> bool:
        """Return whether there is any row."""
        return bool(self._sources)

    def rows(self, now: float) -> list[Row]:
        """Return the rows by topic and node, and forget those that have been silent too long."""
        for key, source in list(self._sources.items()):
            if now - source.heard_at > _GONE * source.window_s:
                del self._sources[key]
        rows = []
        for (topic, node), source in sorted(self._sources.items()):
            silent_s = now - source.heard_at
            rows.append(Row(
                topic, node, combine(self._recent(source, now)),
                silent_s if silent_s > _MARKED * source.window_s else 0.0))
        return rows

    def _recent(self, source: _Source, now: float) -> list[Window]:
        """Return the windows that count now, and forget the others."""
        windows = source.windows
        newest = windows[-1][0] if windows else now
        # The windows of one report come in a moment.
        start = min(now - self._span_s, newest - 0.1)
        while windows and windows[0][0] < start:
            windows.popleft()
        return [window for _, window in windows] + ([source.lost] if source.lost else [])


def table_text(rows: Sequence[Row], left_out: int = 0) -> str:
    """Return the rows as aligned lines under a heading, without a line's end at the end."""
    lines = []
    if rows:
        cells = [_HEAD, *(_cells(row) for row in rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ['  '.join(
            cell.ljust(width) if index < _WORDS or index == len(_HEAD) - 1 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))).rstrip()
            for line in cells]
    else:
        lines.append('nothing to show from /statistics')
    if left_out:
        lines.append(f'{left_out} reports left out: malformed, or not of messages')
    return '\n'.join(lines)


def _cells(row: Row) -> tuple[str, ...]:
    figures = row.figures
    return (
        _short(row.topic) or '-', _short(row.node), _number(figures.rate_hz, 1),
        _number(figures.age_mean_ms, 2), _number(figures.age_std_ms, 2),
        _number(figures.age_max_ms, 2), _number(figures.samples, 0),
        '-' if figures.lost is None else _number(figures.lost, 0),
        f'silent for {row.silent_s:.0f} s' if row.silent_s else '')


def _short(name: str) -> str:
    return name if len(name) <= _WIDEST else f'{name[:_WIDEST - 3]}...'


def _number(value: float, digits: int) -> str:
    if math.isnan(value):
        return '-'
    return f'{value:.{digits}f}' if abs(value) < 1e7 else f'{value:.1e}'


class Screen:
    """Shows texts one after another: in place on a terminal, else as blocks."""

    def __init__(self, stream: TextIO) -> None:
        """Show nothing yet."""
        self._stream = stream
        self._in_place = stream.isatty()
        self._lines = 0
        self._shown = False

    def show(self, text: str) -> None:
        """
        Show ``text`` instead of, or after, the one before.

        Raises:
            BrokenPipeError: who read it is gone.
        """
        if self._in_place:
            size = shutil.get_terminal_size()
            # A line that wraps, or one more than fit, would not be drawn over.
            lines = [line[:size.columns - 1] for line in text.splitlines()[:size.lines - 1]]
            back = f'\x1b[{self._lines}A' if self._lines else ''
            self._lines = len(lines)
            text = f'{back}\r\x1b[J' + '\n'.join(lines)
        elif self._shown:
            text = f'\n{text}'
        self._shown = True
        self._stream.write(f'{text}\n')
        self._stream.flush()
