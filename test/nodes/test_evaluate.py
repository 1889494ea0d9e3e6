"""The evaluate node: what it publishes."""

import threading
from types import SimpleNamespace

import numpy as np
from rclpy.clock import Clock

from vdl_ros.common.settings import as_dict
from vdl_ros.envs import factory
from vdl_ros.envs.checked_vector_env import CheckedVectorEnv
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.nodes.evaluate import EvaluateNode, main
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.runs.checkpoint import save_checkpoint
from vdl_ros.rl.settings import EvaluateConfig, TrainConfig, make_algorithm_config


def test_published_episodes_say_how_they_ended_before_environments_are_closed(monkeypatch):
    published, done = [], []
    monkeypatch.setattr(CheckedVectorEnv, 'close', lambda _: done.append('closed'))
    node = SimpleNamespace(
        _config=EvaluateConfig(episodes=6, num_envs=2), _env=EnvConfig(env_id='vdl/Counter-v0'),
        _episodes=SimpleNamespace(publish=published.append), _saved=SimpleNamespace(
            version=7, act=lambda deterministic: lambda observations, *rest: np.zeros(
                len(observations), np.int64)),
        is_attack=False, get_clock=Clock, get_logger=lambda: SimpleNamespace(info=print),
        get_fully_qualified_name=lambda: '/evaluate',
        _report=lambda result, before: done.append(len(published)))
    EvaluateNode.play(node, threading.Event())
    assert done == [6, 'closed']
    # In the counter environments every second episode is truncated.
    assert {(each.terminated, each.truncated) for each in published} == {
        (True, False), (False, True)}
    assert {each.environment for each in published} == {0, 1}
    assert {each.policy_version for each in published} == {7}


def test_a_video_that_cannot_be_drawn_is_refused_before_the_episodes(refused, tmp_path):
    env, config = EnvConfig(env_id='vdl/Counter-v0'), TrainConfig(hidden_size=4)
    settings = make_algorithm_config(config, {})
    learner = Learner(config, *factory.spaces(env), algorithm_config=settings)
    checkpoint = tmp_path / 'checkpoint.pt'
    save_checkpoint(checkpoint, config=as_dict(env, config, settings), learner=learner.state(),
                    progress={})
    assert refused(main, f'checkpoint:={checkpoint}', f'video:={tmp_path / "x.mp4"}').endswith(
        'env_id: vdl/Counter-v0 cannot render images')
