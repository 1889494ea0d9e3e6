"""Environments under attack: spaces, what is stored, and perturbations below a byte."""

import gymnasium
import numpy as np
import pytest
import torch

from vdl_ros.attacks.attack_config import AttackConfig
from vdl_ros.attacks.attacked_env import AttackedEnv, PerturbedObservations
from vdl_ros.common.observation_spaces import ImageAndVector, ScaledImage
from vdl_ros.common.settings import SettingError
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import make as make_env

CART_POLE = EnvConfig(env_id='vdl_ros/CartPolePixels-v0')


def attacked(mode, epsilon, config=CART_POLE, seed=0, **settings):
    return AttackedEnv(make_env(config, seed, num_envs=2), AttackConfig(
        adversarial_mode=mode, adversarial_epsilon=epsilon), seed, **settings)


def test_a_perturbation_below_a_byte_changes_what_the_network_sees(make):
    env, clean = attacked('fgsm', 0.001), make_env(CART_POLE, 0, num_envs=2)
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


def test_gradients_of_a_surrogate_need_no_weights_of_the_policy(make):
    surrogate = make(network='universe', actions=gymnasium.spaces.Discrete(2))
    env = attacked('fgsm', 0.02, surrogate=surrogate)
    seen, _ = env.reset()
    env.follow(make(network='impala', actions=gymnasium.spaces.Discrete(2)))
    clean = make_env(CART_POLE, 0, num_envs=2)
    image, _ = PerturbedObservations(clean.single_observation_space).split(clean.reset()[0])
    assert np.abs(seen - image).max() == pytest.approx(0.02, rel=1e-4)
    clean.close()
    env.close()
    with pytest.raises(SettingError, match='^adversarial_checkpoint: its policy is of observatio'):
        attacked('fgsm', 0.02, EnvConfig(), surrogate=surrogate)
    with pytest.raises(SettingError, match="^adversarial_mode: 'patch' is not allowed here: "):
        attacked('patch', 0.1, EnvConfig())
