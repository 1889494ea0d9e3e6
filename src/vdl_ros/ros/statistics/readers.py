"""What is made of ``/statistics``: scalars of a run, and a table of topics."""

import fnmatch
import math
import shutil
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from rclpy.node import Node
from statistics_msgs.msg import MetricsMessage

from vdl_ros.common.command_line import aligned
from vdl_ros.common.metrics import ACTING
from vdl_ros.common.quoting import quoted
from vdl_ros.ros import qos
from vdl_ros.ros.statistics.statistics import (
    AGE,
    LOSS,
    PERIOD,
    Scalar,
    Share,
    Window,
    absolute_name,
    finite,
    read,
)


@dataclass(frozen=True)
class Figures:
    """Several windows of one subscription combined; NaN where nothing was measured.

    Ages are from the header's stamp to the callback; ``lost`` is since the subscription began.
    """

    rate_hz: float
    age_mean_ms: float
    age_std_ms: float
    age_max_ms: float
    samples: int
    lost: int | None = None


def combine(windows: Sequence[Window]) -> Figures:
    ages, periods, losses = ([each for each in windows if each.metric == metric]
                             for metric in (AGE, PERIOD, LOSS))
    # Messages without a stamp have no age, but a period.
    counted = ages if not periods or any(each.count for each in ages) else periods
    timed = [each for each in counted if not math.isnan(each.seconds)]
    known = [each for each in ages if each.count and not math.isnan(each.mean)]
    mean = deviation = math.nan
    if known:
        count = sum(each.count for each in known)
        mean = sum(each.mean * each.count for each in known) / count
        # Products overflow to infinity; powers would raise.
        squares = sum(each.count * (each.deviation * each.deviation
                                    + (each.mean - mean) * (each.mean - mean)) for each in known)
        mean, deviation = finite(mean), finite(math.sqrt(squares / count))
    return Figures(
        sum(each.count for each in timed) / sum(each.seconds for each in timed)
        if timed else math.nan, mean, deviation,
        max((each.maximum for each in ages if each.count and not math.isnan(each.maximum)),
            default=math.nan),
        sum(each.count for each in counted), losses[-1].count if losses else None)


def mean_shares(shares: Iterable[Share]) -> dict[str, dict[str, float]]:
    """Return the mean shares by thread and phase, over the time reported for each phase."""
    spent: dict[str, dict[str, list[Share]]] = {}
    for each in shares:
        spent.setdefault(each.thread, {}).setdefault(each.phase, []).append(each)
    # Not over the time of all reports: the reports of one window arrive one by one.
    return {thread: {phase: sum(each.share * each.seconds for each in found)
                     / sum(each.seconds for each in found) for phase, found in phases.items()}
            for thread, phases in spent.items()}


_MAX_WINDOWS = 10_000  # more than the nodes of a run publish between two of its reports


class TopicScalars:
    """Collects statistics for a node, those that the node publishes itself included.

    The executor's thread collects; :meth:`take` may be called from another one.
    """

    def __init__(self, node: Node, *topics: str) -> None:
        node_name = node.get_fully_qualified_name()
        self._names = {absolute_name(node_name, topic): topic for topic in topics}
        self._namespace = node_name.rpartition('/')[0]
        self._windows: deque[Window] = deque(maxlen=_MAX_WINDOWS)
        self._shares: deque[Share] = deque(maxlen=_MAX_WINDOWS)
        qos.sub(node, '/statistics', self._on_statistics)

    def _on_statistics(self, message: MetricsMessage) -> None:
        found = read(message)
        if isinstance(found, Window) and found.topic in self._names:
            self._windows.append(found)
        elif (isinstance(found, Share) and found.thread == ACTING
                and found.node.rpartition('/')[0] == self._namespace):
            self._shares.append(found)

    def take(self) -> dict[str, float]:
        """Return the scalars since the last call, by tag; see docs/runs.md."""
        subscribers: dict[str, dict[str, list[Window]]] = {
            topic: {} for topic in self._names.values()}
        for _ in range(len(self._windows)):
            window = self._windows.popleft()
            subscribers[self._names[window.topic]].setdefault(window.node, []).append(window)
        found: dict[str, float] = {}
        for topic, windows in subscribers.items():
            found |= scalars(topic, list(windows.values()))
        shares = mean_shares(self._shares.popleft() for _ in range(len(self._shares)))
        return found | {f'time/{ACTING}/{phase}': share
                        for phase, share in shares.get(ACTING, {}).items()}


def scalars(topic: str, subscribers: list[list[Window]]) -> dict[str, float]:
    """Return the known scalars of one topic over the windows of each subscriber.

    ``rate_hz`` is the mean over the subscribers, ``lost`` their sum; ages are over all messages.
    """
    each = [combine(windows) for windows in subscribers]
    together = combine([window for windows in subscribers for window in windows])
    rates = [figures.rate_hz for figures in each if not math.isnan(figures.rate_hz)]
    losses = [figures.lost for figures in each if figures.lost is not None]
    found = {
        'age_mean_ms': together.age_mean_ms, 'age_max_ms': together.age_max_ms,
        'rate_hz': sum(rates) / len(rates) if rates else math.nan,
        'lost': float(sum(losses)) if losses else math.nan}
    return {f'topics/{topic}/{name}': value for name, value in found.items()
            if not math.isnan(value)}


