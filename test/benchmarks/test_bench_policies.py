"""bench_reach, bench_lag: the same tasks for all, delays, resuming, the tables."""

import argparse

import numpy as np
import pytest
import torch

from benchmarks import bench_lag, bench_reach
from benchmarks.bench_lag import NAIVE, play
from benchmarks.bench_reach import Case, camera_config, measure
from vdl_ros.arm.control.controller import ControllerConfig
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.owi535.reach import ReachTask
from vdl_ros.envs.registration import PUSH, REACH
from vdl_ros.play.saved_policy import SavedPolicy
from vdl_ros.rl.policy.policy import make_policy
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config


def saved(**env_settings):
    """Return a policy that was not trained; of four copies of CartPole by default."""
    torch.manual_seed(0)
    env = EnvConfig(**{'env_id': 'CartPole-v1', 'num_envs': 4, **env_settings})
    train = TrainConfig(network='mlp', hidden_size=4)
    spaces = factory.spaces(env)
    policy = make_policy(train, *spaces, make_algorithm_config(train, {}))
    return SavedPolicy(policy.eval(), env, train, spaces[1], 0, 7, {})


@pytest.mark.slow
def test_reaching_has_the_same_places_for_all_and_the_delay_of_the_measurement(monkeypatch):
    tasks = []

    def make(*words, **named):
        tasks.append(ReachTask(*words, **named))
        return tasks[-1]

    monkeypatch.setattr(bench_reach, 'ReachTask', make)
    options = argparse.Namespace(targets=2, seed=4, delay_of='measurement',
                                 policy=saved(env_id=REACH, num_envs=1))
    found = [measure(name, Case('truth', 'inside', 100), options)
             for name in ('controller', 'random', 'policy')]
    for task in tasks[1:]:
        assert np.array_equal(task.targets, tasks[0].targets)
    assert [each['reached'] for each in found] == [2, 0, 0]
    assert found[1]['median_s'] is None
    table = bench_reach.text({'targets': 2, 'delay_of': 'measurement', 'figures': found})
    assert '| joints by | twins | measurement later, ms | controller | random | policy |' in table
    measure('random', Case('camera', 'inside', 100), options)
    age = tasks[-1].time - tasks[-1].reading.stamp
    assert (age >= 0.1).all()
    assert (age < 0.1 + 0.15 + 1 / 30 + 1e-9).all()
    # The camera has the settings of its launch argument.
    assert camera_config().start_band == 0.06
    assert camera_config() != ControllerConfig()


@pytest.mark.slow
def test_policies_and_script_play_a_cube_task_and_the_table_names_them():
    options = argparse.Namespace(task='push', targets=2, seed=2,
                                 policy=saved(env_id=PUSH, num_envs=1))
    names = ['random', 'controller', 'likeliest', 'sampled']
    figures = [bench_reach.measure_cubes(name, 'inside', options) for name in names]
    reached = {each['by']: each['reached'] for each in figures}
    assert reached['controller'] >= 1
    assert reached['random'] == 0
    table = bench_reach.cube_text({'task': 'push', 'episodes': 2, 'figures': figures})
    assert f'| inside | 0 ·  | {reached["controller"]} · ' in table


def test_with_init_the_naive_policy_is_given_and_others_go_on_from_it(tmp_path, monkeypatch):
    commands = []

    def run(command, **_):
        commands.append(' '.join(command))
        return argparse.Namespace(returncode=0)

    monkeypatch.setattr(bench_lag.subprocess, 'run', run)
    first = tmp_path / 'first.pt'
    options = argparse.Namespace(init=first, runs=tmp_path, steps=64, delays=[0, 40])
    assert bench_lag.train('cartpole', NAIVE, 2, options) == first
    assert commands == []
    late = bench_lag.train('cartpole', '40', 1, options)
    assert late == tmp_path / 'cartpole-40-1' / 'checkpoint.pt'
    for words in ('-m vdl_ros.local_training', f'--init {first}', '--action_delay 0.04',
                  '--total_steps 64', f'--run_dir {late.parent}'):
        assert words in commands[0], words


def test_a_policy_is_played_at_the_delay_whatever_it_was_trained_with():
    naive, late = saved(), saved(action_delay=0.5)
    assert play(naive, 0, 8, 3) != play(naive, 100, 8, 3)
    assert play(naive, 100, 8, 3) == play(late, 100, 8, 3)
