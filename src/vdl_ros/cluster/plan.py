"""What runs where in a cluster: its settings, the plan, and the file that keeps the plan."""

from __future__ import annotations

import os
import re
import shlex
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

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


class Host(msgspec.Struct, frozen=True):
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


class Task(msgspec.Struct, frozen=True):
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
    environment: dict[str, str]

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


class Plan(msgspec.Struct, frozen=True):
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
    hosts = list(dict.fromkeys(_host(row, setup) for row in rows))
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
    resumed = settings['first'].get('resume', '')
    first_host = _host(learners[0], setup)
    first_run_dir = resumed or (home if first_host.here else f'runs/{Path(home).name}')
    numbered = [(rank, rank, row) for rank, row in enumerate(learners)]
    numbered += [(index, index % len(learners), row) for index, row in enumerate(actors)]
    tasks = []
    for number, rank, row in numbered:
        own = {'learner_rank': str(rank)}
        if row.job == ACTOR:
            given, file = settings['actor'], 'actors.launch.py'
            own = {'num_actors': '1', **own, 'actor_id': f'{ACTOR}_{number}'}
        else:
            given, file = settings['learner' if rank else 'first'], 'learner.launch.py'
            own |= group
            if rank == 0:
                own['num_actors'] = str(len(actors))
                if not resumed:
                    own['run_dir'] = first_run_dir
        environment = {'ROS_DOMAIN_ID': domain, 'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST'}
        if discovery_port:
            environment['ROS_DISCOVERY_SERVER'] = f'{first}:{discovery_port}'
        else:
            environment['ROS_STATIC_PEERS'] = ';'.join(
                each for each in addresses if each != row.host)
        if row.visible_devices is not None:
            environment['CUDA_VISIBLE_DEVICES'] = row.visible_devices
        words = (f'{key}:={value}' for key, value in {**given, **own}.items())
        tasks.append(Task(f'{row.job}_{number}', hosts.index(_host(row, setup)), rank,
                          ('ros2', 'launch', 'vdl_ros', file, *words), environment))
    if discovery_port:
        # At every address: on its own host a name often stands for 127.0.1.1.
        listen = ('-l', first) if first in LOCALHOST else ()
        tasks.append(Task(
            DISCOVERY, hosts.index(first_host), 0,
            ('fast-discovery-server', '-i', '0', *listen, '-p', str(discovery_port)), {}))
    return Plan(name, home, first_run_dir, os.path.abspath(ssh_config) if ssh_config else '',
                tuple(hosts), tuple(tasks))


def _host(row: Row, setup: str) -> Host:
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
    write_text(path, msgspec.json.format(msgspec.json.encode(plan)).decode() + '\n')


def read_plan(name: str) -> Plan:
    """Return the plan that is kept for a cluster.

    Raises:
        SettingError: there is none, or it cannot be read.
    """
    path = plan_file(check_name(name))
    try:
        return msgspec.json.decode(path.read_bytes(), type=Plan)
    except FileNotFoundError:
        raise SettingError(f'name: {name!r} is not allowed: no cluster with this name was started '
                           f'here; started: {", ".join(planned_names()) or "none"}') from None
    except (OSError, msgspec.DecodeError) as error:
        raise SettingError(f'{path} cannot be read: {error}') from None
