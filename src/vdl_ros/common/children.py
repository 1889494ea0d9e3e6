"""What a process started and left behind: simulators and workers of environments."""

from __future__ import annotations

import contextlib

import psutil

#: Environment variable of a process and of all that it starts, also in sessions of their own.
MARK = 'VDL_ROS_STARTED_BY'
# A process may be starting another one while it is ended.
_ROUNDS, _ROUND_S = 3, 5.0


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
