"""Hosts file: a CSV file with a row for each learner and each actor of a cluster."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import SettingError, suggestion

__all__ = ['ACTOR', 'LEARNER', 'Row', 'read_hosts']

LEARNER, ACTOR = 'learner', 'actor'
#: Columns of the file; the last one may be missing.
COLUMNS = ('job', 'host', 'port', 'devices', 'user', 'setup')
_MOST_BYTES = 1 << 20
# No value can be taken for an option of ssh, or has a character that a shell reads.
_HOST = re.compile(r'[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?')
_USER = re.compile(r'[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}')
_DEVICES = re.compile(r'none|[A-Za-z0-9][A-Za-z0-9/-]*([;,][A-Za-z0-9][A-Za-z0-9/-]*)*')
# Limits of num_learners and num_actors.
_MOST = {LEARNER: 64, ACTOR: 256}


@dataclass(frozen=True)
class Row:
    """One learner or actor.

    Attributes:
        job: ``learner`` or ``actor``.
        host: name or IPv4 address, or ``localhost``.
        port: of its sshd; None: the one of ssh's configuration, 22 by default.
        devices: CUDA devices, as in CUDA_VISIBLE_DEVICES; None: not limited.
        user: on the host; empty: the one of ssh's configuration.
        setup: file that bash reads there first; empty: the setting ``setup``.
    """

    job: str
    host: str
    port: int | None = None
    devices: str | None = None
    user: str = ''
    setup: str = ''


def read_hosts(path: Path) -> list[Row]:
    """Read a hosts file; lines that are empty or begin with # are left out.

    Raises:
        SettingError: a file that cannot be read, a column or a value that is not allowed, a file
            without a learner, or with fewer actors than learners; names file, line and column.
    """
    where = f'hosts: {path}'
    try:
        with path.open('rb') as stream:
            data = stream.read(_MOST_BYTES + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else 'it is no text'
        raise SettingError(f'{where} cannot be read: {reason}') from None
    if len(data) > _MOST_BYTES:
        raise SettingError(f'{where} is too large: at most {_MOST_BYTES} bytes')
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1)
             if line.strip() and not line.lstrip().startswith('#')]
    if not lines:
        raise SettingError(f'{where} is empty: a line with the columns {", ".join(COLUMNS)}')
    reader = csv.reader((line for _, line in lines), strict=True, skipinitialspace=True)
    rows: list[Row] = []
    header: list[str] = []
    for number, _ in lines:
        place = f'{where}, line {number}'
        try:
            cells = [cell.strip() for cell in next(reader)]
        except (csv.Error, StopIteration):
            raise SettingError(f'{place} is not CSV') from None
        if not header:
            header = cells
            _check_header(header, place)
        elif len(cells) > len(header):
            raise SettingError(
                f'{place} has {len(cells)} cells: at most {len(header)}, as the first line has')
        else:
            rows.append(_row(dict(zip(header, cells, strict=False)), place))
    _check_numbers(rows, where)
    return rows


def _check_header(header: Sequence[str], place: str) -> None:
    """Raise SettingError unless these are columns of the file."""
    for name in header:
        if 'pass' in name.lower():
            raise SettingError(f'{place}: column {quoted(name)} is not allowed: ssh uses keys '
                               'only, and no password belongs into a file')
        if name not in COLUMNS:
            raise SettingError(f'{place}: column {quoted(name)} is not allowed: '
                               f'{", ".join(COLUMNS)}{suggestion(name, COLUMNS)}')
        if header.count(name) > 1:
            raise SettingError(f'{place}: column {quoted(name)} is there twice')
    for name in COLUMNS[:2]:
        if name not in header:
            raise SettingError(f'{place}: column {name!r} is missing')


def _row(cells: Mapping[str, str], place: str) -> Row:
    """Return the row with these values; SettingError for one that is not allowed."""
    def refuse(name: str, allowed: str) -> SettingError:
        return SettingError(
            f'{place}: {name}: {quoted(cells.get(name, ""))} is not allowed: {allowed}')

    job, host = cells.get('job', ''), cells.get('host', '')
    if job not in _MOST:
        raise refuse('job', "'learner' or 'actor'")
    if not _HOST.fullmatch(host):
        raise refuse('host', 'a name or an IPv4 address')
    port = cells.get('port', '')
    if port and not (port.isascii() and port.isdecimal() and 0 < int(port) < 2**16):
        raise refuse('port', 'of sshd, from 1 to 65535, or empty')
    user = cells.get('user', '')
    if user and not _USER.fullmatch(user):
        raise refuse('user', 'a name of letters, digits and _ . -, or empty')
    devices = cells.get('devices', '')
    if devices and not _DEVICES.fullmatch(devices):
        raise refuse('devices', "CUDA devices such as 0 or 0;1, 'none', or empty")
    setup = cells.get('setup', '')
    if not setup.isprintable():
        raise refuse('setup', 'the path of a file')
    visible = None if not devices else '' if devices == 'none' else devices.replace(';', ',')
    return Row(job, host, int(port) if port else None, visible, user, setup)


def _check_numbers(rows: Sequence[Row], where: str) -> None:
    """Raise SettingError unless each learner has an actor."""
    count = {job: sum(row.job == job for row in rows) for job in _MOST}
    for job, most in _MOST.items():
        if not 0 < count[job] <= most:
            raise SettingError(
                f'{where}: {count[job]} rows with job {job!r} are not allowed: 1 to {most}')
    if count[ACTOR] < count[LEARNER]:
        raise SettingError(
            f'{where}: {count[ACTOR]} actors are not allowed: at least one for each of '
            f'{count[LEARNER]} learners')
