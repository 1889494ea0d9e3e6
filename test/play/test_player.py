"""A policy is played and drawn beside its training; what cannot be drawn is said in one line."""

import os

import numpy as np
import pytest

from vdl_ros.common.opengl import OpenGLError
from vdl_ros.common.settings import as_dict
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.play import player as module
from vdl_ros.play.player import PolicyPlayer
from vdl_ros.rl.policy.policy import weights
from vdl_ros.rl.settings import TrainConfig


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
