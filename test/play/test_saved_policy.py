"""A checkpoint's policy comes back with its environment, or the reason why it does not."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from vdl_ros.common.settings import SettingError, as_dict
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.play.saved_policy import load_policy, record_video, save_policy
from vdl_ros.rl.acting.evaluation import Act
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.runs.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from vdl_ros.rl.settings import ALGORITHMS, TrainConfig, make_algorithm_config

ENV = EnvConfig(env_id='vdl/Counter-v0', num_envs=3)
TRAIN = TrainConfig(hidden_size=4, total_steps=100)


@pytest.fixture
def saved(tmp_path):
    """Return a function that saves a learner; it returns the file and the learner."""
    def save(env=ENV, config=None, options=None, **train):
        train = dataclasses.replace(TRAIN, **train)
        algorithm_config = make_algorithm_config(train, options or {})
        learner = Learner(train, *factory.spaces(env), algorithm_config=algorithm_config)
        learner.version, learner.agent_steps = 7, 99
        path = tmp_path / 'checkpoint.pt'
        save_checkpoint(path, config={**as_dict(env, train, algorithm_config), **(config or {})},
                        learner=learner.state(), progress={})
        return path, learner
    return save


def same(a, b):
    """Return whether two policies have the same tensors, bit by bit."""
    a, b = a.state_dict(), b.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def broken(path, **changes):
    """Change what a checkpoint holds of the learner; None takes it out."""
    found = load_checkpoint(path)
    for name, value in changes.items():
        found['learner'][name] = value
        if value is None:
            del found['learner'][name]
    save_checkpoint(path, **{name: found[name] for name in ('config', 'learner', 'progress')})


def refused(path, message, **wanted):
    with pytest.raises(CheckpointError) as error:
        load_policy(path, **wanted)
    assert str(error.value).startswith(f'{path}: ')
    assert message in str(error.value)
    assert '\n' not in str(error.value)


def test_a_policy_comes_back_with_what_it_was_learned_in(saved):
    settings = itertools.cycle(({}, {'lstm_size': 5}, {'normalize_observations': True}))
    for algorithm, more in zip(ALGORITHMS, settings, strict=False):
        path, learner = saved(algorithm=algorithm, **more)
        if learner.policy.normalizer is not None:
            learner.policy.normalizer.update(torch.randn(50, 3) * 9)
            broken(path, policy=learner.policy.state_dict())
        found = load_policy(path)
        assert same(found.policy, learner.policy), algorithm
        assert found.policy.state_size == learner.policy.state_size
        assert (found.env, found.train) == (ENV, learner.config)
        assert found.action_space == factory.spaces(ENV)[1]
        assert (found.version, found.agent_steps) == (7, 99)
        assert not found.policy.training


def test_what_is_no_policy_or_not_the_one_that_is_wanted_is_said(saved, tmp_path):
    path, _ = saved(algorithm='ppo')
    refused(path, "env_id is 'vdl/Counter-v0', not 'CartPole-v1'", env_id='CartPole-v1')
    refused(path, "algorithm is 'ppo', not 'dqn'", algorithm='dqn')
    for changes in ({'version': None}, {'policy': 3}, {'agent_steps': []}):
        path, _ = saved()
        broken(path, **changes)
        refused(path, 'not a policy for vdl/Counter-v0: ')
    path, _ = saved(config={'hidden_size': 5})
    refused(path, 'size mismatch')
    path, _ = saved(config={'network': 'transformer'})
    with pytest.raises(SettingError, match="^network: 'transformer' is not allowed"):
        load_policy(path)
    refused(tmp_path / 'nothing.pt', 'no such file')


def test_values_of_actions_explore_as_at_the_end_of_the_run(saved):
    torch.manual_seed(0)
    options = {'exploration_end': 0.25, 'exploration_steps': 50, 'exploration_spread': 0.0}
    path, _ = saved(algorithm='dqn', options=options)
    found = load_policy(path)
    assert found.policy.exploration.tolist() == [0.25]
    observations = np.ones((2000, 3), np.float32)
    best = Act(found.policy, found.action_space, deterministic=True)(observations)
    assert len(set(best)) == 1
    drawn = Act(found.policy, found.action_space, deterministic=False)(observations)
    assert (drawn != best).mean() == pytest.approx(0.125, abs=0.03)


def test_a_policy_alone_is_small_and_the_same(saved, tmp_path):
    path, learner = saved(config={'run_dir': '/home/somebody/runs/1', 'device': 'cpu'},
                          algorithm='ppo', normalize_observations=True)
    alone = tmp_path / 'policy.pt'
    save_policy(path, alone)
    assert alone.stat().st_size < 0.6 * path.stat().st_size
    found = load_policy(alone)
    assert same(found.policy, learner.policy)
    assert (found.env, found.version, found.agent_steps) == (ENV, 7, 99)
    assert b'somebody' not in alone.read_bytes()
    with pytest.raises(ValueError, match='algorithm'):
        learner.load_state(load_checkpoint(alone)['learner'])


def test_a_video_shows_the_policy_of_a_checkpoint_where_there_are_pictures(saved, tmp_path):
    path, _ = saved(EnvConfig(env_id='vdl/Reach1D-v0'), algorithm='ppo')
    line = record_video(path, tmp_path / 'video.mp4')
    assert line.startswith(f'{tmp_path}/video.mp4: 5 episodes, ')
    assert (tmp_path / 'video.mp4').stat().st_size > 1000
    path, _ = saved()
    with pytest.raises(ValueError, match='vdl/Counter-v0 cannot render images'):
        record_video(path, tmp_path / 'other.mp4')
    assert not (tmp_path / 'other.mp4').exists()
