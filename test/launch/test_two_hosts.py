"""Two hosts: the learner's half and the actors' half in two network namespaces."""

import json
import os
import subprocess

import pytest
from two_hosts import on

pytestmark = pytest.mark.slow

@pytest.fixture
def environment(monkeypatch):
    """Return what both hosts have: the range of discovery is the subnet."""
    monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'SUBNET')
    return dict(os.environ)


@pytest.mark.parametrize(('env_id', 'steps', 'compression'), [
    ('CartPole-v1', 20_000, 'none'), ('ALE/Pong-v5', 1_000, 'zstd')])
def test_learner_and_actors_on_two_hosts(
        hosts, environment, launch, run, env_id, steps, compression):
    actors = launch(*on(hosts[1], 'ros2', 'launch', 'vdl_ros', 'actors.launch.py',
                        'num_actors:=2'), env=environment)
    learner = launch(*on(hosts[0], 'ros2', 'launch', 'vdl_ros', 'learner.launch.py',
                         f'run_dir:={run}', f'env_id:={env_id}', f'total_steps:={steps}',
                         f'compression:={compression}', 'stop_at_return:=1e9'), env=environment)
    assert learner.wait() == 0, learner.output + actors.output
    for each in (learner, actors):
        assert each.output.count('announced to the network') == 1
    assert run.summary['agent_steps'] >= steps
    assert run.summary['trajectories_lost'] == 0
    if compression == 'zstd':
        # A frame has 7,056 bytes.
        assert run.summary['wire_bytes']['in'] < 1_000 * run.summary['agent_steps']
        # Each policy crosses the link once, for both actors.
        link = json.loads(subprocess.run(
            ['ip', '-n', hosts[1], '-s', '-j', 'link', 'show', 'link-10.91.7'], check=True,
            capture_output=True).stdout)[0]
        assert link['stats64']['rx']['bytes'] < 1.5 * run.summary['wire_bytes']['out']
    actors.stop()


def test_static_peers_find_each_other_where_discovery_is_local(hosts, environment, launch, run):
    def peers(address: str) -> dict[str, str]:
        return environment | {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
                              'ROS_STATIC_PEERS': address}

    launch(*on(hosts[1], 'ros2', 'launch', 'vdl_ros', 'actors.launch.py', 'num_actors:=1'),
           env=peers('10.91.7.1'))
    learner = launch(*on(hosts[0], 'ros2', 'launch', 'vdl_ros', 'learner.launch.py',
                         f'run_dir:={run}', 'total_steps:=20000', 'stop_at_return:=1e9'),
                     env=peers('10.91.7.2'))
    assert learner.wait() == 0, learner.output
    assert run.summary['trajectories_lost'] == 0
