"""Policies for attacks."""

import gymnasium
import numpy as np
import pytest
import torch

from vdl_ros.rl.policy.policy import make_policy
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config

IMAGES = gymnasium.spaces.Box(0, 255, (3, 42, 42), np.uint8)
ACTIONS = gymnasium.spaces.Discrete(4)


@pytest.fixture
def same():
    """Return a function: whether two state dictionaries are the same, bit by bit."""
    def compare(a, b):
        return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
    return compare


@pytest.fixture
def make():
    """Return a function that makes a policy whose decisions are not all alike."""
    def policy(space=IMAGES, actions=ACTIONS, **settings):
        torch.manual_seed(0)
        config = TrainConfig(**{'precision': 'float32', **settings})
        made = make_policy(config, space, actions, make_algorithm_config(config, {})).eval()
        # As after training: the head of a new policy is nearly 0.
        with torch.no_grad():
            made.policy_head.weight.mul_(100.0)
        return made
    return policy
