"""An environment of a user whose observations are not of its space is named, with both shapes."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import EnvError, make

FOUR = spaces.Box(-1.0, 1.0, (4,), np.float32)
PARTS = spaces.Dict({'arm': FOUR, 'goal': spaces.Discrete(3)})


class Answers(gymnasium.Env):
    """Returns what it was given, from reset and from every step."""

    action_space = spaces.Discrete(2)

    def __init__(self, space, at_reset, at_step):
        self.observation_space, self._at_reset, self._at_step = space, at_reset, at_step

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._at_reset, {}

    def step(self, action):
        return self._at_step, 0.0, False, False, {}


@pytest.fixture
def answers():
    def register(*arguments):
        gymnasium.registry.pop('test/Answers-v0', None)
        gymnasium.register(
            'test/Answers-v0', lambda render_mode=None: Answers(*arguments))
        return make(EnvConfig(env_id='test/Answers-v0'), seed=0, num_envs=2)
    yield register
    gymnasium.registry.pop('test/Answers-v0', None)


def four(**more):
    return np.zeros(4, np.float32) if not more else {'arm': np.zeros(4, np.float32), **more}


@pytest.mark.parametrize(('space', 'wrong', 'reason'), [
    (FOUR, np.zeros(3, np.float32), ' has the shape (3,), its space has (4,)'),
    (FOUR, 0.5, ' has the shape (), its space has (4,)'),
    (FOUR, [[0.0], [0.0, 1.0]], ' is a list of unequal parts, its space has the shape (4,)'),
    (PARTS, four(), ' is of ndarray, its space is Dict'),
    (PARTS, four(target=1), " has the parts ['arm', 'target'], its space has ['arm', 'goal']"),
    (PARTS, {'arm': np.zeros((4, 1)), 'goal': 1},
     "['arm'] has the shape (4, 1), its space has (4,)"),
])
def test_an_observation_of_another_shape_is_named_from_reset_and_from_step(
        answers, space, wrong, reason):
    env = answers(space, wrong, wrong)
    with pytest.raises(EnvError) as caught:
        env.reset()
    assert str(caught.value) == f'env_id: test/Answers-v0: the observation of reset(){reason}'
    good = four() if space is FOUR else four(goal=1)
    env = answers(space, good, wrong)
    env.reset()
    with pytest.raises(EnvError) as caught:
        env.step(np.zeros(2, np.int64))
    assert str(caught.value) == f'env_id: test/Answers-v0: the observation of step(){reason}'


def test_observations_of_the_space_pass_even_beyond_its_bounds(answers):
    env = answers(FOUR, [0.0, 0.0, 0.0, 1.5], four())
    assert env.reset()[0][0, 3] == 1.5
    assert env.step(np.zeros(2, np.int64))[0].shape == (2, 4)
