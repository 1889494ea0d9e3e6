"""Under attack: what a policy sees, perturbations below a byte, trainings in one process."""

import json
import threading

import gymnasium
import numpy as np
import pytest
import torch

from vdl_ros import local_training
from vdl_ros.attacks.attack_config import AttackConfig, SurrogateConfig
from vdl_ros.attacks.attacked_env import (
    AttackedEnv,
    PerturbedObservations,
    attack_environments,
    warning,
)
from vdl_ros.common.observation_spaces import ImageAndVector, ScaledImage
from vdl_ros.common.settings import SettingError
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.acting.torch_actor import TorchActor
from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.data.unroll import Unroll, UnrollSchema
from vdl_ros.rl.runs.checkpoint import load_checkpoint
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config

CART_POLE = EnvConfig(num_envs=4)
PIXELS = EnvConfig(env_id='vdl_ros/CartPolePixels-v0')


def attacked(mode, epsilon, config=PIXELS, seed=0, **settings):
    return AttackedEnv(factory.make(config, seed, num_envs=2), AttackConfig(
        adversarial_mode=mode, adversarial_epsilon=epsilon), seed, **settings)


def test_a_perturbation_below_a_byte_changes_what_the_network_sees(make):
    env, clean = attacked('fgsm', 0.001), factory.make(PIXELS, 0, num_envs=2)
    policy = make(env.single_observation_space, env.single_action_space, network='universe')
    env.follow(policy)
    seen, _ = env.reset()
    scaled = clean.reset()[0].astype(np.float32) / 255
    env.close()
    clean.close()
    difference = np.abs(seen - scaled)
    assert difference.max() == pytest.approx(0.001, rel=1e-3)
    # In bytes there would be no difference.
    assert np.array_equal(np.rint(seen * 255), np.rint(scaled * 255))
    with torch.no_grad():
        outputs = [policy(torch.from_numpy(each)).parameters for each in (seen, scaled)]
    assert not torch.equal(*outputs)


def test_a_policy_sees_the_same_in_float_as_in_bytes_and_an_image_is_perturbed_alone(make):
    space = ImageAndVector(gymnasium.spaces.Box(0, 255, (42, 42, 3), np.uint8), 5)
    rows = np.random.default_rng(0).integers(0, 256, (2, *space.shape), np.uint8)
    space.split(rows)[1][...] = np.arange(10, dtype=np.float32).reshape(2, 5)
    observations = PerturbedObservations(space)
    joined = observations.join(*observations.split(rows))
    assert isinstance(observations.space.image, ScaledImage)
    assert joined.shape == (2, *observations.space.shape)
    plain, perturbed = (
        make(each, network='universe', lstm_size=4) for each in (space, observations.space))
    is_reset, state = torch.ones(1, 2, dtype=torch.bool), plain.initial_state(2)
    with torch.no_grad():
        outputs = [policy(torch.from_numpy(each)[None], is_reset, state).parameters
                   for policy, each in ((plain, rows), (perturbed, joined))]
    torch.testing.assert_close(*outputs)


def test_information_is_of_the_observation_that_was_acted_on(make):
    env = attacked('fgsm_skip2', 0.05)
    env.follow(make(env.single_observation_space, env.single_action_space, network='universe'))
    env.reset()
    found = [env.step(np.array([0, 1]))[-1]['adversary_injects'].tolist() for _ in range(4)]
    env.close()
    assert found == [[True] * 2, [False] * 2] * 2


@pytest.mark.parametrize('mode', ['random', 'fgsm_reuse2', 'patch'])
def test_perturbed_images_stay_from_0_to_1(make, mode):
    env = attacked(mode, 0.1)
    env.follow(make(env.single_observation_space, env.single_action_space, network='universe'))
    env.reset()
    for _ in range(3):
        seen, *_, info = env.step(np.array([0, 1]))
        assert info['adversary_injects'].all()
        assert (seen.min() >= 0.0, seen.max() <= 1.0) == (True, True)
    env.close()


def test_gradients_of_a_surrogate_need_no_weights_of_the_policy(make):
    surrogate = make(network='universe', actions=gymnasium.spaces.Discrete(2))
    env = attacked('fgsm', 0.02, surrogate=surrogate)
    seen, _ = env.reset()
    env.follow(make(network='impala', actions=gymnasium.spaces.Discrete(2)))
    clean = factory.make(PIXELS, 0, num_envs=2)
    image, _ = PerturbedObservations(clean.single_observation_space).split(clean.reset()[0])
    assert np.abs(seen - image).max() == pytest.approx(0.02, rel=1e-4)
    clean.close()
    env.close()
    with pytest.raises(SettingError, match='^adversarial_checkpoint: its policy is of observatio'):
        attacked('fgsm', 0.02, EnvConfig(), surrogate=surrogate)
    with pytest.raises(SettingError, match="^adversarial_mode: 'patch' is not allowed here: "):
        attacked('patch', 0.1, EnvConfig())


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


def attacked_actor(make, attack, shared=False, env=PIXELS, **settings):
    """Return an actor, in CartPole in pixels, under attack, and the schema of its unrolls."""
    envs = attack_environments(factory.make(env, 0, num_envs=2), attack, TrainConfig(), 0)
    spaces = envs.single_observation_space, envs.single_action_space
    policy = make(*spaces, **{'network': 'universe', 'lstm_size': 4, **settings})
    envs.follow(policy, (lambda rewards: actor.next_state(rewards)) if shared else None)
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


def test_the_last_action_is_the_one_that_the_policy_chose_before_it_was_clipped(make):
    actor, _ = attacked_actor(
        make, AttackConfig('fgsm'), True, EnvConfig(env_id='Pendulum-v1'), network='mlp',
        last_action_reward=True, initial_std=5.0)
    arrays, _ = actor.unroll()
    assert np.abs(arrays['actions'][-1]).max() > 2
    torch.testing.assert_close(actor.envs._attacker._state, actor.state)
    actor.close()


def test_a_perturbation_that_no_camera_could_show_is_a_warning():
    for mode, epsilon, config, warns in (
            ('fgsm', 0.001, PIXELS, True), ('fgsm', 0.005, PIXELS, False),
            ('none', 0.001, PIXELS, False), ('patch', 0.001, PIXELS, False),
            ('fgsm', 0.001, CART_POLE, False)):
        attack = AttackConfig(mode, epsilon)
        env = attack_environments(factory.make(config, 0, num_envs=1), attack, TrainConfig(), 0)
        assert isinstance(env, AttackedEnv) == (mode != 'none')
        found = 'adversarial_epsilon: 0.001 is less than the distance ' in warning(attack, env)
        env.close()
        assert found == warns, (mode, epsilon, config.env_id)


def test_environments_are_closed_if_they_cannot_be_attacked():
    env = factory.make(EnvConfig(env_id='vdl/Counter-v0'), 0, num_envs=1)
    with pytest.raises(SettingError):
        attack_environments(env, AttackConfig('patch'), TrainConfig(), 0)
    assert env.unwrapped.closed
