"""What runs where: ranks, addresses, peers, and words that no shell reads."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from vdl_ros.cluster.control import without
from vdl_ros.cluster.plan import ClusterConfig, Row, make_plan
from vdl_ros.cluster.ssh import task_command
from vdl_ros.common.settings import SettingError
from vdl_ros.rl.runs.run_config import save_settings
from vdl_ros.tools.cluster import learner_and_actor_settings

LAB = [Row('learner', '10.9.9.1', devices='0'), Row('learner', '10.9.9.2', 2222, '0,1', 'anna'),
       Row('actor', '10.9.9.1'), Row('actor', '10.9.9.3'), Row('actor', '10.9.9.4')]
HERE = [Row('learner', 'localhost'), Row('actor', 'localhost')]
HOSTILE = '{"a": "$(touch /tmp/x) `id` \'\\" ;&|\n~ *"}'


def plan(rows=LAB, first=None, setup='~/vdl_ros/setup.bash', **more):
    return make_plan('lab', Path('/home/me/runs/one'), rows, {
        'first': first or {'env_id': 'CartPole-v1'}, 'learner': {'device': 'cpu'}, 'actor': {}},
        ClusterConfig(setup=setup, **more), '7')


def test_ranks_addresses_and_peers_follow_from_the_rows():
    found = plan()
    tasks = {task.name: task for task in found.tasks}
    assert list(tasks) == ['learner_0', 'learner_1', 'actor_0', 'actor_1', 'actor_2']
    assert tasks['learner_0'].command == (
        'ros2', 'launch', 'vdl_ros', 'learner.launch.py', 'env_id:=CartPole-v1',
        'learner_rank:=0', 'num_learners:=2', 'group_address:=10.9.9.1:29400', 'num_actors:=3',
        'run_dir:=runs/one')
    assert tasks['learner_1'].command[3:] == (
        'learner.launch.py', 'device:=cpu', 'learner_rank:=1', 'num_learners:=2',
        'group_address:=10.9.9.1:29400')
    assert tasks['actor_2'].command[3:] == (
        'actors.launch.py', 'num_actors:=1', 'learner_rank:=0', 'actor_id:=actor_2')
    assert [tasks[f'actor_{each}'].rank for each in range(3)] == [0, 1, 0]
    assert tasks['learner_1'].environment == {
        'ROS_DOMAIN_ID': '7', 'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
        'ROS_STATIC_PEERS': '10.9.9.1;10.9.9.3;10.9.9.4', 'CUDA_VISIBLE_DEVICES': '0,1'}
    assert 'CUDA_VISIBLE_DEVICES' not in tasks['actor_0'].environment
    assert [str(host) for host in found.hosts] == [
        '10.9.9.1', 'anna@10.9.9.2:2222', '10.9.9.3', '10.9.9.4']


def test_one_learner_needs_no_group_and_this_machine_no_ssh():
    found = plan(HERE)
    assert found.hosts[0].here
    assert not any('group' in word for word in found.tasks[0].command)
    assert 'run_dir:=/home/me/runs/one' in found.tasks[0].command
    assert found.tasks[0].environment['ROS_STATIC_PEERS'] == ''
    # A resumed run stays in its folder.
    found = plan(first={'resume': 'runs/before'})
    assert found.first_run_dir == 'runs/before'
    assert not any(word.startswith('run_dir') for word in found.tasks[0].command)
    # Actors of equal rows are of one launch.
    more = [Row('actor', 'localhost'), Row('actor', 'localhost', devices='none')]
    *_, first, second = plan([*HERE, *more]).tasks
    assert {'num_actors:=2', 'actor_id:=actor_0'} <= {*first.command}
    assert {'num_actors:=1', 'actor_id:=actor_2'} <= {*second.command}
    with pytest.raises(SettingError, match="host: 'localhost' is not allowed beside other hosts"):
        plan([Row('learner', 'localhost'), Row('actor', '10.9.9.1')])


def test_each_process_gets_the_settings_that_are_its_own_also_of_a_saved_run(tmp_path):
    save_settings(tmp_path, {
        'env_id': 'robot/mine', 'robots': 'lab', 'keep_checkpoints': 3, 'save_replay': False,
        'num_learners': 1})
    found = learner_and_actor_settings({
        'config': str(tmp_path / 'config.yaml'), 'robots': 'mine', 'log_level': 'warn',
        'adversarial_checkpoint': 'a.pt'})
    assert found['first'].items() >= {
        'env_id': 'robot/mine', 'robots': 'mine', 'keep_checkpoints': '3'}.items()
    assert found['learner'] == {'robots': 'mine', 'log_level': 'warn'}
    assert found['actor'] == {
        'robots': 'mine', 'adversarial_checkpoint': 'a.pt', 'log_level': 'warn'}


def test_the_loss_of_a_host_says_what_it_means():
    found = plan()
    assert 'goes on without' in without(found, 3, {3})
    assert 'learner_1 has no other actor' in without(found, 2, {2})
    assert 'learner_0 has no other actor' in without(found, 3, {3, 0})
    assert 'waits for learner_1' in without(found, 1, {1})


def write_programs(folder, programs):
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


@pytest.mark.process
def test_no_word_of_a_setting_or_path_is_read_by_a_shell(tmp_path):
    """With a program for ssh that does what ssh does: the words, joined, to a shell."""
    folder = tmp_path / 'a $(id) \'folder'
    folder.mkdir()
    (folder / 'setup.bash').write_text('export SET_UP=yes\n')
    write_programs(tmp_path, {
        'ssh': '#!/bin/bash\nfor last; do :; done\nexec sh -c "$last"\n',
        'ros2': '#!/usr/bin/env python3\nimport json, os, sys\n'
                'json.dump([sys.argv, dict(os.environ)], open("record", "w"))\n'})
    found = plan(first={'env_kwargs': HOSTILE}, setup=str(folder / 'setup.bash'))
    line = task_command(found.hosts[0], found.tasks[0])
    # How the shell discovers nodes does not count.
    subprocess.run(['sh', '-c', line], check=True, cwd=tmp_path, env=dict(
        os.environ, PATH=f'{tmp_path}:{os.environ["PATH"]}', ROS_DISCOVERY_SERVER='x:1',
        ROS_SUPER_CLIENT='TRUE'))
    words, variables = json.loads((tmp_path / 'record').read_text())
    assert words[1:] == list(found.tasks[0].command)[1:]
    assert f'env_kwargs:={HOSTILE}' in words
    assert variables['SET_UP'] == 'yes'
    assert not {'ROS_DISCOVERY_SERVER', 'ROS_SUPER_CLIENT'} & set(variables)
    assert variables['ROS_STATIC_PEERS'] == '10.9.9.2;10.9.9.3;10.9.9.4'
