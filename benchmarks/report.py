"""Options, exit status, JSON object and Markdown tables of every benchmark."""

import argparse
import json
import os
import platform
import re
import signal
import statistics
import string
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from vdl_ros.common.command_line import EXIT_BAD_INPUT, OneLineParser
from vdl_ros.common.files import json_lines

T = TypeVar('T')
R = TypeVar('R')
EXIT_FAILED, EXIT_INTERRUPTED = 1, 130


class Parser(OneLineParser):
    """Parser with ``--quick``, ``--json`` and ``--output``; an error is one line and status 2."""

    def __init__(self, name: str, doc: str | None, quick: str = 'under a minute, less exact'):
        super().__init__(prog=name, description=(doc or '').splitlines()[0])
        self._usual: dict[str, tuple[Any, Any]] = {}
        self._limits: dict[str, tuple[Any, Any]] = {}
        self._lists: list[str] = []
        self.add_argument('--quick', action='store_true', help=quick)
        self.add_argument('--json', action='store_true', help='print one JSON object')
        self.add_argument('--output', type=Path, metavar='FILE', help='write that object there')

    def number(self, option: str, kind: type, text: str, usual: tuple[Any, Any],
               limits: tuple[Any, Any]) -> None:
        """Add an option for a number.

        Args:
            usual: values without and with ``--quick``, if it is not given.
            limits: lowest and highest number allowed.
        """
        name = self.add_argument(option, type=kind, metavar='N', help=_help(text, usual))
        self._usual[name.dest], self._limits[name.dest] = usual, limits

    def numbers(self, option: str, text: str, usual: tuple[str, str], limits: tuple[int, int],
                ) -> None:
        """Add an option for whole numbers in one word, with commas between."""
        name = self.add_argument(option, metavar='N,N', help=_help(text, usual)).dest
        self._usual[name], self._limits[name] = usual, limits
        self._lists.append(name)

    def complete(self, words: Sequence[str] | None = None) -> argparse.Namespace:
        """Return all options.

        Raises:
            ValueError: a number out of range, or an ``--output`` that cannot be written.
        """
        options = self.parse_args(words)
        for name, (usual, quick) in self._usual.items():
            option, (low, high) = f'--{name.replace("_", "-")}', self._limits[name]
            value = getattr(options, name)
            if value is None:
                value = quick if options.quick else usual
            if name in self._lists:
                value = numbers(option, value, low, high)
            elif value is not None and not low <= value <= high:
                raise ValueError(f'{option}: {value} is not allowed: {low} to {high}')
            setattr(options, name, value)
        path = options.output
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise ValueError(f'--output: {path} is not allowed: ' + (
                'it is a folder' if path.is_dir() else 'there is no such folder'))
        return options


def _help(text: str, usual: tuple[Any, Any]) -> str:
    if usual[0] is None:
        return text
    value, quick = usual
    return f'{text} ({value}' + (f'; quick: {quick})' if quick != value else ')')


def numbers(option: str, text: str, low: int, high: int) -> list[int]:
    """Return the different numbers of a text such as ``1,2,5``, in its order.

    Raises:
        ValueError: one is no number or not within ``low`` and ``high``.
    """
    try:
        found = [int(word) for word in text.split(',')]
    except ValueError:
        found = []
    if not found or not all(low <= each <= high for each in found):
        raise ValueError(f'{option}: {text!r} is not allowed: numbers from {low} to {high} with '
                         'commas between')
    return list(dict.fromkeys(found))


def turned(items: Sequence[T], number: int) -> list[T]:
    """Return the items in the order of round ``number``: each round begins with another one."""
    turn = number % len(items)
    return [*items[turn:], *items[:turn]]


