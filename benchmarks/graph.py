"""Processes of benchmarks: commands that end with a block, modules, a ROS domain."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ['interrupts_held', 'launched', 'module_command', 'own_domain']

# What launch takes beside the time it grants its nodes: it kills them 5 s later, then it ends, s.
_ENDING_S = 20.0


@contextmanager
def own_domain() -> Iterator[int]:
    """Let nobody else hear this process and what it starts; yield the domain's number."""
    from domain_coordinator import domain_id
    with domain_id() as number:
        os.environ |= {'ROS_DOMAIN_ID': str(number), 'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST'}
        yield number


def module_command(module: str, *words: str) -> list[str]:
    """Return the command that calls ``main()`` of a module of this package with these words."""
    # Not -m: a folder benchmarks in the working directory would come first.
    root = str(Path(__file__).absolute().parents[1])
    return [sys.executable, '-c', f'import sys; sys.path[:0] = [{root!r}]; '
            f'from {module} import main; sys.exit(main())', *words]


@contextmanager
def launched(*command: str, core: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """
    Run a command while the block runs, then interrupt it as Ctrl-C does.

    Args:
        command: its words.
        core: the one core that it and all its children may use; any by default.

    Raises:
        RuntimeError: it ended before the block did; with its last lines.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / 'log'
        process = None
        try:
            # An interrupt in between would leave a process that nobody knows of.
            with log.open('wb') as stream, interrupts_held():
                process = subprocess.Popen(
                    command, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}))
            yield process
            if process.poll() is not None:
                raise RuntimeError(f'{command[0]} ended:\n{_last_lines(log)}')
        finally:
            if process is not None:
                with interrupts_held():
                    _end(process)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait until the block is over."""
    held: list[int] = []
    before = {number: signal.signal(number, lambda each, _: held.append(each))
              for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in dict.fromkeys(held):
            signal.raise_signal(number)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt, and kill what has not ended when launch would have killed it."""
    from vdl_ros.ros.launch_arguments import SAVING_S
    for how in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
            process.wait(float(SAVING_S) + _ENDING_S)
            return
        except ProcessLookupError:
            process.wait()
            return
        except subprocess.TimeoutExpired:
            continue


def _last_lines(log: Path, count: int = 20) -> str:
    lines: Sequence[str] = log.read_text(errors='replace').splitlines()
    return '\n'.join(lines[-count:])
