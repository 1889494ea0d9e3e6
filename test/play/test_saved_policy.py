"""A checkpoint's policy comes back with its environment, or the reason why it does not."""

import itertools
import threading

import numpy as np
import pytest
import torch
from counters import COUNTER
from refusals import refusal

from vdl_ros.common.settings import SettingError
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.play.saved_policy import load_policy, record_video, save_policy
from vdl_ros.rl.acting.act import Act
from vdl_ros.rl.runs.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from vdl_ros.rl.settings import ALGORITHMS

ENV = EnvConfig(env_id=COUNTER, num_envs=1)


def is_of(path, found):
    """Return whether a policy has the tensors of a checkpoint, bit by bit, and all else."""
    a, b = found.policy.state_dict(), load_checkpoint(path)['learner']['policy']
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a) and (
        found.env, found.version, found.agent_steps) == (ENV, 0, 99)


def refused(path, message, **wanted):
    line = refusal(CheckpointError, load_policy, path, **wanted)
    assert line.startswith(f'{path}: ')
    assert message in line


def test_a_policy_comes_back_with_what_it_was_learned_in(checkpoint):
    settings = itertools.cycle(({}, {'lstm_size': 5}, {'normalize_observations': True}))
    for algorithm, more in zip(ALGORITHMS, settings, strict=False):
        path = checkpoint(COUNTER, algorithm=algorithm, **more)
        found = load_policy(path)
        assert is_of(path, found), algorithm
        assert found.train.algorithm == algorithm
        assert found.policy.state_size == 2 * more.get('lstm_size', 0)
        assert found.action_space == factory.spaces(ENV)[1]
        assert not found.policy.training


def test_what_is_no_policy_or_not_the_one_that_is_wanted_is_said(checkpoint, tmp_path):
    path = checkpoint(COUNTER)
    refused(path, "env_id is 'vdl/Counter-v0', not 'CartPole-v1'", env_id='CartPole-v1')
    found = load_checkpoint(path)
    for changes in ({'version': None}, {'policy': 3}, {'agent_steps': []}):
        broken = tmp_path / 'broken.pt'
        save_checkpoint(broken, config=found['config'], progress={},
                        learner=found['learner'] | changes)
        refused(broken, 'not a policy for vdl/Counter-v0: ')
    refused(checkpoint(COUNTER, config={'hidden_size': 5}), 'size mismatch')
    path = checkpoint(COUNTER, config={'network': 'transformer'})
    with pytest.raises(SettingError, match="^network: 'transformer' is not allowed"):
        load_policy(path)
    refused(tmp_path / 'nothing.pt', 'no such file')


def test_a_policy_that_was_saved_before_actions_were_scaled_acts_as_it_did(checkpoint, tmp_path):
    found, path = load_checkpoint(checkpoint('Pendulum-v1')), tmp_path / 'old.pt'
    observations = np.ones((1, 3), np.float32)
    for scale in (2.0, 1.0):
        save_checkpoint(path, **{name: found[name] for name in ('config', 'learner', 'progress')})
        policy = load_policy(path)
        mean = policy.policy(torch.from_numpy(observations)).parameters[0, 0]
        assert float(policy.act()(observations)[0, 0]) == pytest.approx(scale * float(mean))
        found['config'].pop('scale_actions', None)


def test_values_of_actions_explore_as_at_the_end_of_the_run(checkpoint):
    torch.manual_seed(0)
    options = {'exploration_end': 0.25, 'exploration_steps': 50, 'exploration_spread': 0.0}
    found = load_policy(checkpoint(COUNTER, algorithm='dqn', options=options, total_steps=100))
    assert found.policy.exploration.tolist() == [0.25]
    observations = np.ones((2000, 3), np.float32)
    best = Act(found.policy, found.action_space, deterministic=True)(observations)
    assert len(set(best)) == 1
    drawn = Act(found.policy, found.action_space, deterministic=False)(observations)
    assert (drawn != best).mean() == pytest.approx(0.125, abs=0.03)


def test_a_policy_alone_is_small_and_the_same(checkpoint, tmp_path):
    path = checkpoint(COUNTER, config={'run_dir': '/home/somebody/runs/1', 'device': 'cpu'},
                      normalize_observations=True)
    alone = tmp_path / 'policy.pt'
    save_policy(path, alone)
    assert alone.stat().st_size < 0.6 * path.stat().st_size
    assert is_of(path, load_policy(alone))
    assert b'somebody' not in alone.read_bytes()


def test_a_video_shows_the_policy_of_a_checkpoint_where_there_are_pictures(checkpoint, tmp_path):
    line = record_video(checkpoint('vdl/Reach1D-v0'), tmp_path / 'video.mp4')
    assert line.startswith(f'{tmp_path}/video.mp4: 5 episodes, ')
    assert (tmp_path / 'video.mp4').stat().st_size > 1000
    stop = threading.Event()
    stop.set()
    assert ': 1 episode, 0 steps, ' in record_video(
        checkpoint('vdl/Reach1D-v0'), tmp_path / 'stopped.mp4', stop)
    with pytest.raises(ValueError, match='vdl/Counter-v0 cannot render images'):
        record_video(checkpoint(COUNTER), tmp_path / 'other.mp4')
    assert not (tmp_path / 'other.mp4').exists()
