"""What a learner with its topics does otherwise when it learns from a bag."""

from types import SimpleNamespace

import pytest
import torch

from vdl_ros.attacks.attack_config import AttackConfig
from vdl_ros.envs.env_config import EnvConfig, EnvModulesConfig
from vdl_ros.rl.distributed.collectives import Group
from vdl_ros.rl.runs.run_config import RunConfig, RunFolderConfig
from vdl_ros.rl.settings import SacConfig, TrainConfig
from vdl_ros.ros.node_settings import ProcessConfig
from vdl_ros.ros.training import training as module


@pytest.mark.parametrize(('fps', 'relearn', 'expected'), [
    (0.0, False, False), (20.0, False, True), (20.0, True, False)])
def test_only_a_robot_that_acts_now_is_not_kept_waiting(
        node, tmp_path, monkeypatch, fps, relearn, expected):
    monkeypatch.setattr(module, 'Diagnostics', lambda *_: None)  # of a node of this package
    training = module.Training(node, Group(), module.TrainingSettings(
        EnvConfig(env_id='CartPole-v1', realtime_fps=fps), TrainConfig(algorithm='sac'),
        SacConfig(replay_size=64), AttackConfig(), RunConfig(relearn=relearn), RunFolderConfig(),
        ProcessConfig(), EnvModulesConfig(), torch.device('cpu'), '', 'me/1', tmp_path))
    algorithm = training._learner.algorithm
    assert not algorithm.is_awaited()
    training._source.inbox = SimpleNamespace(waiting=1)
    assert algorithm.is_awaited() == expected
