"""CartPole in pixels: its frames, repeated actions, ends and variants; CarRacing: its actions."""

import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import make
from vdl_ros.envs.pixels import REPEATS, bilinear, draw, shrink
from vdl_ros.envs.registration import CART_POLE_PIXELS

NAME = 'vdl_ros/CartPolePixels-v0'
CAR = 'vdl_ros/CarRacingPixels-v0'


def test_frames_are_those_of_gymnasium_shrunk(monkeypatch):
    monkeypatch.setenv('SDL_VIDEODRIVER', 'dummy')
    env = CartPoleEnv(render_mode='rgb_array')
    env.reset()
    for position, angle in ((0.0, 0.0), (-1.2, 0.2), (0.71, -0.15), (1.4, 0.05)):
        env.state = np.array([position, 0.0, angle, 0.0])
        # Bilinear interpolation of 400 pixels to 80 takes the middle one of each five.
        image = env.render()[:, 100:-100].astype(np.float32).mean(-1)[2::5, 2::5]
        drawn, = draw(np.array([position], np.float32), np.array([angle], np.float32))
        difference = np.abs(shrink(image, bilinear(80, 42)).astype(int) - drawn)
        # Gymnasium smooths edges, and cuts coordinates to whole pixels.
        assert (drawn < 200).sum() > 10
        assert (difference > 30).sum() <= 8, (position, angle)
        assert difference.mean() < 0.5, (position, angle)
    env.close()


def test_a_step_is_three_of_cart_pole_and_shows_each():
    env = make(EnvConfig(env_id=NAME), seed=0, num_envs=1)
    observations, _ = env.reset()
    assert observations.shape == (1, REPEATS, 42, 42)
    assert (observations[0] == observations[0, 0]).all()
    reference = CartPoleEnv()
    reference.reset()
    reference.state = env.unwrapped.envs[0].unwrapped._cart_pole.state
    for action in (1, 1, 0):
        observations, rewards, *_ = env.step(np.array([action]))
        states = np.stack([reference.step(action)[0] for _ in range(REPEATS)])
        assert rewards[0] == REPEATS
        assert np.array_equal(observations[0], draw(states[:, 0], states[:, 2]))
    env.close()


def test_a_pole_that_falls_early_ends_the_step_and_its_last_frame_is_repeated():
    env = make(EnvConfig(env_id=NAME), seed=0, num_envs=8)
    env.reset()
    early = 0
    for _ in range(8):
        observations, rewards, terminated, *_ = env.step(np.ones(8, np.int64))
        for frames, reward in zip(observations[terminated], rewards[terminated], strict=True):
            steps = int(reward)
            early += steps < REPEATS
            assert (frames[steps:] == frames[steps - 1]).all()
    env.close()
    assert early


def test_variants_have_their_physics_limit_and_threshold():
    def moved(pole):
        pole.reset(seed=0)
        pole.state = np.array([0.0, 0.0, 0.1, 0.0])
        return [pole.step(1)[0] for _ in range(3)][-1]

    for name, arguments in CART_POLE_PIXELS.items():
        env = gymnasium.make(name)
        assert (env.spec.max_episode_steps, env.spec.reward_threshold) == (200, 195.0), name
        pole = env.unwrapped._cart_pole
        assert pole.gravity == arguments.get('gravity', 9.8)
        assert pole.total_mass == pytest.approx(
            arguments.get('mass_cart', 1.0) + arguments.get('mass_pole', 0.1))
        assert pole.polemass_length == pytest.approx(0.5 * arguments.get('mass_pole', 0.1))
        # The pole of another variant moves in another way.
        assert np.array_equal(moved(pole), moved(CartPoleEnv())) == (not arguments), name
        env.close()


def test_without_box2d_one_line_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, 'Box2D', None)
    for name in [each for each in sys.modules if each.startswith('gymnasium.envs.box2d')]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(EnvError, match='^env_id: .*CarRacingPixels-v0 .*Box2D is not installed: '
                                       'pip install box2d, or the extra box2d of vdl_ros$'):
        make(EnvConfig(env_id=CAR), seed=0, num_envs=1)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason='Box2D has no wheel for Python 3.14')
def test_the_car_goes_forward_only_with_gas(monkeypatch):
    monkeypatch.setenv('SDL_VIDEODRIVER', 'dummy')
    env = make(EnvConfig(env_id=CAR), seed=0, num_envs=1)
    observations, _ = env.reset()
    assert observations.shape == (1, 96, 96, 3)
    assert env.single_action_space.n == 8
    car = env.unwrapped.envs[0].unwrapped._car.car
    for action, moves in ((7, False), (3, True)):
        for each in (action, *[7] * 30):
            env.step(np.array([each]))
        assert (car.hull.linearVelocity.length > 5.0) == moves
    # Controls stay until an action changes them.
    env.reset()
    for action, expected in (
            (7, (0, 0, 0)), (0, (1, 0, 0)), (3, (1, 1, 0)), (7, (1, 1, 0)), (1, (-1, 1, 0)),
            (5, (-1, 1, 1)), (2, (0, 1, 1)), (4, (0, 0, 1)), (6, (0, 0, 0))):
        env.step(np.array([action]))
        assert env.unwrapped.envs[0].unwrapped._controls.tolist() == list(expected)
    env.close()