def collect(
    cells: Sequence[T], rounds: int, measure: Callable[[T, int], R],
) -> tuple[dict[T, list[R]], dict[T, str]]:
    """Return by cell the results of all rounds, and why a cell failed, which is left out.

    Every second round is reversed. So a slow phase of the machine affects all cells alike.

    Args:
        measure: takes a cell and the number of the round; raises RuntimeError.
    """
    found: dict[T, list[R]] = {cell: [] for cell in cells}
    problems: dict[T, str] = {}
    for number in range(rounds):
        for cell in reversed(cells) if number % 2 else cells:
            if cell not in problems:
                try:
                    found[cell].append(measure(cell, number))
                except RuntimeError as error:
                    problems[cell] = ' '.join(str(error).split())
                    log(f'round {number + 1}: {cell}: {error}')
    return {cell: results for cell, results in found.items() if cell not in problems}, problems


def run(name: str, arguments: Callable[[], Any], work: Callable[[Any], int | None]) -> int:
    """Return the exit status of ``work(arguments())``; a failure is one line on standard error.

    Args:
        arguments: raises ValueError or OSError for bad input: status 2.
        work: raises RuntimeError where a measurement fails: status 1.
    """
    try:
        options = arguments()
    except (ValueError, OSError) as error:
        log(f'{name}: {error}')
        return EXIT_BAD_INPUT
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        return work(options) or 0
    except KeyboardInterrupt:
        log(f'{name}: interrupted')
        return EXIT_INTERRUPTED
    except RuntimeError as error:
        log(f'{name}: {error}')
        return EXIT_FAILED


def _interrupt(*_: object) -> None:
    """Raise KeyboardInterrupt; ignore later signals, so that all processes are ended."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def log(text: str) -> None:
    """Print a line that is no result."""
    print(text, file=sys.stderr, flush=True)


def deliver(
    benchmark: str, figures: Mapping[str, Any], options: argparse.Namespace,
    text: Callable[[Mapping[str, Any]], str],
) -> None:
    """Print and write the figures; ``text`` makes a readable text of them."""
    found = {'benchmark': benchmark, 'machine': machine(), **figures}
    if options.output is not None:
        options.output.write_text(json_lines(found) + '\n', encoding='utf-8')
    print(json.dumps(found) if options.json else text(found))


class _Cells(string.Formatter):
    """Formats as ``str.format``; None, and what is missing, as nothing."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        try:
            return super().get_field(field_name, args, kwargs)
        except (KeyError, TypeError):
            return None, field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        return '' if value is None else str(super().format_field(value, format_spec))


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    lines = ['| ' + ' | '.join(row) + ' |' for row in (head, *rows)]
    return [lines[0], '|' + '---|' * (lines[0].count(' | ') + 1), *lines[1:]]


def columns(formats: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the lines of a Markdown table of rows with names.

    Args:
        formats: of the cells by their titles; None and what is missing is left out, also in
            brackets, which have figures of another system.
    """
    cells = _Cells()
    return table(formats, ([re.sub(r' \(\D*\)$', '', cells.vformat(each, (), row))
                            for each in formats.values()] for row in rows))


def median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def mean(trees: Sequence[Any]) -> Any:
    """Return the mean of nested mappings of numbers, each number over those that have it."""
    if not isinstance(trees[0], Mapping):
        return statistics.mean(trees)
    names = dict.fromkeys(name for tree in trees for name in tree)
    return {name: mean([tree[name] for tree in trees if name in tree]) for name in names}


def machine() -> dict[str, Any]:
    """Return the hardware and the versions that figures depend on."""
    import psutil
    lines = Path('/proc/cpuinfo').read_text().splitlines()
    facts = {key.strip(): value.strip() for key, _, value in (
        line.partition(':') for line in lines) if key.strip() in ('model name', 'flags')}
    return {
        'processor': facts.get('model name', platform.processor()),
        'bfloat16': [flag for flag in facts.get('flags', '').split() if 'bf16' in flag],
        'cores': len(os.sched_getaffinity(0)),
        'memory_gb': round(psutil.virtual_memory().total / 1e9, 1),
        'kernel': platform.release(), 'python': platform.python_version(),
        # Not from the modules: importing torch takes seconds.
        'torch': version('torch'), 'numpy': version('numpy'),
        'rmw': os.environ.get('RMW_IMPLEMENTATION', 'default')}
