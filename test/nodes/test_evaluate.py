"""The evaluate node: what it publishes."""

import threading
from types import SimpleNamespace

import numpy as np
from rclpy.clock import Clock

from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.nodes.evaluate import EvaluateNode
from vdl_ros.rl.acting.evaluation_config import EvaluateConfig


def test_published_episodes_say_how_they_ended():
    published = []
    node = SimpleNamespace(
        settings=EvaluateConfig(episodes=6, num_envs=2), _env=EnvConfig(env_id='vdl/Counter-v0'),
        _episodes=SimpleNamespace(publish=published.append), _saved=SimpleNamespace(
            version=7, act=lambda deterministic: lambda observations, *rest: np.zeros(
                len(observations), np.int64)),
        get_clock=Clock, get_fully_qualified_name=lambda: '/evaluate')
    EvaluateNode.play(node, threading.Event())
    assert len(published) == 6
    # In the counter environments every second episode is truncated.
    assert {(each.terminated, each.truncated) for each in published} == {
        (True, False), (False, True)}
    assert {each.environment for each in published} == {0, 1}
    assert {each.policy_version for each in published} == {7}
