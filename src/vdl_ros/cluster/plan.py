"""What runs where in a cluster: its settings, the plan, and the file that keeps the plan."""

import csv
import os
import re
import shlex
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from vdl_ros.cluster.host_agent import NOT_INHERITED
from vdl_ros.common.files import write_text
from vdl_ros.common.quoting import quoted
from vdl_ros.common.schema import choice, converted, matching, read_json
from vdl_ros.common.settings import SettingError, setting, suggestion

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


@dataclass(frozen=True)
class ClusterConfig:
    """Settings of a cluster; see docs/cluster.md."""

    hosts: str = setting(
        '', 'CSV file, a row for each learner and actor: job, host, port, devices, user.')
    name: str = setting(
        '', 'Name of the cluster; empty: that of the hosts file without its ending.')
    setup: str = setting(
        '~/vdl_ros/setup.bash', 'File that bash reads first on each host reached by ssh; a '
        'column setup of the hosts file overrides it.')
    group_port: int = setting(
        29400, 'Port of learner 0 for the other learners.', minimum=1, maximum=65535)
    ssh_config: str = setting('', 'Configuration of ssh; empty: ~/.ssh/config.')
    stop_timeout: float = setting(
        75.0, 'Time from SIGINT to SIGTERM; SIGKILL follows 10 s later.', minimum=0.1, maximum=1e5,
        unit='s')


FIRST_LEARNER = 'learner_0'
LOCALHOST = ('localhost', '127.0.0.1')
_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9_-]{0,39}')


class Host(msgspec.Struct, frozen=True):
    """One machine, with one user, or ''; ``port`` is of its sshd, or None.

    ``here``: it is this machine, which is used without ssh. ``ssh_config``: absolute, or ''.
    """

    address: str
    port: int | None
    user: str
    setup: str
    here: bool
    ssh_config: str = ''

    def __str__(self) -> str:
        user = f'{self.user}@' if self.user else ''
        return f'{user}{self.address}' + (f':{self.port}' if self.port else '')


class Task(msgspec.Struct, frozen=True):
    """One learner, or actors, with the launch that starts them and starts them again.

    ``name`` is learner_RANK, or actor_INDEX of the first of the actors; ``host`` the index of its
    host in the plan; ``rank`` that of the learner itself, or of the actors'.
    """

    name: str
    host: int
    rank: int
    command: tuple[str, ...]
    environment: dict[str, str]

    @property
    def is_actor(self) -> bool:
        return self.name.startswith(ACTOR)

    @property
    def is_learner(self) -> bool:
        return self.name.startswith(LEARNER)

    def as_shell(self) -> str:
        return shlex.join([
            'env', *(word for name in NOT_INHERITED for word in ('-u', name)),
            *(f'{key}={value}' for key, value in self.environment.items()), *self.command])


class Plan(msgspec.Struct, frozen=True):
    """What runs where.

    ``run_dir`` is the folder of the run here, absolute; ``first_run_dir`` that on the host of
    learner 0, which may be relative to the home folder there. Tasks are learners by rank, then
    actors.
    """

    name: str
    run_dir: str
    first_run_dir: str
    hosts: tuple[Host, ...]
    tasks: tuple[Task, ...]

    def on(self, index: int) -> list[Task]:
        return [task for task in self.tasks if task.host == index]


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise SettingError(f'name: {quoted(name)} is not allowed: letters, digits, _ and -, at '
                           'most 40')
    return name


