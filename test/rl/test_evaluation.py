"""Evaluation plays as many episodes as asked for, none of them picked for being short."""

import threading

import gymnasium
import numpy as np
import pytest
import torch

from vdl_ros.envs.config import EnvConfig
from vdl_ros.envs.counter import episode_length
from vdl_ros.envs.factory import make
from vdl_ros.rl.evaluation import Evaluation, evaluate, make_act
from vdl_ros.rl.networks import make_policy


def play(episodes, batch, seed=6, stop=None):
    envs = make(EnvConfig(env_id='vdl/Counter-v0'), 1, num_envs=batch)
    identities = envs.reset(seed=seed)[0][:, 2].astype(int)
    return identities, evaluate(
        envs, lambda observations: np.zeros(len(observations), np.int64), episodes, seed, stop)


@pytest.mark.parametrize(('episodes', 'batch'), [(1, 1), (7, 3), (12, 4), (2, 5)])
def test_each_environment_plays_its_share(episodes, batch):
    shares = [episodes // batch + (b < episodes % batch) for b in range(batch)]
    for seed in range(6):
        identities, result = play(episodes, batch, seed)
        lengths = [episode_length(e, i) for i, n in zip(identities, shares, strict=True)
                   for e in range(n)]
        assert sorted(result.lengths) == sorted(lengths)
        assert sorted(result.returns) == sorted(n * (n + 1) / 2 for n in lengths)


def test_stopping_ends_early():
    stop = threading.Event()
    stop.set()
    assert play(5, 2, stop=stop)[1] == Evaluation((), ())


def test_mean_spread_and_interval():
    result = Evaluation((1.0, 2.0, 3.0, 6.0), (1, 1, 1, 1))
    assert result.mean == 3.0
    assert result.std == pytest.approx(np.sqrt(3.5))
    assert result.interval == pytest.approx(1.96 * np.sqrt(3.5) / 2)


def test_actions_are_the_mode_or_drawn():
    space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    actions = gymnasium.spaces.Discrete(4)
    torch.manual_seed(0)
    policy = make_policy('mlp', space, actions, 4)
    observations = np.ones((200, 3), np.float32)
    assert len(set(make_act(policy, actions, deterministic=True)(observations))) == 1
    assert len(set(make_act(policy, actions, deterministic=False)(observations))) == 4


def test_continuous_actions_stay_within_their_box():
    space = gymnasium.spaces.Box(-0.5, 0.25, (2,), np.float32)
    policy = make_policy('mlp', gymnasium.spaces.Box(-1, 1, (3,), np.float32), space, 4)
    drawn = make_act(policy, space, deterministic=False)(np.ones((200, 3), np.float32))
    assert drawn.min() == -0.5
    assert drawn.max() == 0.25
