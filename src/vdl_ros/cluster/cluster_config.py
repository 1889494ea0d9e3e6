"""Settings of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['ClusterConfig']


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
