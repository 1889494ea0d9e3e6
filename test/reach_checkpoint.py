"""Checkpoints of the task reach with weights made by hand: nothing has to be trained."""

import torch

from vdl_ros.common.settings import as_dict
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.owi535.reach import FEATURES
from vdl_ros.envs.registration import REACH
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.runs.checkpoint import save_checkpoint
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config

# Below this angle a motor stays off, and so far the latest command still turns it, rad.
_SMALL, _COMING = 0.03, 0.02


def write(path, *, turning=False, described=None, bias=None, env_kwargs='', env_wrappers='',
          env_id=REACH, **train):
    """Write a policy that turns the base towards the target; other motors stay off.

    If ``turning`` it always turns the base forward; with settings in ``train`` it is a random one.
    ``described`` is what it says of its environment, ``bias`` of its last layer.
    """
    env = EnvConfig(env_id=REACH, num_envs=1, env_kwargs=env_kwargs, env_wrappers=env_wrappers)
    config = TrainConfig(**{'algorithm': 'ppo', 'hidden_size': 4, **train})
    algorithm_config = make_algorithm_config(config, {})
    learner = Learner(config, *factory.spaces(env), algorithm_config=algorithm_config)
    if not train:
        _set_weights(learner.policy, turning)
    if bias is not None:
        torch.nn.init.constant_(learner.policy.policy_head.bias, bias)
    saying = factory.describe(env) if described is None else {'environment': described}
    settings = as_dict(env, config, algorithm_config) | {'env_id': env_id}
    save_checkpoint(path, config=settings | saying, learner=learner.state(), progress={})
    return path


@torch.no_grad()
def _set_weights(policy, turning):
    first, second = policy.policy_torso[0], policy.policy_torso[2]
    head = policy.policy_head
    for layer in (first, second, head):
        layer.weight.zero_()
        layer.bias.zero_()
    names = [feature.name for feature in FEATURES]
    # Backward, off, forward: off is 1, the others +-2 tanh(3 tanh(gain turn)).
    head.bias[1::3] = 1.0
    if turning:
        head.bias[2] = 2.0
        return
    second.weight[0, 0] = 3.0
    first.weight[0, names.index('base_turn')] = 0.185 / _SMALL
    first.weight[0, names.index('base_command_1')] = -0.185 / _SMALL * _COMING
    head.weight[0, 0] = -2.0
    head.weight[2, 0] = 2.0
