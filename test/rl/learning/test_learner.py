"""The learner: what it counts and hands out, and that what is not finite changes nothing."""

import copy
import dataclasses

import numpy as np
import pytest

from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.policy.policy import load_weights, make_policy
from vdl_ros.rl.settings import TrainConfig

CONFIG = TrainConfig(unroll_length=8, hidden_size=8, total_steps=1000)


def test_versions_and_valid_steps_are_counted(spaces, random_unroll):
    learner = Learner(CONFIG, *spaces)
    unrolls = [random_unroll(0), random_unroll(1, batch=2)]
    learner.update(unrolls)
    resets = sum(int(unroll.arrays['is_reset'][1:].sum()) for unroll in unrolls)
    assert resets > 0
    assert (learner.version, learner.agent_steps) == (1, 8 * 5 - resets)


def test_a_loss_or_gradient_that_is_not_finite_changes_nothing(spaces, random_unroll, same):
    learner = Learner(CONFIG, *spaces)
    learner.update([random_unroll(0)])
    before = copy.deepcopy(learner.state())
    poison = random_unroll(1)
    poison.arrays['rewards'][:] = 1e30
    with pytest.raises(FloatingPointError, match=r'^update 1: .*losses/value_loss.* not finite$'):
        learner.update([poison])
    assert same(learner.state(), before)
    hook = learner.policy.value_head.weight.register_hook(lambda gradient: gradient * np.nan)
    with pytest.raises(FloatingPointError, match=(
            r'^update 1: the gradient of value_head\.weight is not finite$')):
        learner.update([random_unroll(1)])
    assert same(learner.state(), before)
    hook.remove()
    learner.update([random_unroll(2)])


def test_the_learning_rate_falls_with_agent_steps(spaces, random_unroll):
    learner = Learner(dataclasses.replace(CONFIG, learning_rate_schedule='linear'), *spaces)
    for steps, left in ((250, 0.75), (1001, 0.0)):
        learner.agent_steps = steps
        used = learner.update([random_unroll(0)])['charts/learning_rate']
        assert used == pytest.approx(left * CONFIG.learning_rate)


def test_weights_and_statistics_go_to_an_actors_network(spaces, random_unroll, same):
    config = dataclasses.replace(CONFIG, normalize_observations=True)
    learner, policy = Learner(config, *spaces), make_policy(config, *spaces)
    learner.update([random_unroll(0)])
    load_weights(policy, learner.weights())
    assert same(dict(policy.state_dict()), dict(learner.policy.state_dict()))
    assert float(policy.normalizer.count) == learner.agent_steps > 0
