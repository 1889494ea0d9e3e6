"""What environments start and leave behind, and processes whose environments never return."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import secrets
import sys
import threading
from collections.abc import Iterator

import psutil

#: Environment variable of a process and of what it starts; see :func:`take_mark`.
MARK = 'VDL_ROS_STARTED_BY'
# Children inherit limits in whatever session and environment they start; this one has had no
# effect since Linux 2.4.30.
_LIMIT = resource.RLIMIT_RSS
# A process may be starting another one while it is ended.
_ROUNDS, _ROUND_S = 3, 5.0
# Time between two looks at whether a process is to end, s.
_WATCH_S = 0.5
#: Longest time from a signal to the end of a process that has a run to save, s.
SAVING_S = 60.0


def new_mark() -> str:
    """Return a unique value for ``MARK``, larger than any memory."""
    return str(1 << 62 | secrets.randbits(61))


def take_mark() -> None:
    """Mark what this process will start, also in an environment without the variable ``MARK``."""
    if mark := os.environ.get(MARK):
        # A hard limit may be below; then those with the variable are still found.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(_LIMIT, (int(mark), resource.getrlimit(_LIMIT)[1]))


def _is_marked(process: psutil.Process, mark: str) -> bool:
    with contextlib.suppress(psutil.Error):
        # A zombie has no environment, which is an error.
        return mark in (process.environ().get(MARK), str(process.rlimit(_LIMIT)[0]))
    return False


def end_marked(mark: str) -> list[str]:
    """Kill the processes of this user that have this mark of an ended process; return names."""
    names = []
    for _ in range(_ROUNDS):
        found = [each for each in psutil.process_iter(['name']) if _is_marked(each, mark)]
        for each in found:
            with contextlib.suppress(psutil.Error):
                each.kill()
                names.append(each.info['name'])
        if not found:
            break
        psutil.wait_procs(found, _ROUND_S)
    return names


def end_children() -> None:
    """Kill the processes that this one started, and that theirs started."""
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            each.kill()


@contextlib.contextmanager
def ending_within(seconds: float, name: str, stop: threading.Event) -> Iterator[None]:
    """End the process, and what it started, if the block lasts longer than that after ``stop``.

    For blocks that call environments: a step or ``close()`` of one may never return.
    """
    over = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            if over.wait(_WATCH_S):
                return
        if not over.wait(seconds):
            print(f'{name}: the environment has not returned in {seconds:g} s since the signal '
                  'to end: ended without it', file=sys.stderr, flush=True)
            end_children()
            os._exit(1)

    if seconds < math.inf:
        threading.Thread(target=watch, name='end', daemon=True).start()
    try:
        yield
    finally:
        over.set()
