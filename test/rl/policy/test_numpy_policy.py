"""The policy without PyTorch: the same outputs, samples and weights as with it."""

import itertools
import re

import numpy as np
import pytest
import torch
from gymnasium import spaces

from vdl_ros.common.metrics import ThreadTimer
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.acting.make_actor import NumpyActor, make_actor
from vdl_ros.rl.policy.numpy_policy import ActionValues, MultiCategorical, make_numpy_policy
from vdl_ros.rl.policy.policy import load_weights, make_policy, weights
from vdl_ros.rl.settings import DqnConfig, PpoConfig, SacConfig, TrainConfig

BATCH = 5
FLOATS = spaces.Box(-9.0, 9.0, (4,))
BOX = spaces.Box(-2.0, np.array([1.0, 3.0], np.float32))
ACTIONS = {
    'discrete': (spaces.Discrete(3), None), 'parts': (spaces.MultiDiscrete([2, 4, 3]), None),
    'gaussian': (BOX, None), 'dqn': (spaces.Discrete(3), DqnConfig()),
    'boltzmann': (spaces.Discrete(3), DqnConfig(exploration='boltzmann')),
    'sac': (BOX, SacConfig()), 'sac-discrete': (spaces.Discrete(3), SacConfig()),
    'sac-parts': (spaces.MultiDiscrete([3, 2]), SacConfig())}
SETTINGS = [
    {}, {'normalize_observations': True}, {'lstm_size': 6},
    {'lstm_size': 6, 'last_action_reward': True}, {'last_action_reward': True}]


def both(observations, kind, settings):
    """Return the policy with PyTorch, with random weights, and the one without."""
    space, own = ACTIONS[kind]
    config = TrainConfig(network='mlp', hidden_size=7, **settings)
    torch.manual_seed(3)
    policy = make_policy(config, observations, space, own)
    with torch.no_grad():
        for each in policy.parameters():
            each.normal_(0.0, 0.7)
        if policy.normalizer is not None:
            policy.normalizer.update(torch.randn(50, *policy.normalizer.mean.shape) * 3 + 1)
    small = make_numpy_policy(config, observations, space, own)
    small.load(weights(policy))
    return policy, small


@pytest.mark.parametrize('kind', ACTIONS)
def test_outputs_states_and_log_probs_are_those_of_pytorch(kind):
    kinds = FLOATS, spaces.Box(0, 255, (2, 3), np.uint8)
    for settings, observations in itertools.product(SETTINGS, kinds):
        compare(*both(observations, kind, settings), observations)


def compare(policy, small, observations):
    observations.seed(1)
    random = np.random.default_rng(2)
    state = small.initial_state(BATCH)
    assert small.state_size == policy.state_size
    policy.exploration = torch.tensor([0.3])
    small.exploration = 0.3
    for _ in range(6):
        seen = np.stack([observations.sample() for _ in range(BATCH)])
        is_reset = random.random(BATCH) < 0.3
        with torch.no_grad():
            wanted = policy(*(torch.from_numpy(each)[None] for each in (seen, is_reset)),
                            torch.from_numpy(state))
            parameters, after = small.forward(seen, is_reset, state)
            np.testing.assert_allclose(
                parameters, wanted.parameters[0].numpy(), rtol=1e-4, atol=1e-5)
            actions, log_probs = small.distribution.sample(parameters, random)
            np.testing.assert_allclose(log_probs, policy.distribution.log_prob(
                wanted.parameters[0], torch.from_numpy(actions)).numpy(), rtol=1e-4, atol=1e-4)
            assert actions.dtype == policy.distribution.sample(wanted.parameters).numpy().dtype
            if policy.state_size:
                rewards = random.normal(0.0, 2.0, BATCH).astype(np.float32)
                np.testing.assert_allclose(after, wanted.state.numpy(), rtol=1e-4, atol=1e-5)
                state = small.append_last_action(after, actions, rewards)
                np.testing.assert_allclose(state, policy.append_last_action(
                    torch.from_numpy(after), torch.from_numpy(actions),
                    torch.from_numpy(rewards)).numpy(), rtol=1e-6)
        np.testing.assert_allclose(
            small.distribution.to_environment(actions),
            policy.distribution.to_environment(actions), rtol=1e-6)


