"""A policy is played, drawn and evaluated beside its training, and changes nothing there."""

import os
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from vdl_ros import local_training
from vdl_ros.attacks.attack_config import AttackConfig
from vdl_ros.common.opengl import OpenGLError
from vdl_ros.common.settings import SettingError, as_dict
from vdl_ros.envs import factory
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.play import player as module
from vdl_ros.play.evaluator import LocalEvaluator, PolicyEvaluator, verify_evaluations
from vdl_ros.play.player import PolicyPlayer
from vdl_ros.rl.acting.act import Act
from vdl_ros.rl.acting.evaluation import evaluate
from vdl_ros.rl.learning.evaluations import EvaluatedPolicy
from vdl_ros.rl.policy.policy import make_policy, weights
from vdl_ros.rl.runs.checkpoint import load_checkpoint
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config


@pytest.fixture(autouse=True)
def opengl(monkeypatch):
    """Let nothing start a process for a look at the graphics driver."""
    monkeypatch.setattr(module, 'check_drawing', lambda: '')
    monkeypatch.setenv('MUJOCO_GL', 'egl')


def settings(env_id, **more):
    return as_dict(EnvConfig(env_id=env_id), TrainConfig(**more))


def test_images_change_while_the_policy_acts_and_large_ones_are_thinned_out(monkeypatch):
    config = settings('CartPole-v1')
    player = PolicyPlayer(config)
    with pytest.raises(ValueError, match='weights: names'):
        player.load({})
    player.load({name: each + 0.5 for name, each in weights(player._policy).items()})
    images = [player.play(3) for _ in range(3)]
    assert all(each.dtype == np.uint8 and each.shape == (400, 600, 3) for each in images)
    assert not np.array_equal(images[0], images[-1])
    assert player.fps == 50.0
    # Beyond the end of an episode.
    assert player.play(600).shape == (400, 600, 3)
    monkeypatch.setattr(module, '_MAX_SIDE', 250)
    assert player.play(1).shape == (134, 200, 3)
    player.close()


def test_what_cannot_be_shown_is_one_line(monkeypatch):
    for env_id, more, expected in (
            ('vdl/Counter-v0', {}, 'env_id: vdl/Counter-v0 cannot render images'),
            ('robot/owi535', {}, "'robot/owi535' is a robot, which the actor moves"),
            ('CartPole-v1', {'inference': 'learner'}, 'the weights stay in the learner'),
            ('nobody/Knows-v3', {}, "no environment 'nobody/Knows-v3' on this host")):
        with pytest.raises(EnvError, match=expected) as caught:
            PolicyPlayer(settings(env_id, **more))
        assert '\n' not in str(caught.value)
    player = PolicyPlayer(settings('CartPole-v1'))

    def fail(*_):
        raise RuntimeError('broken\nglass')

    monkeypatch.setattr(player._stepper, 'step', fail)
    with pytest.raises(EnvError, match='RuntimeError: broken glass'):
        player.play(1)
    player.close()


def test_without_opengl_its_reason_is_said_where_it_is_needed(monkeypatch):
    def missing():
        raise OpenGLError('OpenGL: no driver; apt install it')

    monkeypatch.setattr(module, 'check_drawing', missing)
    # It is drawn without OpenGL.
    PolicyPlayer(settings('CartPole-v1')).close()

    def fail(*_):
        raise AttributeError('no attribute eglQueryString')

    # What a library makes of it depends on what was imported before.
    monkeypatch.setattr(module, 'make_drawn', fail)
    with pytest.raises(EnvError, match='OpenGL: no driver; apt install it'):
        PolicyPlayer(settings('vdl_ros/OWI535Reach-v0'))
    assert os.environ['MUJOCO_GL'] == 'disable'


ENV, TRAIN = EnvConfig(env_id='CartPole-v1'), TrainConfig(eval_episodes=10)


@pytest.fixture
def policy():
    torch.manual_seed(3)
    return make_policy(TRAIN, *factory.spaces(ENV), make_algorithm_config(TRAIN, {}))


def test_the_result_is_that_of_the_same_policy_and_starts_each_time(policy):
    evaluator = PolicyEvaluator(as_dict(ENV, TRAIN))
    before = torch.get_rng_state()
    first, second = (evaluator.evaluate(weights(policy)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    evaluator.close()
    envs = factory.make(ENV, 3001, num_envs=8)
    act = Act(policy, envs.single_action_space, deterministic=True)
    assert first.returns == second.returns == evaluate(envs, act, 10, 3001).returns
    assert len(first.returns) == 10
    envs.close()


def test_no_more_environments_are_made_than_the_training_has(monkeypatch):
    made, make = [], factory.make
    monkeypatch.setattr(factory, 'make', lambda *given, num_envs, **more: (
        made.append(num_envs), make(*given, num_envs=num_envs, **more))[1])
    for num_envs in (1, 16):
        PolicyEvaluator(as_dict(replace(ENV, num_envs=num_envs), TRAIN)).close()
    assert made == [1, 8]


def test_it_ends_early_when_stopped_and_refuses_weights_that_are_not_finite(policy):
    evaluator, stop = PolicyEvaluator(as_dict(ENV, TRAIN)), threading.Event()
    with pytest.raises(ValueError, match='not all finite'):
        evaluator.evaluate({name: array * np.float32('nan')
                            for name, array in weights(policy).items()})
    local = LocalEvaluator(evaluator, stop)
    local.start(EvaluatedPolicy(7, 1, 0.0, weights(policy)))
    assert local.take().agent_steps == 7
    stop.set()
    local.start(EvaluatedPolicy(8, 1, 0.0, weights(policy)))
    assert local.take() is None
    evaluator.close()


def test_a_training_under_attack_is_evaluated_under_attack(policy):
    attack = AttackConfig(adversarial_mode='fgsm', adversarial_epsilon=0.1)
    evaluator = PolicyEvaluator(as_dict(ENV, TRAIN, attack))
    found = evaluator.evaluate(weights(policy))
    assert found.injects == sum(found.lengths) > 0
    evaluator.close()


def test_a_robot_is_not_moved_beside_its_training():
    env = EnvConfig(env_id='robot/owi535')
    verify_evaluations(env, TrainConfig())
    with pytest.raises(SettingError, match='eval_every: 5 is not allowed with env_id'):
        verify_evaluations(env, TrainConfig(eval_every=5))
    with pytest.raises(SettingError, match="video: true is not allowed .* as the robot is the a"):
        verify_evaluations(env, TrainConfig(), video=True)


def test_evaluations_do_not_change_what_is_learned(tmp_path):
    found = []
    for every in (0, 500):
        config = TrainConfig(total_steps=2000, eval_every=every, eval_episodes=2)
        path = tmp_path / str(every)
        local_training.train(ENV, config, make_algorithm_config(config, {}), path,
                             threading.Event())
        found.append(load_checkpoint(path / 'checkpoint.pt')['learner'])
    one, other = found
    assert torch.equal(one['torch_rng'], other['torch_rng'])
    assert all(torch.equal(tensor, other['policy'][name])
               for name, tensor in one['policy'].items())
    assert (tmp_path / '500' / 'best.pt').is_file()
