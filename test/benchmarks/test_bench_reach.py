"""The benchmark of reaching: the same places for each controller, delays, policies, the table."""

import argparse

import numpy as np
import pytest
import torch

from benchmarks import bench_reach
from benchmarks.bench_reach import Case, camera_config, measure, slower, text
from vdl_ros.arm.control.controller_config import ControllerConfig
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.owi535.reach_task import ReachTask
from vdl_ros.envs.registration import REACH
from vdl_ros.rl.algorithm_config import make_algorithm_config
from vdl_ros.rl.policy.factory import make_policy
from vdl_ros.rl.train_config import TrainConfig
from vdl_ros.saved_policy import SavedPolicy


@pytest.fixture
def tasks(monkeypatch):
    """Return the tasks that are measured, in a list."""
    made = []

    def make(*words, **named):
        made.append(ReachTask(*words, **named))
        return made[-1]

    monkeypatch.setattr(bench_reach, 'ReachTask', make)
    return made


def options(**more):
    return argparse.Namespace(**{
        'targets': 3, 'seed': 4, 'delay_of': 'measurement', 'policy': None, **more})


@pytest.fixture(scope='module')
def policy():
    """Return a policy that was not trained."""
    torch.manual_seed(0)
    train, env = TrainConfig(), EnvConfig(env_id=REACH)
    spaces = factory.spaces(env)
    made = make_policy(train, *spaces, make_algorithm_config(train, {}))
    return SavedPolicy(made.eval(), env, train, spaces[1], 0, 0, {})


def test_all_controllers_have_the_same_places_and_the_joint_controller_reaches_them(
        tasks, policy):
    case = Case('truth', 'inside', 100)
    found = [measure(name, case, options(policy=policy))
             for name in ('controller', 'random', 'policy')]
    for task in tasks[1:]:
        assert np.array_equal(task.targets, tasks[0].targets)
    assert [each['reached'] for each in found] == [3, 0, 0]
    assert 1.0 < found[0]['median_s'] < 15.0
    assert found[0]['switches'] < 100 < found[1]['switches']
    assert found[1]['median_s'] is None
    assert slower(found[0], found[0]) == 1.0
    assert slower(found[1], found[0]) is None


def test_delays_are_added(tasks):
    for delay_of in ('measurement', 'command'):
        measure('random', Case('camera', 'inside', 200), options(delay_of=delay_of))
    late, slow = tasks
    age = late.time - late.reading.stamp
    assert (age >= 0.2).all()
    assert (age < 0.2 + 0.15 + 1 / 30 + 1e-9).all()
    assert (slow.time - slow.reading.stamp < 0.2).all()


def test_the_camera_has_the_settings_of_its_launch_argument():
    assert camera_config().start_band == 0.06
    assert camera_config() != ControllerConfig()


def test_the_table_has_a_row_for_each_case():
    nothing = {'reached': 0, 'median_s': None, 'mean_s': None, 'switches': 400.0}
    figures = {'reached': 2, 'median_s': 3.25, 'mean_s': 4.0, 'switches': 21.4}
    trained = figures | {'times_controller': 1.0}
    lines = text({'targets': 3, 'delay_of': 'command', 'figures': [
        {'controller': name, **Case('truth', 'inside', delay)._asdict(), **each}
        for delay in (0, 100)
        for name, each in (('random', nothing), ('controller', figures), ('policy', trained))],
    }).splitlines()
    assert lines == [
        "Reached of 3 · median time, s · mean time, s · motor switches · mean time over the "
        "controller's",
        '',
        '| joints by | twins | command later, ms | random | controller | policy |',
        '|---|---|---|---|---|---|',
        *(f'| truth | inside | {delay} | 0 · - · - · 400 | 2 · 3.2 · 4.0 · 21 '
          '| 2 · 3.2 · 4.0 · 21 · 1.00 |' for delay in (0, 100))]