# Windows without a report after which a row is marked, and after which it is removed.
_MARKED, _REMOVED = 3.0, 15.0
# Bounds of the assumed length of a window, s.
_MIN_WINDOW_S, _MAX_WINDOW_S = 1.0, 60.0
_MAX_TABLE_WINDOWS = 10_000
_HEADER = ('topic', 'node', 'rate Hz', 'age ms', 'std ms', 'max ms', 'samples', 'lost', '')
_MAX_WIDTH = 60


@dataclass(frozen=True)
class Row:
    """One subscription; ``silent_s`` is 0 while its node reports."""

    topic: str
    node: str
    figures: Figures
    silent_s: float = 0.0


@dataclass
class _Source:
    """The reports of one subscription: windows with their times of arrival."""

    reported_at: float
    window_s: float = _MIN_WINDOW_S
    lost: Window | None = None
    windows: deque[tuple[float, Window]] = field(
        default_factory=lambda: deque(maxlen=_MAX_TABLE_WINDOWS))


class TopicTable:
    """Collects windows and returns rows; ``left_out`` counts reports of other metrics.

    ``topics`` are shell patterns, separated by commas; one without a leading / matches in every
    namespace. Figures are over the windows of the last ``span_s``, at least over the newest one.
    """

    def __init__(self, topics: str = '*', span_s: float = 2.0) -> None:
        self._patterns = [each if each.startswith('/') else f'*/{each}'
                          for each in (part.strip() for part in topics.split(',')) if each]
        self._span_s = span_s
        self._sources: dict[tuple[str, str], _Source] = {}
        self.left_out = 0

    def add(self, window: Window | Share | Scalar | None, now: float) -> None:
        """Add a window that arrived at ``now`` (s, monotonic); all else counts as left out."""
        if not isinstance(window, Window):
            self.left_out += 1
            return
        # Patterns without / begin with */: a report without a topic has to match *.
        if not any(fnmatch.fnmatchcase(window.topic or '/', each) for each in self._patterns):
            return
        key = window.topic, window.node
        source = self._sources.setdefault(key, _Source(now))
        source.reported_at = now
        if window.metric == LOSS:
            source.lost = window
            return
        if not math.isnan(window.seconds):
            source.window_s = min(max(window.seconds, _MIN_WINDOW_S), _MAX_WINDOW_S)
        source.windows.append((now, window))

    def has_rows(self) -> bool:
        return bool(self._sources)

    def rows(self, now: float) -> list[Row]:
        for key, source in list(self._sources.items()):
            if now - source.reported_at > _REMOVED * source.window_s:
                del self._sources[key]
        rows = []
        for (topic, node), source in sorted(self._sources.items()):
            silent_s = now - source.reported_at
            rows.append(Row(
                topic, node, combine(self._recent(source, now)),
                silent_s if silent_s > _MARKED * source.window_s else 0.0))
        return rows

    def _recent(self, source: _Source, now: float) -> list[Window]:
        windows = source.windows
        newest = windows[-1][0] if windows else now
        # The windows of one report arrive within 0.1 s.
        start = min(now - self._span_s, newest - 0.1)
        while windows and windows[0][0] < start:
            windows.popleft()
        return [window for _, window in windows] + ([source.lost] if source.lost else [])


def table_text(rows: Sequence[Row], left_out: int = 0) -> str:
    lines = aligned([_HEADER, *map(_cells, rows)], range(2, 8)) if rows else [
        'nothing to show from /statistics: is a training or arm.launch.py running?']
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
    if not name.isprintable():
        return quoted(name, _MAX_WIDTH)
    return name if len(name) <= _MAX_WIDTH else f'{name[:_MAX_WIDTH - 3]}...'


def _number(value: float, digits: int) -> str:
    if math.isnan(value):
        return '-'
    return f'{value:.{digits}f}' if abs(value) < 1e7 else f'{value:.1e}'


class Screen:
    """Prints texts: in place on a terminal, else one after another."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._in_place = stream.isatty()
        self._lines = 0
        self._shown = False

    def show(self, text: str) -> None:
        if self._in_place:
            size = shutil.get_terminal_size()
            # Lines that wrap or exceed the screen could not be overwritten.
            lines = [line[:size.columns - 1] for line in text.splitlines()[:size.lines - 1]]
            back = f'\x1b[{self._lines}A' if self._lines else ''
            self._lines = len(lines)
            text = f'{back}\r\x1b[J' + '\n'.join(lines)
        elif self._shown:
            text = f'\n{text}'
        self._shown = True
        self._stream.write(f'{text}\n')
        self._stream.flush()
