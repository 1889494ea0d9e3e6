"""Other systems that learn the same tasks: how each is installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ['PEERS', 'Clone', 'Peer', 'alone', 'install']

_LAST_LINES = 20
_WORKERS = Path(__file__).parent
_COMMON = ('torch==2.13.0', 'ale-py==0.12.1')


@dataclass(frozen=True)
class Clone:
    """A commit of a repository."""

    repository: str
    commit: str


@dataclass(frozen=True)
class Peer:
    """One system.

    Attributes:
        algorithms: what it learns a game and CartPole with.
        worker: script that trains in the environment and with the seed that it is given, until it
            is interrupted or has made its steps, and prints a line at each update.
        clone: what lies in the folder ``clone`` of its environment, for what pip cannot install.
    """

    title: str
    algorithms: tuple[str, str]
    requirements: tuple[str, ...]
    worker: Path
    clone: Clone | None = None


PEERS = {
    'sample_factory': Peer(
        'Sample Factory 2.1.1', ('APPO', 'APPO'), (
            *_COMMON, 'sample-factory==2.1.1', 'gymnasium==0.29.1', 'numpy<2',
            'opencv-python-headless<5'),
        _WORKERS / 'sample_factory_worker.py'),
    'stable_baselines3': Peer(
        'Stable-Baselines3 2.9.2', ('A2C', 'PPO'), (
            *_COMMON, 'stable-baselines3==2.9.2', 'opencv-python-headless'),
        _WORKERS / 'stable_baselines3_worker.py'),
    'rllib': Peer(
        'RLlib 2.60.0', ('IMPALA', 'PPO'), (
            *_COMMON, 'ray[rllib]==2.60.0', 'opencv-python-headless'),
        _WORKERS / 'rllib_worker.py'),
    'cleanrl': Peer(
        'CleanRL fe8d8a0', ('PPO', 'PPO'), (
            *_COMMON, 'gymnasium==0.29.1', 'numpy<2', 'opencv-python-headless<5', 'tensorboard',
            'tyro'),
        _WORKERS / 'cleanrl_worker.py',
        Clone('https://github.com/vwxyzjn/cleanrl', 'fe8d8a03c41a7ef5b523e2e354bd01c363e786bb'))}


def install(peer: Peer, folder: Path) -> Path:
    """Return the Python of an environment with a peer, in a folder that is its own.

    The first call takes minutes; later ones find what is there.

    Raises:
        RuntimeError: it cannot be installed; with the last lines of pip or git.
    """
    python, stamp = folder / 'bin' / 'python', folder / 'requirements.txt'
    commit = [f'# {peer.clone.repository} {peer.clone.commit}'] if peer.clone else []
    text = '\n'.join([*peer.requirements, *commit]) + '\n'
    if python.exists() and stamp.exists() and stamp.read_text() == text:
        return python
    _run([sys.executable, '-m', 'venv', '--clear', str(folder)])
    if peer.requirements:
        _run(alone(python, '-m', 'pip', 'install', '--quiet', *peer.requirements))
    if peer.clone:
        _run(['git', 'clone', '--quiet', '--no-checkout', peer.clone.repository,
              str(folder / 'clone')])
        _run(['git', '-C', str(folder / 'clone'), 'checkout', '--quiet', peer.clone.commit])
    stamp.write_text(text)
    return python


def alone(python: Path, *words: str) -> list[str]:
    """Return a command of an environment that does not see this one's packages."""
    return ['env', '-u', 'PYTHONPATH', '-u', 'LD_LIBRARY_PATH', str(python), *words]


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise RuntimeError(f'{error.filename}: no such command') from None
    if done.returncode:
        lines = (done.stdout + done.stderr).splitlines()[-_LAST_LINES:]
        raise RuntimeError('\n'.join([f'{" ".join(command)}: status {done.returncode}', *lines]))
