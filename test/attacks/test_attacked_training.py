"""Training under attack, in one process: what is stored, what is reported, frozen policies."""

import csv
import json
import threading

import numpy as np
import pytest
import torch

from vdl_ros import local_training
from vdl_ros.attacks.attack_config import AttackConfig, SurrogateConfig
from vdl_ros.attacks.attacked_env import AttackedEnv, attack_environments, warning
from vdl_ros.common.settings import SettingError
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.acting.torch_actor import TorchActor
from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.data.unroll import Unroll, UnrollSchema
from vdl_ros.rl.runs.checkpoint import load_checkpoint
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config

CART_POLE = EnvConfig(num_envs=4)


@pytest.fixture
def train(tmp_path):
    """Return a function that trains on CartPole and returns its run's folder."""
    def run(name, mode='none', epsilon=0.05, init='', surrogate='', **settings):
        config = TrainConfig(**{'unroll_length': 16, 'hidden_size': 8, 'total_steps': 600,
                                **settings})
        local_training.train(
            CART_POLE, config, make_algorithm_config(config, {}), tmp_path / name,
            threading.Event(), init=str(init), attack=AttackConfig(
                adversarial_mode=mode, adversarial_epsilon=epsilon),
            surrogate=SurrogateConfig(adversarial_checkpoint=str(surrogate)))
        return tmp_path / name
    return run


def learned(path):
    return load_checkpoint(path / 'checkpoint.pt')['learner']


def summary(path):
    return json.loads((path / 'summary.json').read_text())


def test_an_attacked_run_is_repeated_by_its_seed(train, same):
    clean = learned(train('clean', total_steps=300))['policy']
    first, again = (train(name, 'fgsm_skip2', total_steps=300) for name in 'ab')
    assert same(learned(first)['policy'], learned(again)['policy'])
    assert (first / 'episode.csv').read_text() == (again / 'episode.csv').read_text()
    assert not same(learned(first)['policy'], clean)


def test_a_frozen_policy_does_not_learn_and_steps_are_counted(train, same):
    before = train('first')
    after = train('second', 'fgsm_skip2', init=before / 'checkpoint.pt', freeze=True,
                  stop_at_return=-1e6)
    assert same(learned(before)['policy'], learned(after)['policy'])
    found = summary(after)
    assert (found['ended_by'], found['updates']) == ('total_steps', 0)
    assert 600 <= found['agent_steps'] < 700
    assert found['episodes'] > 10
    assert 0.4 < found['adversary']['inject_share'] < 0.65
    # Half of the observations have no perturbation.
    assert 0.015 < found['adversary']['l2'] < 0.035
    assert summary(before)['adversary'] is None
    assert not (before / 'episode.csv').exists()
    # The gradients may be those of another checkpoint.
    found = summary(train('third', 'pgd', surrogate=before / 'checkpoint.pt', freeze=True,
                          total_steps=200))
    assert found['adversary']['inject_share'] == 1.0
    assert 0.0 < found['adversary']['l2'] <= 0.0501


def test_the_first_episode_is_written_step_by_step(train):
    path = train('run', 'fgsm', freeze=True, lstm_size=4)
    with (path / 'episode.csv').open() as file:
        rows = [{name: float(text) for name, text in row.items()} for row in csv.DictReader(file)]
    assert [row['step'] for row in rows] == list(range(len(rows)))
    # CartPole's reward is 1.
    assert [row['return'] for row in rows] == list(range(1, len(rows) + 1))
    # The first observation comes before the weights.
    assert [row['adversary_injects'] for row in rows] == [0.0] + [1.0] * (len(rows) - 1)
    np.testing.assert_allclose([row['adversary_l2'] for row in rows[1:]], 0.05, rtol=1e-3)
    assert {'value', 'logit_0', 'logit_1'} <= rows[0].keys()
    assert len({row['value'] for row in rows}) > len(rows) // 2


def attacked_actor(make, attack, shared=False, **settings):
    """Return an actor in CartPole in pixels under attack, and the schema of its unrolls."""
    envs = attack_environments(factory.make(EnvConfig(
        env_id='vdl_ros/CartPolePixels-v0'), 0, num_envs=2), attack, TrainConfig(), 0)
    spaces = envs.single_observation_space, envs.single_action_space
    policy = make(*spaces, network='universe', lstm_size=4, **settings)
    envs.follow(policy, (lambda: actor.state) if shared else None)
    schema = UnrollSchema(*spaces, 6, 1, policy.state_size)
    actor = TorchActor(envs, policy, schema, 0)
    return actor, schema


def test_unrolls_hold_what_the_policy_saw(make):
    actor, schema = attacked_actor(make, AttackConfig('fgsm', 0.001))
    policy = actor.policy
    actor.unroll()
    arrays, _ = actor.unroll()
    actor.close()
    schema.check(arrays)
    assert arrays['observations'].dtype == np.float32
    assert arrays['adversary_injects'].all()
    # Less than the distance of two bytes, and in the batch nevertheless.
    batch = make_batch([Unroll(arrays, 'a', 1, 0, 0)], schema)
    off = batch.observations * 255
    assert (off - off.round()).abs().max().item() == pytest.approx(0.255, abs=0.01)
    with torch.no_grad():
        parameters, _, _ = policy(batch.observations, batch.is_reset, batch.state,
                                  batch.actions, batch.rewards)
        found = policy.distribution.log_prob(parameters[:-1], batch.actions)
    torch.testing.assert_close(found, batch.behaviour_log_probs, rtol=1e-4, atol=1e-5)


def test_the_state_of_the_actor_gives_the_same_attack_as_one_of_its_own(make):
    def unrolls(shared):
        actor, _ = attacked_actor(
            make, AttackConfig('fgsm_skip2', 0.01), shared, last_action_reward=True)
        found = [actor.unroll()[0] for _ in range(3)]
        actor.close()
        return found

    for own, shared in zip(unrolls(False), unrolls(True), strict=True):
        assert own.keys() == shared.keys()
        assert own['adversary_injects'].any()
        for name, array in own.items():
            np.testing.assert_allclose(array, shared[name], atol=1e-5)


def test_a_perturbation_that_no_camera_could_show_is_a_warning():
    for mode, epsilon, env_id, warns in (
            ('fgsm', 0.001, 'vdl_ros/CartPolePixels-v0', True),
            ('fgsm', 0.005, 'vdl_ros/CartPolePixels-v0', False),
            ('none', 0.001, 'vdl_ros/CartPolePixels-v0', False),
            ('patch', 0.001, 'vdl_ros/CartPolePixels-v0', False),
            ('fgsm', 0.001, 'CartPole-v1', False)):
        attack = AttackConfig(mode, epsilon)
        env = attack_environments(
            factory.make(EnvConfig(env_id=env_id), 0, num_envs=1), attack, TrainConfig(), 0)
        assert isinstance(env, AttackedEnv) == (mode != 'none')
        found = 'adversarial_epsilon: 0.001 is less than the distance ' in warning(attack, env)
        env.close()
        assert found == warns, (mode, epsilon, env_id)


def test_environments_are_closed_if_they_cannot_be_attacked():
    env = factory.make(EnvConfig(env_id='vdl/Counter-v0'), 0, num_envs=1)
    with pytest.raises(SettingError):
        attack_environments(env, AttackConfig('patch'), TrainConfig(), 0)
    assert env.unwrapped.closed
