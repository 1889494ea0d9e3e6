"""Processes of benchmarks: commands that end with a block, modules of this package, ROS domain."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

__all__ = ['delayed_interrupts', 'launched', 'memory_mb', 'module_command', 'own_domain']

# Launch kills nodes that exceed their time 5 s later, then it ends, s.
_ENDING_S = 20.0
_LAST_LINES = 20


@contextmanager
def own_domain(*, configure: bool = False) -> Iterator[str]:
    """Give this process and its children a ROS domain that no one else on this host uses.

    Args:
        configure: apply the package's DDS profile to this process; its name is yielded.

    Raises:
        RuntimeError: the environment names a transport that does not exist.
    """
    from domain_coordinator import domain_id

    from vdl_ros.ros.dds import transport
    with domain_id() as number:
        os.environ |= {'ROS_DOMAIN_ID': str(number), 'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST'}
        try:
            name = transport.configure().name if configure else ''
        except ValueError as error:
            raise RuntimeError(str(error)) from None
        yield name


def module_command(module: str, *words: str) -> list[str]:
    """Return the command that calls ``main()`` of a module of this package with these words."""
    # Not -m: a folder benchmarks in the working directory would come first.
    root = str(Path(__file__).absolute().parents[1])
    return [sys.executable, '-c', f'import sys; sys.path[:0] = [{root!r}]; '
            f'from {module} import main; sys.exit(main())', *words]


def memory_mb(process: psutil.Process) -> float:
    """Return the memory of a process in MB; of pages that others use too, its share (PSS)."""
    return float(process.memory_full_info().pss) / 1e6


@contextmanager
def launched(
    *command: str, core: int | None = None, log: Path | None = None, may_end: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command while the block runs, then interrupt it as Ctrl-C does.

    Args:
        core: the one core that it and its children may use; any by default.
        log: file for what it prints; a temporary one by default.
        may_end: it may end by itself, with status 0.

    Raises:
        RuntimeError: it ended before the block did; with its last lines.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = log or Path(folder) / 'log'
        process = None
        try:
            # An interrupt in between would leave a process that is never ended.
            with log.open('wb') as stream, delayed_interrupts():
                process = subprocess.Popen(
                    command, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}))
            yield process
            if process.poll() is not None and (process.returncode or not may_end):
                lines = log.read_text(errors='replace').splitlines()[-_LAST_LINES:]
                raise RuntimeError('\n'.join([f'{command[0]} ended:', *lines]))
        finally:
            if process is not None:
                with delayed_interrupts():
                    _end(process)


@contextmanager
def delayed_interrupts() -> Iterator[None]:
    """Deliver SIGINT and SIGTERM at the end of the block."""
    received: list[int] = []
    before = {number: signal.signal(number, lambda each, _: received.append(each))
              for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for each in dict.fromkeys(received):
            signal.raise_signal(each)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a process group; kill it if it outlives the time that launch grants its nodes."""
    from vdl_ros.ros.launch_nodes import SAVING_S
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(float(SAVING_S) + _ENDING_S)
            return
        except ProcessLookupError:
            process.wait()
            return
        except subprocess.TimeoutExpired:
            continue
