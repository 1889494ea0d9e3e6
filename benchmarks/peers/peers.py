"""Other systems that learn the same tasks: their installation and their trainings."""

import contextlib
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.graph import Row, hold, last_lines, launched, memory_mb, wait

# Until the first update, s.
_START_S = 180.0
_POLL_S = 0.1
_WORKERS = Path(__file__).parent
_COMMON = ('torch==2.13.0', 'ale-py==0.12.1')
#: Classic tasks, with the mean return at which each counts as solved.
TASKS = {'CartPole-v1': 475.0, 'Acrobot-v1': -100.0, 'LunarLander-v3': 200.0}


@dataclass(frozen=True)
class Peer:
    """One system.

    Attributes:
        algorithm: what it learns a game with.
        tasks: of TASKS, those for which it has settings.
        worker: script that trains in the environment and with the seed that it is given, until it
            is interrupted or has made its steps, and prints a line at each update.
        clone: repository and commit of what lies in the folder ``clone`` of its environment, for
            what pip cannot install.
    """

    title: str
    algorithm: str
    requirements: tuple[str, ...]
    worker: Path
    tasks: tuple[str, ...]
    clone: tuple[str, str] | None = None


PEERS = {
    'sample_factory': Peer(
        'Sample Factory 2.1.1', 'APPO', (
            *_COMMON, 'sample-factory==2.1.1', 'gymnasium==0.29.1', 'numpy<2',
            'opencv-python-headless<5'),
        _WORKERS / 'sample_factory_worker.py', ('CartPole-v1',)),
    'stable_baselines3': Peer(
        'Stable-Baselines3 2.9.2', 'A2C', (
            *_COMMON, 'stable-baselines3==2.9.2', 'box2d==2.3.10', 'pygame',
            'opencv-python-headless'),
        _WORKERS / 'stable_baselines3_worker.py', tuple(TASKS)),
    'rllib': Peer(
        'RLlib 2.60.0', 'IMPALA', (
            *_COMMON, 'ray[rllib]==2.60.0', 'opencv-python-headless'),
        _WORKERS / 'rllib_worker.py', ('CartPole-v1',)),
    'cleanrl': Peer(
        'CleanRL fe8d8a0', 'PPO', (
            *_COMMON, 'gymnasium==0.29.1', 'numpy<2', 'box2d==2.3.10', 'pygame',
            'opencv-python-headless<5', 'tensorboard', 'tyro'),
        _WORKERS / 'cleanrl_worker.py', tuple(TASKS),
        ('https://github.com/vwxyzjn/cleanrl', 'fe8d8a03c41a7ef5b523e2e354bd01c363e786bb'))}


def install(requirements: Sequence[str], folder: Path, clone: tuple[str, str] | None = None,
            beneath: Sequence[str] = ()) -> Path:
    """Return the Python of a virtual environment, in a folder that is its own.

    The first call takes minutes; later ones find what is there.

    Args:
        clone: see :class:`Peer`.
        beneath: folders with packages that the environment has, unless it has other versions;
            this pip installs into it, as its own would hide what lies beneath.
    """
    python, stamp = folder / 'bin' / 'python', folder / 'requirements.txt'
    text = '\n'.join([*requirements, f'# {clone}', *(f'# {each}' for each in beneath)])
    if python.exists() and stamp.exists() and stamp.read_text() == text:
        return python
    _run([sys.executable, '-m', 'venv', '--clear', *(['--without-pip'] if beneath else []),
          str(folder)])
    for packages in (folder / 'lib').glob('python3.*/site-packages'):
        (packages / 'beneath.pth').write_text('\n'.join(beneath))
    if requirements:
        pip = ([sys.executable, '-m', 'pip', '--python', str(python)] if beneath else
               _alone(python, '-m', 'pip'))
        _run([*pip, 'install', '--quiet', *requirements])
    if clone:
        (repository, commit), place = clone, str(folder / 'clone')
        _run(['git', 'clone', '--quiet', '--no-checkout', repository, place])
        _run(['git', '-C', place, 'checkout', '--quiet', commit])
    stamp.write_text(text)
    return python


def _alone(python: Path, *words: str) -> list[str]:
    """Return a command of an environment that does not see this one's packages."""
    return ['env', '-u', 'PYTHONPATH', '-u', 'LD_LIBRARY_PATH', str(python), *words]


def _run(words: Sequence[str]) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise RuntimeError(f'{error.filename}: no such command') from None
    if done.returncode:
        raise RuntimeError(f'{" ".join(words)}: status {done.returncode}\n'
                           + last_lines(done.stdout + done.stderr))


def rows(text: str) -> list[Row]:
    found = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            report = json.loads(line)
            mean = report['mean_return']
            found.append(Row(float(report['wall_s']), float(report['agent_steps']),
                             -math.inf if mean is None else float(mean)))
    return found


def command(peer: Peer, python: Path, env_id: str, seed: int) -> list[str]:
    return _alone(python, str(peer.worker), env_id, str(seed))


def run_peer(
    peer: Peer, python: Path, env_id: str, *, warm_up: float, seconds: float,
) -> tuple[float, float]:
    """Return a peer's agent steps/s after its first update and the warm-up, and its memory, MB."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / 'log'

        def learned() -> list[Row]:
            return [row for row in rows(log.read_text(errors='replace')) if row.agent_steps > 0]

        with launched(*command(peer, python, env_id, 1), log=log) as process:
            wait(process, learned, _START_S, f'{peer.title}: an update')
            start = learned()[0].wall_s + warm_up
            found = hold(process, learned, start, seconds, title=peer.title)
            root, memory = psutil.Process(process.pid), 0.0
            for each in (root, *root.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    memory += memory_mb(each)
    return found['steps_per_s'], memory


def until_return(
    words: Sequence[str], read: Callable[[str], list[Row]], *, mean_return: float, limit: float,
) -> tuple[float | None, float | None]:
    """Return the seconds from the start of a command, and the agent steps, until a mean return.

    Args:
        words: the command; it may end by itself.
        read: returns the rows so far from what the command has printed.
        mean_return: of the last 100 episodes.
        limit: s; both are None if it takes longer, or ends before.
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
    return None, None
