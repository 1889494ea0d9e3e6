"""
Ports of killed processes that the living still write to, and how not to take them.

A DDS participant takes the first number that is free on its host, and its ports follow from it
(DDS-RTPS 2.5, section 9.6.2.3). One that is started in the place of a killed one would get the
same ports. Whoever knew the dead one has its shared-memory port mapped and goes on writing to
that, until Fast DDS finds it unhealthy: for 15 s (docs/transport.md) the new one would hear
nothing from them.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from vdl_ros.ros.dds import shm_files

__all__ = ['reserved', 'stale_ports', 'first_port']

# Fast DDS 2 says fastrtps where Fast DDS 3 says fastdds.
_NAME = re.compile(r'(?:fastrtps|fastdds)_port(\d+)')
# Ports of a domain, two for each participant, after ten that are not a participant's own.
_PORTS, _FIRST, _PER_DOMAIN = 7400, 10, 250
# The newest. Ports that died long ago are known to be dead; and numbers of participants are few.
_MOST = 16
# A process that starts creates a lock and takes it then, s: who tries it meanwhile, takes it away.
_STARTING_S = 0.5


def first_port(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return the first port of participants in this domain; None if that is not a number."""
    domain = environ.get('ROS_DOMAIN_ID') or '0'
    return _PORTS + _PER_DOMAIN * int(domain) + _FIRST if domain.isdecimal() else None


def stale_ports(first: int, root: Path = Path('/')) -> list[int]:
    """
    Return ports that a process has mapped and no process reads, at most 16, the newest first.

    Args:
        first: port of participants in the domain.
        root: of the file system.
    """
    found: dict[int, tuple[float, str]] = {}
    with contextlib.suppress(OSError):
        for path in (root / shm_files.FOLDER).iterdir():
            match = _NAME.fullmatch(path.name)
            if match and first <= int(match[1]) < first + _PER_DOMAIN - _FIRST \
                    and not _is_read(path):
                with contextlib.suppress(OSError):
                    found[int(match[1])] = path.stat().st_mtime, path.name
    held = shm_files.held(root) if found else set()
    newest = sorted(found, key=found.__getitem__, reverse=True)
    return [port for port in newest if found[port][1] in held][:_MOST]


def _is_read(port: Path) -> bool:
    lock = port.with_name(f'{port.name}_el')
    try:
        return time.time() - lock.stat().st_mtime < _STARTING_S or shm_files.is_locked(lock)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # another user's: not ours to judge


@contextlib.contextmanager
def reserved(environ: Mapping[str, str] = os.environ, root: Path = Path('/')) -> Iterator[None]:
    """Keep participants that are made in the block from the ports of killed ones."""
    first = first_port(environ)
    with contextlib.ExitStack() as sockets:
        for port in stale_ports(first, root) if first is not None else ():
            # Both of its participant: one that is taken keeps others from the number.
            for each in (port, port ^ 1):
                taken = sockets.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                # Others that start now keep them too; a participant does not share.
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                with contextlib.suppress(OSError):
                    taken.bind(('', each))
        yield
