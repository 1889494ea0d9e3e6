"""What environments start and leave behind, and processes whose environments never return."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
from collections.abc import Iterator

import psutil

#: Environment variable of a process and of all that it starts, also in sessions of their own.
MARK = 'VDL_ROS_STARTED_BY'
# A process may be starting another one while it is ended.
_ROUNDS, _ROUND_S = 3, 5.0
# Time between two looks at whether a process is to end, s.
_WATCH_S = 0.5
#: Longest time from a signal to the end of a process that has a run to save, s.
SAVING_S = 60.0


def end_marked(mark: str) -> list[str]:
    """Kill the processes of this user in whose environment ``MARK`` is this; return their names.

    The value has to be unique: it is of one process, which has ended.
    """
    names = []
    for _ in range(_ROUNDS):
        found = [each for each in psutil.process_iter(['environ', 'name'])
                 if (each.info['environ'] or {}).get(MARK) == mark]
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
