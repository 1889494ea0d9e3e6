"""How a benchmark ends: a table for people, one JSON object for programs, and on what machine."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ['add_options', 'check_output', 'deliver', 'machine']


def add_options(parser: argparse.ArgumentParser) -> None:
    """Give a benchmark the options ``--json`` and ``--output``."""
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    parser.add_argument('--output', type=Path, metavar='FILE', help='write that object there')


def check_output(options: argparse.Namespace) -> None:
    """
    Look before the work whether its result can be kept.

    Raises:
        ValueError: ``--output`` is a folder, or in one that does not exist.
    """
    path = options.output
    if path is None:
        return
    if path.is_dir():
        raise ValueError(f'--output: {path} is not allowed: it is a folder')
    if not path.absolute().parent.is_dir():
        raise ValueError(f'--output: {path} is not allowed: there is no such folder')


def deliver(
    found: Mapping[str, Any], options: argparse.Namespace,
    table: Callable[[Mapping[str, Any]], str],
) -> None:
    """Write and print what was found; ``table`` makes it readable."""
    if options.output is not None:
        options.output.write_text(json.dumps(found, indent=1) + '\n', encoding='utf-8')
    print(json.dumps(found) if options.json else table(found))


def machine() -> dict[str, Any]:
    """Return what figures depend on."""
    import numpy
    import psutil
    import torch
    lines = Path('/proc/cpuinfo').read_text().splitlines()
    facts = {key.strip(): value.strip() for key, _, value in (
        line.partition(':') for line in lines) if key.strip() in ('model name', 'flags')}
    return {
        'processor': facts.get('model name', platform.processor()),
        'bfloat16': [flag for flag in facts.get('flags', '').split() if 'bf16' in flag],
        'cores': len(os.sched_getaffinity(0)),
        'memory_gb': round(psutil.virtual_memory().total / 1e9, 1),
        'kernel': platform.release(), 'python': platform.python_version(),
        'torch': torch.__version__, 'numpy': numpy.__version__,
        'rmw': os.environ.get('RMW_IMPLEMENTATION', 'default')}
