"""Hosts file: a CSV file with a row for each learner and each actor of a cluster."""

import csv
from collections import Counter
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from vdl_ros.common.quoting import quoted
from vdl_ros.common.schema import choice, converted, matching
from vdl_ros.common.settings import SettingError, suggestion

LEARNER, ACTOR = 'learner', 'actor'
_MAX_BYTES = 1 << 20
# Limits of num_learners and num_actors.
_MAX_ROWS = {LEARNER: 64, ACTOR: 256}


class Row(Struct, frozen=True):
    """One learner or actor.

    No value can be taken for an option of ssh, or has a character that a shell reads.

    Attributes:
        host: name or IPv4 address, or ``localhost``.
        port: of its sshd; None: the one of ssh's configuration, 22 by default.
        devices: CUDA devices, separated by ; or ,; ``none``; empty: not limited.
        user: on the host; empty: the one of ssh's configuration.
        setup: file that bash reads there first; empty: the setting ``setup``.
    """

    job: Annotated[str, choice(LEARNER, ACTOR)]
    host: Annotated[str, matching(
        '[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?', 'a name or an IPv4 address')]
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    devices: Annotated[str, matching(
        'none|[A-Za-z0-9][A-Za-z0-9/-]*([;,][A-Za-z0-9][A-Za-z0-9/-]*)*',
        "CUDA devices such as 0 or 0;1, 'none', or empty")] = ''
    user: Annotated[str, matching(
        '[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}', 'a name of letters, digits and _ . -, or empty')] = ''
    setup: Annotated[str, matching(r'[^\x00-\x1f\x7f]*', 'the path of a file')] = ''

    @property
    def visible_devices(self) -> str | None:
        """CUDA_VISIBLE_DEVICES of its processes; None: not limited."""
        if not self.devices:
            return None
        return '' if self.devices == 'none' else self.devices.replace(';', ',')


#: Columns of the file; only the first two are needed.
COLUMNS = Row.__struct_fields__


def read_hosts(path: Path) -> list[Row]:
    """Read a hosts file; lines that are empty or begin with # are left out.

    A SettingError names file, line and column.
    """
    where = f'hosts: {path}'
    try:
        with path.open('rb') as stream:
            data = stream.read(_MAX_BYTES + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else 'it is no text'
        raise SettingError(f'{where} cannot be read: {reason}') from None
    if len(data) > _MAX_BYTES:
        raise SettingError(f'{where} is too large: at most {_MAX_BYTES} bytes')
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
            continue
        if len(cells) > len(header):
            raise SettingError(
                f'{place} has {len(cells)} cells: at most {len(header)}, as the first line has')
        given = {name: cell for name, cell in zip(header, cells, strict=False) if cell}
        rows.append(converted(given, Row, place, SettingError, strict=False))
    count = Counter(row.job for row in rows)
    for job, most in _MAX_ROWS.items():
        if not 0 < count[job] <= most:
            raise SettingError(
                f'{where}: {count[job]} rows with job {job!r} are not allowed: 1 to {most}')
    if count[ACTOR] < count[LEARNER]:
        raise SettingError(f'{where}: {count[ACTOR]} actors are not allowed: at least one for '
                           f'each of {count[LEARNER]} learners')
    return rows


def _check_header(header: list[str], place: str) -> None:
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