def test_samples_have_the_probabilities_that_are_recorded():
    for kind in ACTIONS:
        _, small = both(FLOATS, kind, {})
        small.exploration = 0.4
        seen = np.repeat(np.array([[0.5, -1.0, 2.0, 0.1]], np.float32), 20_000, 0)
        parameters, _ = small.forward(
            seen, np.zeros(len(seen), np.bool_), np.zeros((len(seen), 0)))
        actions, log_probs = small.distribution.sample(parameters, np.random.default_rng(5))
        if actions.dtype.kind == 'f':
            mean, log_std = np.split(parameters[0], 2)
            np.testing.assert_allclose(actions.mean(0), mean, atol=0.1 * np.exp(log_std.max()))
            np.testing.assert_allclose(actions.std(0), np.exp(log_std.clip(-5, 2)), rtol=0.05)
            continue
        rows = actions.reshape(len(actions), -1)
        for row in np.unique(rows, axis=0):
            same = (rows == row).all(-1)
            assert same.mean() == pytest.approx(np.exp(log_probs[same][0]), abs=0.012), kind


def test_weights_of_another_policy_are_refused_and_change_nothing(same):
    policy, small = both(FLOATS, 'discrete', {})
    other, _ = both(FLOATS, 'discrete', {'lstm_size': 6})
    before = {name: array.copy() for name, array in weights(policy).items()}
    seen = np.ones((BATCH, 4), np.float32), np.zeros(BATCH, np.bool_), small.initial_state(BATCH)
    outputs = small.forward(*seen)[0]
    cases = [(weights(other), 'weights: names [^\n]* are missing or unknown')]
    cases += [(before | {'policy_head.bias': wrong}, re.escape(f'policy_head.bias: {reason}'))
              for wrong, reason in (
                  (np.full(3, np.nan, np.float32), 'not all finite'),
                  (np.zeros(4, np.float32), 'float32 (4,) is not float32 (3,)'),
                  (np.zeros(3, '>f4'), '>f4 (3,) is not float32 (3,)'))]
    for arrays, reason in cases:
        for load in (small.load, lambda arrays: load_weights(policy, arrays)):
            with pytest.raises(ValueError, match=reason):
                load(arrays)
    assert same(weights(policy), before)
    assert np.array_equal(small.forward(*seen)[0], outputs)


class Zeros:
    """A generator whose exponential numbers are 0, as one of ten million is."""

    def standard_exponential(self, shape, dtype):
        noise = np.ones(shape, dtype)
        noise[..., -1] = 0.0
        return noise


def test_an_action_of_probability_0_is_never_sampled():
    for distribution in (MultiCategorical([4, 2]), ActionValues(3, False)):
        parameters = np.zeros((1, distribution.size), np.float32)
        actions, log_probs = distribution.sample(parameters, Zeros())
        assert np.isfinite(log_probs).all()
        # The last one of all is padding, or not the best with epsilon 0.
        assert actions.reshape(-1)[-1] < 2


def test_other_policies_are_left_to_pytorch():
    for observations, actions, own in (
            (spaces.Box(0, 255, (84, 84, 4), np.uint8), spaces.Discrete(2), PpoConfig()),
            (spaces.Discrete(4), spaces.Discrete(2), PpoConfig())):
        found = make_numpy_policy(TrainConfig(), observations, actions, own)
        assert found is None, (observations, actions)


def test_an_actor_without_an_attack_acts_without_pytorch(same):
    def unroll(seed, stream=0):
        envs = factory.make(EnvConfig(env_id='CartPole-v1'), 1, num_envs=BATCH)
        train = TrainConfig(unroll_length=30, lstm_size=4)
        actor = make_actor(
            envs, train, PpoConfig(), 1, seed=seed, timer=ThreadTimer(), threads=1,
            exploration=lambda steps: 0.0, stream=stream)
        assert isinstance(actor, NumpyActor)
        torch.manual_seed(1)
        actor.load(weights(make_policy(
            train, envs.single_observation_space, envs.single_action_space)), 3)
        actor.unroll()
        return actor.unroll()[0]

    assert same(unroll(1), unroll(1))
    assert not same(unroll(1), unroll(2))
    assert not np.array_equal(unroll(1)['actions'], unroll(1, stream=1)['actions'])
    assert unroll(1)['state'].any()
