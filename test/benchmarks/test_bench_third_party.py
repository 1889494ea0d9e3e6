"""bench_third_party: commands, why a training ended, and returns of random actions."""

import pytest

from benchmarks import bench_third_party
from benchmarks.third_party.random_return import random_return
from vdl_ros.envs.env_config import EnvConfig


def test_a_command_is_as_it_is_typed_and_the_last_line_of_the_learner_is_the_reason():
    entry = {'install': ['a'], 'env_modules': 'a.b', 'env_id': 'A-v0', 'variables': {'B': '1'},
             'settings': {'env_kwargs': '{"c": 1}', 'normalize_observations': True}}
    assert bench_third_party.command(entry) == (
        'B=1 ros2 launch vdl_ros train.launch.py env_modules:=a.b env_id:=A-v0 '
        """env_kwargs:='{"c": 1}' normalize_observations:=true""")
    log = '[actor-2] learner: no\n[learner-1] learner: env_id: no\n[ERROR] [launch]: ended\n'
    assert bench_third_party.reason(log) == 'env_id: no'
    assert bench_third_party.reason('[actor-2] [ERROR] it broke\n[ERROR] [launch]: ended') == (
        '[actor-2] [ERROR] it broke')
    assert bench_third_party.reason('[INFO] [launch]: ended') == ''


def test_random_returns_are_of_as_many_episodes_of_each_copy():
    mean, episodes = random_return(EnvConfig(env_id='CartPole-v1'), 60.0)
    assert episodes == 100
    # 1,000 episodes have 22.
    assert mean == pytest.approx(22.0, abs=6.0)
    assert random_return(EnvConfig(env_id='CartPole-v1'), 0.0) == (None, 0)
