"""Other systems that train from the same games: how each is installed, and started."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.graph import launched, memory_mb
from benchmarks.train.table import TooFewRowsError, steady_rate

__all__ = ['PEERS', 'Peer', 'install', 'rows', 'run_peer']

# Until the first update, and for as long as one may take beyond the measurement, s.
_START_S, _PATIENCE_S = 180.0, 120.0
_POLL_S = 0.1
_LAST_LINES = 20
_WORKERS = Path(__file__).parent
_COMMON = ('torch==2.13.0', 'ale-py==0.12.1')


@dataclass(frozen=True)
class Peer:
    """
    One system.

    Attributes:
        title: its name and algorithm.
        requirements: what pip installs.
        worker: script that trains until it is interrupted, and prints a line at each update.
    """

    title: str
    requirements: tuple[str, ...]
    worker: Path


PEERS = {
    'sample_factory': Peer(
        'Sample Factory 2.1.1, APPO', (
            *_COMMON, 'sample-factory==2.1.1', 'gymnasium==0.29.1', 'numpy<2',
            'opencv-python-headless<5'),
        _WORKERS / 'sample_factory_worker.py'),
    'stable_baselines3': Peer(
        'Stable-Baselines3 2.9.2, A2C', (
            *_COMMON, 'stable-baselines3==2.9.2', 'opencv-python-headless'),
        _WORKERS / 'stable_baselines3_worker.py')}


def install(peer: Peer, folder: Path) -> Path:
    """
    Return the Python of an environment with a peer, in a folder that is its own.

    The first call takes minutes; later ones find what is there.

    Raises:
        RuntimeError: it cannot be installed; with pip's last lines.
    """
    python, stamp = folder / 'bin' / 'python', folder / 'requirements.txt'
    text = '\n'.join(peer.requirements) + '\n'
    if python.exists() and stamp.exists() and stamp.read_text() == text:
        return python
    _run([sys.executable, '-m', 'venv', '--clear', str(folder)])
    if peer.requirements:
        _run(_alone(python, '-m', 'pip', 'install', '--quiet', *peer.requirements))
    stamp.write_text(text)
    return python


def run_peer(
    peer: Peer, python: Path, env_id: str, *, warm_up: float, seconds: float,
) -> tuple[float, float]:
    """
    Return a peer's agent steps/s, after its first update and the warm-up, and its memory, MB.

    Raises:
        RuntimeError: it ended, or made too few updates in time; with its last lines.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / 'log'
        with launched(*_alone(python, str(peer.worker), env_id), log=log) as process:
            deadline, start, memory = time.monotonic() + _START_S, 0.0, 0.0
            while process.poll() is None:
                found = rows(log.read_text(errors='replace'))
                if found and not start:
                    start = found[0][0] + warm_up
                    deadline = time.monotonic() + warm_up + seconds + _PATIENCE_S
                if found and found[-1][0] >= start + seconds:
                    memory = _memory_of_all(process.pid)
                    break
                if time.monotonic() > deadline:
                    raise RuntimeError(f'{peer.title}: {len(found)} updates are too few for '
                                       f'{warm_up + seconds:g} s')
                time.sleep(_POLL_S)
        try:
            return steady_rate(found, start)[0], memory
        except TooFewRowsError as error:
            raise RuntimeError(f'{peer.title}: {error}') from None


def _memory_of_all(pid: int) -> float:
    """Return the memory of a process and of all that it started, MB."""
    root, total = psutil.Process(pid), 0.0
    for process in (root, *root.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += memory_mb(process)
    return total


def rows(text: str) -> list[tuple[float, float]]:
    """Return (wall time in s, agent steps) of each whole report in what a worker printed."""
    found = []
    for line in text.splitlines():
        try:
            report = json.loads(line)
            found.append((float(report['wall_s']), float(report['agent_steps'])))
        except (ValueError, KeyError, TypeError):
            continue
    return found


def _alone(python: Path, *words: str) -> list[str]:
    """Return a command of an environment that does not see this one's packages."""
    return ['env', '-u', 'PYTHONPATH', '-u', 'LD_LIBRARY_PATH', str(python), *words]


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stdout + done.stderr).splitlines()[-_LAST_LINES:]
        raise RuntimeError('\n'.join([f'{" ".join(command)}: status {done.returncode}', *lines]))
