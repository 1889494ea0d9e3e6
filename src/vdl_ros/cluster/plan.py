"""Settings of a cluster."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vdl_ros.cluster.host_agent import NOT_INHERITED
from vdl_ros.cluster.hosts_file import ACTOR, LEARNER, Row
from vdl_ros.common.files import write_text
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import SettingError, setting

__all__ = ['ClusterConfig', 'DISCOVERY', 'FIRST_LEARNER', 'Host', 'Plan', 'Task', 'check_name',
           'is_this_machine', 'make_plan', 'plan_file', 'planned_names', 'read_plan', 'save_plan']


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
    discovery: str = setting(
        'peers', 'Each process asks all hosts of the file, or one discovery server on the host '
        'of learner 0.', choices=('peers', 'server'))
    discovery_port: int = setting(
        11811, 'UDP port of the discovery server.', minimum=1, maximum=65535)
    ssh_config: str = setting('', 'Configuration of ssh; empty: ~/.ssh/config.')
    stop_timeout: float = setting(
        75.0, 'Time from SIGINT to SIGTERM; SIGKILL follows 10 s later.', minimum=0.1, maximum=1e5,
        unit='s')


FIRST_LEARNER = 'learner_0'
#: The task that is a discovery server.
DISCOVERY = 'discovery'
LOCALHOST = ('localhost', '127.0.0.1')
_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9_-]{0,39}')


@dataclass(frozen=True)
class Host:
    """One machine, with one user.

    Attributes:
        address: name or IPv4 address.
        port: of its sshd, or None.
        user: or ''.
        here: whether it is this machine, which is used without ssh.
    """

    address: str
    port: int | None
    user: str
    setup: str
    here: bool

    def __str__(self) -> str:
        """Return user, address and port, those that are set."""
        user = f'{self.user}@' if self.user else ''
        return f'{user}{self.address}' + (f':{self.port}' if self.port else '')


@dataclass(frozen=True)
class Task:
    """One learner or actor, with the launch that starts it and starts it again, or a server.

    Attributes:
        name: ``learner_RANK``, ``actor_INDEX`` or ``discovery``.
        host: index of its host in the plan.
        rank: of the learner itself, or of the actor's; 0 of the server.
    """

    name: str
    host: int
    rank: int
    command: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def is_actor(self) -> bool:
        """Return whether it is an actor."""
        return self.name.startswith(ACTOR)

    @property
    def is_learner(self) -> bool:
        """Return whether it is a learner."""
        return self.name.startswith(LEARNER)

    def as_shell(self) -> str:
        """Return command and environment as words for a shell."""
        return shlex.join([
            'env', *(word for name in NOT_INHERITED for word in ('-u', name)),
            *(f'{key}={value}' for key, value in self.environment.items()), *self.command])


@dataclass(frozen=True)
class Plan:
    """What runs where.

    Attributes:
        run_dir: folder of the run here, to which logs are brought; absolute.
        first_run_dir: folder of the run on the host of learner 0, which may be relative to the
            home folder there.
        ssh_config: configuration file of ssh, absolute; empty: the user's.
        hosts: each machine once.
        tasks: learners by rank, then actors, then the discovery server if there is one.
    """

    name: str
    run_dir: str
    first_run_dir: str
    ssh_config: str
    hosts: tuple[Host, ...]
    tasks: tuple[Task, ...]

    def on(self, index: int) -> list[Task]:
        """Return the tasks of the host ``index``."""
        return [task for task in self.tasks if task.host == index]


def check_name(name: str) -> str:
    """Return the name of a cluster; SettingError if it is not allowed."""
    if not _NAME.fullmatch(name):
        raise SettingError(f'name: {quoted(name)} is not allowed: letters, digits, _ and -, at '
                           'most 40')
    return name


def make_plan(
    name: str, run_dir: Path, rows: Sequence[Row], settings: Mapping[str, Mapping[str, str]], *,
    setup: str, group_port: int, domain: str, discovery_port: int | None = None,
    ssh_config: str = '',
) -> Plan:
    """Return what runs where: actors are assigned to learners in turn, in the order of the rows.

    Hosts discover each other without multicast: by the addresses in the file, or by a server.

    Args:
        run_dir: folder of the run on this machine.
        settings: launch arguments by name, for ``first`` (learner 0), ``learner`` (the others)
            and ``actor``.
        setup: of hosts whose row names none.
        group_port: port of learner 0 for the other learners.
        discovery_port: UDP port of a discovery server on the host of learner 0; None: no server.

    Raises:
        SettingError: a name or domain that is not allowed, or localhost beside other hosts.
    """
    check_name(name)
    if not (domain.isascii() and domain.isdecimal() and int(domain) <= 101):
        raise SettingError(
            f'ROS_DOMAIN_ID: {quoted(domain)} is not allowed: a whole number from 0 to 101')
    hosts: list[Host] = []
    for row in rows:
        host = _host(row, setup)
        if host not in hosts:
            hosts.append(host)
    addresses = list(dict.fromkeys(host.address for host in hosts))
    for host in hosts:
        if host.address in LOCALHOST and len(addresses) > 1:
            raise SettingError(f'host: {host.address!r} is not allowed beside other hosts: an '
                               'address of this machine that they can reach')
    learners = [row for row in rows if row.job == LEARNER]
    actors = [row for row in rows if row.job == ACTOR]
    # Gloo listens at IPv4 addresses.
    first = '127.0.0.1' if learners[0].host in LOCALHOST else learners[0].host
    group = {'num_learners': str(len(learners)), 'group_address': f'{first}:{group_port}'} \
        if len(learners) > 1 else {}
    home = os.path.abspath(run_dir)
    here = _host(learners[0], setup).here
    resumed = settings['first'].get('resume', '')
    first_run_dir = resumed or (home if here else f'runs/{Path(home).name}')

    def task(row: Row, number: int, rank: int, file: str, given: Mapping[str, str]) -> Task:
        host = _host(row, setup)
        others = [each for each in addresses if each != row.host]
        environment = {'ROS_DOMAIN_ID': domain, 'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST'}
        if discovery_port:
            environment['ROS_DISCOVERY_SERVER'] = f'{first}:{discovery_port}'
        else:
            environment['ROS_STATIC_PEERS'] = ';'.join(others)
        if row.devices is not None:
            environment['CUDA_VISIBLE_DEVICES'] = row.devices
        return Task(
            f'{row.job}_{number}', hosts.index(host), rank,
            ('ros2', 'launch', 'vdl_ros', file,
             *(f'{key}:={value}' for key, value in given.items())), environment)

    tasks = []
    for rank, row in enumerate(learners):
        own = {'learner_rank': str(rank), **group}
        if rank == 0:
            own['num_actors'] = str(len(actors))
            if not resumed:
                own['run_dir'] = first_run_dir
        given = settings['learner' if rank else 'first']
        tasks.append(task(row, rank, rank, 'learner.launch.py', {**given, **own}))
    for index, row in enumerate(actors):
        rank = index % len(learners)
        own = {'num_actors': '1', 'learner_rank': str(rank),
               'actor_id': f'{ACTOR}_{index}'}
        tasks.append(task(row, index, rank, 'actors.launch.py', {**settings['actor'], **own}))
    if discovery_port:
        tasks.append(Task(
            DISCOVERY, hosts.index(_host(learners[0], setup)), 0,
            # At every address: on its own host a name often stands for 127.0.1.1.
            ('fast-discovery-server', '-i', '0',
             *(('-l', first) if first in LOCALHOST else ()), '-p', str(discovery_port)), {}))
    return Plan(name, home, first_run_dir, os.path.abspath(ssh_config) if ssh_config else '',
                tuple(hosts), tuple(tasks))


def _host(row: Row, setup: str) -> Host:
    """Return the machine of a row."""
    here = row.port is None and not row.user and is_this_machine(row.host)
    return Host(row.host, row.port, row.user, row.setup or setup, here)


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
    """Return the folder with what runs, on the machine that started it."""
    return Path(os.environ.get('ROS_HOME') or Path.home() / '.ros') / 'vdl_ros' / 'clusters'


def plan_file(name: str) -> Path:
    """Return the file that keeps the plan of a cluster while it runs."""
    return _folder() / f'{name}.json'


def planned_names() -> list[str]:
    """Return the names of the clusters that this machine has started and not stopped."""
    return sorted(path.stem for path in _folder().glob('*.json'))


def save_plan(plan: Plan) -> None:
    """Keep a plan, so that what was started can be stopped after its hosts file has changed."""
    path = plan_file(plan.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(dataclasses.asdict(plan), indent=1) + '\n')


def read_plan(name: str) -> Plan:
    """Return the plan that is kept for a cluster.

    Raises:
        SettingError: there is none, or it cannot be read.
    """
    path = plan_file(check_name(name))
    try:
        found = json.loads(path.read_text())
        return Plan(
            found['name'], found['run_dir'], found['first_run_dir'], found['ssh_config'],
            tuple(Host(**each) for each in found['hosts']),
            tuple(Task(**each | {'command': tuple(each['command'])}) for each in found['tasks']))
    except FileNotFoundError:
        raise SettingError(f'name: {name!r} is not allowed: no cluster with this name was started '
                           f'here; started: {", ".join(planned_names()) or "none"}') from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingError(f'{path} cannot be read: {error}') from None
