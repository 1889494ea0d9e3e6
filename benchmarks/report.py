"""Options, exit status, JSON object and Markdown tables of every benchmark."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vdl_ros.common.command_line import EXIT_BAD_INPUT, OneLineParser

EXIT_FAILED, EXIT_INTERRUPTED = 1, 130


class Parser(OneLineParser):
    """Parser with ``--quick``, ``--json`` and ``--output``; an error is one line and status 2."""

    def __init__(self, name: str, doc: str | None, quick: str = 'under a minute, less exact'):
        super().__init__(prog=name, description=(doc or '').splitlines()[0])
        self.add_argument('--quick', action='store_true', help=quick)
        self.add_argument('--json', action='store_true', help='print one JSON object')
        self.add_argument('--output', type=Path, metavar='FILE', help='write that object there')


def complete(
    options: argparse.Namespace, defaults: Mapping[str, tuple[Any, Any]],
    limits: Mapping[str, tuple[float, float]],
) -> None:
    """Set the options that were not given; check all.

    Args:
        defaults: by option, the value without and with ``--quick``.
        limits: by option, the lowest and highest number allowed, also within a list.

    Raises:
        ValueError: a number out of range, or an ``--output`` that cannot be written.
    """
    for name, (usual, quick) in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else usual)
    for name, (low, high) in limits.items():
        values = getattr(options, name)
        for value in values if isinstance(values, list | tuple) else [values]:
            if value is not None and not low <= value <= high:
                raise ValueError(f'--{name.replace("_", "-")}: {value} is not allowed: '
                                 f'{low} to {high}')
    path = options.output
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise ValueError(f'--output: {path} is not allowed: ' + (
            'it is a folder' if path.is_dir() else 'there is no such folder'))


def numbers(option: str, text: str, low: int, high: int, reason: str = '') -> list[int]:
    """Return the different numbers of a text such as ``1,2,5``, in its order.

    Raises:
        ValueError: one is no number or not within ``low`` and ``high``, for this ``reason``.
    """
    try:
        found = [int(word) for word in text.split(',')]
    except ValueError:
        found = []
    if not found or not all(low <= each <= high for each in found):
        raise ValueError(f'{option}: {text!r} is not allowed: numbers from {low} to {high} with '
                         f'commas between{reason}')
    return list(dict.fromkeys(found))


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
    # As Ctrl-C, so that the measurement under way is ended as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return work(options) or 0
    except KeyboardInterrupt:
        log(f'{name}: interrupted')
        return EXIT_INTERRUPTED
    except RuntimeError as error:
        log(f'{name}: {error}')
        return EXIT_FAILED


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
        options.output.write_text(json.dumps(found, indent=1) + '\n', encoding='utf-8')
    print(json.dumps(found) if options.json else text(found))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    return ['| ' + ' | '.join(head) + ' |', '|' + '---|' * len(head),
            *('| ' + ' | '.join(row) + ' |' for row in rows)]


def percent(share: float | None) -> str:
    """Return a share as percent with one digit and no sign; empty for None."""
    return '' if share is None else f'{share:.1%}'.rstrip('%')


def median(values: Iterable[float | None]) -> float | None:
    """Return the median of all that are not None; None if there is none."""
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
