"""CarRacing with eight actions: what each does to the controls, and the real car."""

import sys

import numpy as np
import pytest

from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import make

NAME = 'vdl_ros/CarRacingPixels-v0'


def test_without_box2d_one_line_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, 'Box2D', None)
    for name in [each for each in sys.modules if each.startswith('gymnasium.envs.box2d')]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(EnvError, match='^env_id: .*CarRacingPixels-v0 .*Box2D is not installed: '
                                       'pip install box2d, or the extra box2d of vdl_ros$'):
        make(EnvConfig(env_id=NAME), seed=0, num_envs=1)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason='Box2D has no wheel for Python 3.14')
def test_the_car_goes_forward_only_with_gas(monkeypatch):
    monkeypatch.setenv('SDL_VIDEODRIVER', 'dummy')
    env = make(EnvConfig(env_id=NAME), seed=0, num_envs=1)
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