def make_plan(
    name: str, run_dir: Path, rows: Sequence[Row], settings: Mapping[str, Mapping[str, str]],
    config: ClusterConfig, domain: str,
) -> Plan:
    """Return what runs where: actors are assigned to learners in turn, in the order of the rows.

    Hosts discover each other without multicast, by the addresses in the file.
    ``settings`` are launch arguments by name, for ``first`` (learner 0), ``learner`` (the others)
    and ``actor``; ``domain`` is ROS_DOMAIN_ID.
    """
    check_name(name)
    if not (domain.isascii() and domain.isdecimal() and int(domain) <= 101):
        raise SettingError(
            f'ROS_DOMAIN_ID: {quoted(domain)} is not allowed: a whole number from 0 to 101')
    hosts = list(dict.fromkeys(_host(row, config) for row in rows))
    addresses = list(dict.fromkeys(host.address for host in hosts))
    for address in addresses:
        if address in LOCALHOST and len(addresses) > 1:
            raise SettingError(f'host: {address!r} is not allowed beside other hosts: an '
                               'address of this machine that they can reach')
    learners, actors = ([row for row in rows if row.job == job] for job in (LEARNER, ACTOR))
    first_host = _host(learners[0], config)
    # Gloo listens at IPv4 addresses.
    first = '127.0.0.1' if first_host.address in LOCALHOST else first_host.address
    home = os.path.abspath(run_dir)
    resumed = settings['first'].get('resume', '')
    first_run_dir = resumed or (home if first_host.here else f'runs/{Path(home).name}')
    group = {'num_learners': str(len(learners)),
             'group_address': f'{first}:{config.group_port}'} if len(learners) > 1 else {}

    def task(row: Row, number: int, rank: int, file: str, words: Mapping[str, str]) -> Task:
        environment = {
            'ROS_DOMAIN_ID': domain, 'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
            'ROS_STATIC_PEERS': ';'.join(each for each in addresses if each != row.host)}
        if row.visible_devices is not None:
            environment['CUDA_VISIBLE_DEVICES'] = row.visible_devices
        command = ('ros2', 'launch', 'vdl_ros', file,
                   *(f'{key}:={value}' for key, value in words.items()))
        return Task(f'{row.job}_{number}', hosts.index(_host(row, config)), rank, command,
                    environment)

    of_first = {'num_actors': str(len(actors))} | ({} if resumed else {'run_dir': first_run_dir})
    tasks = [
        task(row, rank, rank, 'learner.launch.py', {
            **settings['learner' if rank else 'first'], 'learner_rank': str(rank), **group,
            **({} if rank else of_first)})
        for rank, row in enumerate(learners)]
    # One launch for equal rows: its actors receive each policy over the network once.
    equal: dict[tuple[Row, int], list[int]] = {}
    for index, row in enumerate(actors):
        equal.setdefault((row, index % len(learners)), []).append(index)
    for (row, rank), (index, *more) in equal.items():
        tasks.append(task(row, index, rank, 'actors.launch.py', {
            **settings['actor'], 'num_actors': str(1 + len(more)), 'learner_rank': str(rank),
            'actor_id': f'{ACTOR}_{index}'}))
    return Plan(name, home, first_run_dir, tuple(hosts), tuple(tasks))


def _host(row: Row, config: ClusterConfig) -> Host:
    here = row.port is None and not row.user and is_this_machine(row.host)
    return Host(row.host, row.port, row.user, row.setup or config.setup, here,
                os.path.abspath(config.ssh_config) if config.ssh_config else '')


def is_this_machine(address: str) -> bool:
    """Return whether an address, or the one that a name stands for, is of this machine."""
    if address in LOCALHOST:
        return True
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _folder() -> Path:
    return Path(os.environ.get('ROS_HOME') or Path.home() / '.ros') / 'vdl_ros' / 'clusters'


def plan_file(name: str) -> Path:
    return _folder() / f'{name}.json'


def planned_names() -> list[str]:
    return sorted(path.stem for path in _folder().glob('*.json'))


def save_plan(plan: Plan) -> None:
    """Keep a plan, so that what was started can be stopped after its hosts file has changed."""
    path = plan_file(plan.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, msgspec.json.format(msgspec.json.encode(plan)).decode() + '\n')


def read_plan(name: str) -> Plan:
    """Return the plan that is kept for a cluster; a SettingError if there is none."""
    path = plan_file(check_name(name))
    try:
        return read_json(path, Plan)
    except ValueError as error:
        if path.exists():
            raise SettingError(str(error)) from None
        raise SettingError(f'name: {name!r} is not allowed: no cluster with this name was started '
                           f'here; started: {", ".join(planned_names()) or "none"}') from None
