"""Files of Fast DDS in ``/dev/shm``: which are in use, and which killed processes have left."""

import contextlib
import fcntl
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

FOLDER = 'dev/shm'
# The prefix is fastrtps in Fast DDS 2 and fastdds in Fast DDS 3.
_NAME = re.compile(r'(?:sem\.)?(?P<group>(?:fastrtps|fastdds|fast_datasharing)_\w+?)'
                   r'(?:_el|_sl|_mutex)?')
# Minimum age of a lock file to test, and of a file to remove, s: a starting process creates it,
# then locks it.
_STARTING_S, _MIN_AGE_S = 0.5, 5.0
_PORT = re.compile(r'(?:fastrtps|fastdds)_port(\d+)')
# Ports of a domain: ten that belong to no participant, then two for each participant.
_PORTS, _FIRST, _PER_DOMAIN = 7400, 10, 250
# Only the newest: peers have dropped older ports, and participant numbers are limited.
_MAX_PORTS = 16


def files_in_use(root: Path = Path('/')) -> set[str]:
    """Return the names of the files in ``/dev/shm`` that a readable process has mapped or open."""
    names = set()
    for process in (root / 'proc').iterdir():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            for line in (process / 'maps').read_text(errors='replace').splitlines():
                if '/dev/shm/' in line:
                    names.add(line.rpartition('/dev/shm/')[2].removesuffix(' (deleted)'))
        with contextlib.suppress(OSError):
            for link in (process / 'fd').iterdir():
                with contextlib.suppress(OSError):
                    target = os.readlink(link)
                    if '/dev/shm/' in target:
                        names.add(target.rpartition('/dev/shm/')[2])
    return names


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock on a file, even if ``/proc`` does not show it.

    Locks are visible across containers that share ``/dev/shm``. The test itself takes the lock for
    a moment. For Fast DDS's ``_el`` files, whose owners lock exclusively, it takes a shared one,
    so that concurrent tests do not mistake each other for an owner. Owners of ``_sl`` share.
    """
    kind = fcntl.LOCK_SH if path.name.endswith('_el') else fcntl.LOCK_EX
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(handle)


def first_port(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return the first participant port of the domain; None if ROS_DOMAIN_ID is not a number."""
    domain = environ.get('ROS_DOMAIN_ID') or '0'
    return _PORTS + _PER_DOMAIN * int(domain) + _FIRST if domain.isdecimal() else None


def stale_ports(first: int, root: Path = Path('/')) -> list[int]:
    found: dict[int, tuple[float, str]] = {}
    with contextlib.suppress(OSError):
        for path in (root / FOLDER).iterdir():
            match = _PORT.fullmatch(path.name)
            if match and first <= int(match[1]) < first + _PER_DOMAIN - _FIRST \
                    and not _is_read(path):
                with contextlib.suppress(OSError):
                    found[int(match[1])] = path.stat().st_mtime, path.name
    used = files_in_use(root) if found else set()
    newest = sorted(found, key=found.__getitem__, reverse=True)
    return [port for port in newest if found[port][1] in used][:_MAX_PORTS]


def _is_read(port: Path) -> bool:
    lock = port.with_name(f'{port.name}_el')
    try:
        return time.time() - lock.stat().st_mtime < _STARTING_S or is_locked(lock)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # of another user: unknown


@contextlib.contextmanager
def reserved(environ: Mapping[str, str] = os.environ, root: Path = Path('/')) -> Iterator[None]:
    """Reserve the ports of killed processes while participants are created in the block."""
    first = first_port(environ)
    with contextlib.ExitStack() as sockets:
        for port in stale_ports(first, root) if first is not None else ():
            # Both ports of the participant; either blocks its number.
            for each in (port, port ^ 1):
                blocker = sockets.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                # Other starting nodes reserve them too; participants do not share ports.
                blocker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                with contextlib.suppress(OSError):
                    blocker.bind(('', each))
        yield


def files_of_dds(root: Path = Path('/')) -> Iterator[Path]:
    """Yield the files of Fast DDS in ``/dev/shm``."""
    with contextlib.suppress(OSError):
        for path in sorted((root / FOLDER).iterdir()):
            if _NAME.fullmatch(path.name):
                yield path


def stale_shared_memory(
    root: Path = Path('/'), now: float | None = None, *, ports: bool = True,
) -> Iterator[Path]:
    """Yield the files of Fast DDS in ``/dev/shm`` that no process uses at a time, Unix, s."""
    now = time.time() if now is None else now
    groups: dict[str, list[Path]] = {}
    for path in files_of_dds(root):
        match = _NAME.fullmatch(path.name)
        if match and (ports or '_port' not in match['group']):
            groups.setdefault(match['group'], []).append(path)
    # A segment and its lock are removed together.
    old = [group for group in groups.values() if all(_abandoned(file, now) for file in group)]
    used = files_in_use(root) if old else set()
    for group in old:
        if not any(file.name in used for file in group):
            yield from group


def clean_stale_shared_memory(
    root: Path = Path('/'), now: float | None = None, *, ports: bool = True,
) -> tuple[int, int]:
    """Remove the files of :func:`stale_shared_memory`; return their number and size in bytes."""
    files = size = 0
    for path in stale_shared_memory(root, now, ports=ports):
        with contextlib.suppress(OSError):
            length = path.stat().st_size
            path.unlink()
            files, size = files + 1, size + length
    return files, size


def _abandoned(path: Path, now: float) -> bool:
    try:
        return now - path.stat().st_mtime >= _MIN_AGE_S and not is_locked(path)
    except OSError:
        return False  # of another user, or just removed
