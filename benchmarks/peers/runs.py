"""Trainings with other systems: their speed and memory, and their time until a return."""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.graph import launched, memory_mb
from benchmarks.peers.peers import Peer, alone
from benchmarks.train.table import TooFewRowsError, steady_rate

__all__ = ['Row', 'command', 'rows', 'run_peer', 'until_return']

# Until the first update, and for as long as one may take beyond the measurement, s.
_START_S, _PATIENCE_S = 180.0, 120.0
_POLL_S = 0.1


class Row(NamedTuple):
    """A report of a training.

    Attributes:
        wall_s: when, s.
        mean_return: of the last 100 episodes; -inf if there were fewer.
    """

    wall_s: float
    agent_steps: float
    mean_return: float = -math.inf


def command(peer: Peer, python: Path, env_id: str, seed: int) -> list[str]:
    """Return the command that trains with a peer."""
    return alone(python, str(peer.worker), env_id, str(seed))


def run_peer(
    peer: Peer, python: Path, env_id: str, *, warm_up: float, seconds: float,
) -> tuple[float, float]:
    """Return a peer's agent steps/s, after its first update and the warm-up, and its memory, MB.

    Raises:
        RuntimeError: it ended, or made too few updates in time; with its last lines.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / 'log'
        with launched(*command(peer, python, env_id, 1), log=log) as process:
            deadline, start, memory = time.monotonic() + _START_S, 0.0, 0.0
            while process.poll() is None:
                found = rows(log.read_text(errors='replace'))
                learned = [row for row in found if row.agent_steps > 0]
                if learned and not start:
                    start = learned[0].wall_s + warm_up
                    deadline = time.monotonic() + warm_up + seconds + _PATIENCE_S
                if start and found[-1].wall_s >= start + seconds:
                    memory = _memory_of_all(process.pid)
                    break
                if time.monotonic() > deadline:
                    raise RuntimeError(f'{peer.title}: {len(found)} updates are too few for '
                                       f'{warm_up + seconds:g} s')
                time.sleep(_POLL_S)
        try:
            return steady_rate([(row.wall_s, row.agent_steps) for row in found], start)[0], memory
        except TooFewRowsError as error:
            raise RuntimeError(f'{peer.title}: {error}') from None


def _memory_of_all(pid: int) -> float:
    """Return the memory of a process and of all that it started, MB."""
    root, total = psutil.Process(pid), 0.0
    for process in (root, *root.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += memory_mb(process)
    return total


def until_return(
    words: Sequence[str], read: Callable[[str], list[Row]], *, mean_return: float, limit: float,
) -> tuple[float, float] | None:
    """Return the seconds from the start of a command, and the agent steps, until a mean return.

    Args:
        words: the command; it may end by itself.
        read: returns the rows so far from what the command has printed.
        mean_return: of the last 100 episodes.
        limit: s; None is returned if it takes longer, or ends before.

    Raises:
        RuntimeError: it failed; with its last lines.
    """
    with tempfile.TemporaryDirectory() as folder:
        log, began = Path(folder) / 'log', time.monotonic()
        with launched(*words, log=log, may_end=True) as process:
            while time.monotonic() < began + limit:
                ended = process.poll() is not None
                seconds = time.monotonic() - began
                for row in read(log.read_text(errors='replace')):
                    if row.mean_return >= mean_return:
                        return seconds, row.agent_steps
                if ended:
                    break
                time.sleep(_POLL_S)
    return None


def rows(text: str) -> list[Row]:
    """Return each whole report in what a worker printed."""
    found = []
    for line in text.splitlines():
        try:
            report = json.loads(line)
            mean = report['mean_return']
            found.append(Row(float(report['wall_s']), float(report['agent_steps']),
                             -math.inf if mean is None else float(mean)))
        except (ValueError, KeyError, TypeError):
            continue
    return found
