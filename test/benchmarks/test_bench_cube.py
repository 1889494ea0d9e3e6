"""The benchmark of cubes: the same ones for each who acts, policies, the table."""

import argparse

import numpy as np
import torch

from benchmarks import bench_cube
from benchmarks.bench_cube import measure, text
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.owi535.cube.cube_task import PushTask
from vdl_ros.envs.registration import PUSH, PUSH_STEPS
from vdl_ros.rl.algorithm_config import make_algorithm_config
from vdl_ros.rl.policy.factory import make_policy
from vdl_ros.rl.train_config import TrainConfig
from vdl_ros.saved_policy import SavedPolicy


def test_all_have_the_same_cubes_and_the_table_names_them(monkeypatch):
    cubes = []

    class Seen(PushTask):
        def reset(self, rows, random):
            found = super().reset(rows, random)
            cubes.append((self.cubes, self.goals.copy()))
            return found

    monkeypatch.setitem(bench_cube.TASKS, 'push', (Seen, PUSH, PUSH_STEPS))
    torch.manual_seed(0)
    train, env = TrainConfig(), EnvConfig(env_id=PUSH)
    spaces = factory.spaces(env)
    made = make_policy(train, *spaces, make_algorithm_config(train, {}))
    policy = SavedPolicy(made.eval(), env, train, spaces[1], 0, 0, {})
    options = argparse.Namespace(task='push', episodes=4, seed=2, policy=policy)
    names = ['random', 'controller', 'likeliest', 'sampled']
    figures = [measure(name, 'inside', options) for name in names]
    for found in cubes[1:]:
        assert all(np.array_equal(*pair) for pair in zip(found, cubes[0], strict=True))
    reached = {each['by']: each['reached'] for each in figures}
    assert reached['controller'] >= 1
    assert reached['random'] == 0
    lines = text({'task': 'push', 'episodes': 4, 'figures': figures}).splitlines()
    assert lines[2] == '| push | random | controller | likeliest | sampled |'
    assert lines[4].startswith(f'| inside | 0 · - | {reached["controller"]} · ')
