"""A cluster: learners and actors on three hosts with sshd, each a network namespace."""

import contextlib
import os
from pathlib import Path

import psutil
import pytest
from conftest import Run
from network_hosts import Sshd, bridged, key, ssh_config
from two_hosts import ip, on

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
ADDRESSES = {'home': '10.91.9.254', 'a': '10.91.9.1', 'b': '10.91.9.2', 'c': '10.91.9.3'}
PORT = 2222


@pytest.fixture
def hosts():
    """Return the namespaces of home and of three hosts; what still runs there is killed."""
    with bridged(ADDRESSES) as names:
        yield names
        for name in names.values():
            for process in running(name):
                with contextlib.suppress(psutil.Error):
                    process.kill()


def running(namespace):
    """Return the processes in a network namespace, without those of sshd."""
    inode = os.stat(f'/run/netns/{namespace}').st_ino
    found = []
    for process in psutil.process_iter(['name', 'status']):
        with contextlib.suppress(OSError, psutil.Error):
            if (os.stat(f'/proc/{process.pid}/ns/net').st_ino == inode
                    and process.info['name'] != 'sshd'
                    and process.info['status'] != psutil.STATUS_ZOMBIE):
                found.append(process)
    return found


@pytest.fixture
def servers(hosts, launch, tmp_path):
    """Return the sshd of each host, once it listens, and the configuration that knows them."""
    user_key = key(tmp_path / 'id')
    found = {name: Sshd(tmp_path / name, ADDRESSES[name], PORT, user_key) for name in 'abc'}
    for name, server in found.items():
        process = launch(*on(hosts[name], *server.command()))
        process.wait_for(lambda process=process: 'listening' in process.output, 'sshd')
    return found, ssh_config(tmp_path / 'ssh_config', user_key, found.values())


@pytest.fixture
def arguments(servers, tmp_path):
    """Return the arguments of a cluster of two learners and three actors."""
    _, config = servers
    setup = tmp_path / 'setup.bash'
    system = Path('/opt/ros', os.environ['ROS_DISTRO'], 'setup.bash')
    setup.write_text(''.join(f'source {path}\n' for path in (system, ROOT / 'setup.bash')
                             if path.exists()))
    # Its name is the cluster's, and a tutorial has a cluster `lab` on this machine.
    table = tmp_path / 'namespaces.csv'
    rows = [('learner', 'a'), ('learner', 'b'), ('actor', 'a'), ('actor', 'b'), ('actor', 'c')]
    table.write_text('job,host,port,devices,user\n' + ''.join(
        f'{job},{ADDRESSES[host]},{PORT},,\n' for job, host in rows))
    return (f'hosts:={table}', f'setup:={setup}', f'ssh_config:={config}')


@pytest.mark.timeout(1200)
def test_a_cluster_goes_on_without_a_host_and_leaves_nothing(
        hosts, servers, arguments, launch, tmp_path):
    home, run = tmp_path / 'run', Run(servers[0]['a'].home / 'runs' / 'run')
    at_home = Run(home)

    def cluster(*words):
        return launch(*on(hosts['home'], 'ros2', 'run', 'vdl_ros', 'cluster', *words))

    train = launch(*on(
        hosts['home'], 'ros2', 'launch', 'vdl_ros', 'cluster.launch.py', *arguments,
        f'run_dir:={home}', 'env_id:=CartPole-v1', 'total_steps:=100000000',
        'stop_at_return:=1e9', 'checkpoint_period:=1.0'))
    train.wait_for(lambda: run.steps > 2_000, 'progress of both learners')
    train.wait_for(lambda: '[learner_0] ' in train.output and 'steps' in train.output, 'logs')

    status = cluster('status')
    assert status.wait() == 0, status.output
    assert status.output.count(' running ') == 5
    assert 'actor_2_0 acts in' in status.output

    ip('-n', hosts['c'], 'link', 'set', 'net', 'down')
    train.wait_for(lambda: 'actor_2 missed; the training goes on without' in train.output,
                   'the loss of a host')
    steps = run.steps
    train.wait_for(lambda: run.steps > steps + 10_000, 'progress without it')

    train.interrupt()
    train.wait()
    assert 'there may run on: actor_2' in train.output
    assert 'Traceback' not in train.output
    assert not running(hosts['a']) + running(hosts['b'])
    assert running(hosts['c'])
    assert at_home.summary['ended_by'] == 'interrupted'
    assert at_home.summary['learners'] == 2
    assert 'learner 1 of 2' in (home / 'logs/learner_1.log').read_text()

    ip('-n', hosts['c'], 'link', 'set', 'net', 'up')
    stop = cluster('stop')
    assert stop.wait() == 0, stop.output
    assert not running(hosts['c'])
    assert 'actor_2_0 acts in' in (home / 'logs/actor_2.log').read_text()
