"""Settings of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['ClusterConfig']


@dataclass(frozen=True)
class ClusterConfig:
    """Settings of a cluster; see docs/cluster.md."""

    hosts: str = setting(
        '', 'CSV file with a row for each learner and actor: job, host, port, devices, user.')
    name: str = setting(
        '', 'Name of the cluster, which tells it from others on the same hosts; empty: the name '
        'of the hosts file without its ending.')
    setup: str = setting(
        '~/vdl_ros/setup.bash', 'File that bash reads on each host that is reached by ssh, '
        'before anything runs there; ~ is the home folder of the user there. A column setup of '
        'the hosts file overrides it.')
    group_port: int = setting(
        29400, 'Port at which learner 0 waits for the other learners.',
        minimum=1, maximum=65535)
    discovery: str = setting(
        'peers', 'How hosts discover each other: each process asks all hosts of the file, or one '
        'discovery server on the host of learner 0.', choices=('peers', 'server'))
    discovery_port: int = setting(
        11811, 'UDP port of the discovery server.', minimum=1, maximum=65535)
    ssh_config: str = setting(
        '', 'Configuration file of ssh; empty: the one of the user, ~/.ssh/config.')
    stop_timeout: float = setting(
        75.0, 'Time that processes have to save and end after SIGINT before they get SIGTERM, '
        'and 10 s later SIGKILL.', minimum=0.1, maximum=1e5, unit='s')
