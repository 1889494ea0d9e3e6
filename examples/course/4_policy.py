"""Lesson 4: a trained policy, and what little noise does to it.

    python3 4_policy.py

Loads the policy that moves the arm to a place, plays ten episodes, and ten more in which it sees
observations that are perturbed by the gradient of its own decision (FGSM).
Try: a larger EPSILON, in standard deviations of each number, or random noise of the same size.
"""

from pathlib import Path

import torch

from vdl_ros.attacks.attack_config import AttackConfig
from vdl_ros.attacks.attacked_env import AttackedEnv, attack_environments
from vdl_ros.envs import factory
from vdl_ros.play.saved_policy import load_policy
from vdl_ros.rl.acting.evaluation import evaluate

EPISODES, EPSILON = 10, 2.0

saved = load_policy(Path('reach'))
parameters = sum(each.numel() for each in saved.policy.parameters())
print(f'{saved.env.env_id}, {saved.train.algorithm}, {saved.agent_steps:,} steps, '
      f'{parameters:,} parameters')

for attack in (AttackConfig(), AttackConfig(adversarial_mode='fgsm', adversarial_epsilon=EPSILON)):
    torch.manual_seed(1)
    envs = factory.make(saved.env, seed=1, num_envs=EPISODES)
    envs = attack_environments(envs, attack, saved.train, 1, None)
    act = saved.act()
    if isinstance(envs, AttackedEnv):
        # The attack needs the weights, and the state of a policy that has one.
        envs.follow(saved.policy, lambda act=act: act.state)
    found = evaluate(envs, act, EPISODES, 1)
    envs.close()
    reached = sum(bool(each.success) for each in found.episodes)
    print(f'{attack.adversarial_mode:>6}: mean return {found.mean:5.1f}, reached {reached} of '
          f'{EPISODES}')
