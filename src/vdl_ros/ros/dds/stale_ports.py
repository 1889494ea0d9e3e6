"""
Find shared-memory ports of killed processes, and keep new participants from using them.

A DDS participant takes the first number that is free on its host, which determines its ports
(DDS-RTPS 2.5, section 9.6.2.3). A participant that replaces a killed one would get the same ports.
Its peers still have the old shared-memory port mapped and write to it until Fast DDS finds it
unhealthy, so the new participant would receive nothing from them for 15 s.
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

# The prefix is fastrtps in Fast DDS 2 and fastdds in Fast DDS 3.
_NAME = re.compile(r'(?:fastrtps|fastdds)_port(\d+)')
# Ports of a domain: ten that belong to no participant, then two for each participant.
_PORTS, _FIRST, _PER_DOMAIN = 7400, 10, 250
# Only the newest: peers have dropped older ports, and participant numbers are limited.
_MAX_PORTS = 16
# Minimum age of a lock file to test, s: a starting process creates it, then locks it.
_STARTING_S = 0.5


def first_port(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return the first participant port of the domain; None if ROS_DOMAIN_ID is not a number."""
    domain = environ.get('ROS_DOMAIN_ID') or '0'
    return _PORTS + _PER_DOMAIN * int(domain) + _FIRST if domain.isdecimal() else None


def stale_ports(first: int, root: Path = Path('/')) -> list[int]:
    """
    Return ports that a process has mapped and none reads, at most 16, newest first.

    Args:
        first: first participant port of the domain.
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
    used = shm_files.files_in_use(root) if found else set()
    newest = sorted(found, key=found.__getitem__, reverse=True)
    return [port for port in newest if found[port][1] in used][:_MAX_PORTS]


def _is_read(port: Path) -> bool:
    lock = port.with_name(f'{port.name}_el')
    try:
        return time.time() - lock.stat().st_mtime < _STARTING_S or shm_files.is_locked(lock)
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
