"""SameStepVectorEnv: last observations from info, as each library has them."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from vdl_ros.envs.checked_vector_env import EnvFailedError, SameStepVectorEnv

GO = np.zeros(2, np.int64)
NO, BOTH = np.zeros(2, np.bool_), np.ones(2, np.bool_)
SECOND = np.array([False, True])


class Answers(VectorEnv):
    """Two copies with observations of two parts, whose steps return what they were given."""

    metadata = {'autoreset_mode': AutoresetMode.SAME_STEP}
    single_observation_space = spaces.Dict({
        'arm': spaces.Box(-9, 9, (2,), np.float32), 'goal': spaces.Box(-9, 9, (1,), np.float32)})
    single_action_space = spaces.Discrete(2)
    num_envs = 2

    def __init__(self, terminated, truncated, info):
        self.ends, self.info = (terminated, truncated), info

    def reset(self, *, seed=None, options=None):
        return self.seen(0), {}

    def step(self, actions):
        return self.seen(1), np.ones(2), *self.ends, self.info

    def seen(self, value):
        return {'arm': np.full((2, 2), value, np.float32), 'goal': np.full((2, 1), value)}


def step(terminated, truncated, info):
    env = SameStepVectorEnv(Answers(terminated, truncated, info), seed=0)
    env.reset()
    return env.step(GO)


def test_last_observations_come_from_info_as_gymnasium_or_a_simulator_has_them():
    one = {'arm': np.array([2, 3], np.float32), 'goal': np.array([4.0])}
    objects = np.array([None, one], object)
    tensors = {'arm': torch.tensor([[np.nan, np.nan], [2, 3]]), 'goal': torch.tensor([[0], [4]])}
    for info in ({'final_obs': objects}, {'final_observation': tensors}):
        info |= {'is_success': NO, 'final_info': {'is_success': BOTH, 'text': [1, [2]]}}
        found, _, _, _, more = step(NO, SECOND, info)
        assert found.tolist() == [[1, 1, 1], [1, 1, 1]]
        assert more['final_obs'].tolist() == [[1, 1, 1], [2, 3, 4]]
        assert more['is_success'].tolist() == [False, True]
    # A library may have them in each step; where no episode ended they are of none.
    for info in ({}, {'final_obs': objects}, {'final_observation': np.full((2, 3), np.nan)}):
        assert not step(NO, NO, info)[4].keys() & {'final_obs', 'final_observation'}
    # A value is never bootstrapped from the last observation of a task that is over.
    assert step(SECOND, SECOND, {})[4]['final_obs'].tolist() == [[1, 1, 1], [1, 1, 1]]


def test_last_observations_that_are_missing_or_not_allowed_are_named():
    missing = "step(): an episode was truncated, and info has no 'final_obs'"
    for info, reason in (
            ({}, missing), ({'final_obs': np.array([None, None])}, missing),
            ({'final_obs': {'arm': np.full((2, 2), np.nan), 'goal': np.zeros((2, 1))}},
             "info['final_obs'] of step()['arm']: nan is not allowed"),
            ({'final_obs': {'arm': np.zeros((2, 3)), 'goal': np.zeros((2, 1))}}, 'step(): Value'),
            ({'final_obs': np.zeros(3)},
             "info['final_obs'] of step() has the shape (3,), not 2 rows"),
            ({'final_obs': {'arm': np.zeros((2, 2))}}, "step(): KeyError: 'goal'")):
        with pytest.raises(EnvFailedError) as caught:
            step(NO, BOTH, info)
        assert str(caught.value).startswith(f'env_id: Answers: {reason}')
