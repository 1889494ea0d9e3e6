"""Policies in plain Python: raw observations in, actions of the environment out."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import vdl_ros
from vdl_ros.envs import factory
from vdl_ros.play.plain_spaces import to_plain
from vdl_ros.play.saved_policy import load_policy
from vdl_ros.rl.policy.policy import choose_precision

RECURRENT = {'lstm_size': 5, 'last_action_reward': True}


class Nested(gymnasium.Env):
    """Parts in parts, a discrete one that does not begin at 0, and actions in two axes."""

    # Not in the order of the alphabet.
    observation_space = gymnasium.spaces.Dict([
        ('b', gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(3, start=-1),
                                      gymnasium.spaces.MultiBinary(2)])),
        ('a', gymnasium.spaces.MultiDiscrete([[2, 3], [4, 5]]))])
    action_space = gymnasium.spaces.Box(-2.0, np.array([[1, 2, 3]], np.float32), (1, 3))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return self.observation_space.sample(), 0.5, False, False, {}


class Flags(Nested):
    action_space = gymnasium.spaces.MultiBinary((2, 2))


gymnasium.register('test/Nested-v0', Nested)
gymnasium.register('test/Flags-v0', Flags)


@pytest.mark.parametrize(('env_id', 'train'), [
    ('test/MixedImages-v0', RECURRENT), ('test/Images-v0', {'algorithm': 'dqn'}),
    ('test/Nested-v0', {}), ('test/Flags-v0', {}),
    ('Pendulum-v1', {'action_distribution': 'squashed', **RECURRENT})])
def test_raw_observations_lead_to_the_actions_of_an_evaluation(exported, env_id, train):
    checkpoint, file = exported(env_id, **train)
    saved = load_policy(checkpoint)
    choose_precision(saved.policy, 'float32')
    act, envs = saved.act(), factory.make(saved.env, 0, num_envs=1)
    policies = [vdl_ros.load_policy(each) for each in (checkpoint, str(file))]
    observations, actions = envs._observations, envs._actions
    envs.close()
    env = gymnasium.make(env_id)
    env.reset(seed=1)
    env.observation_space.seed(1)
    for _ in range(2):
        (observation, _), states, reward, first = env.reset(), [None, None], 0.0, True
        for _ in range(4):
            row = observations.convert(_batch(observation))
            expected = actions.convert(act(row, np.array([first]), np.array([reward])))[0]
            for index, policy in enumerate(policies):
                action, states[index] = policy.predict(observation, states[index], reward)
                np.testing.assert_allclose(action, expected, rtol=1e-5, atol=1e-5)
                assert env.action_space.contains(action)
            observation, reward, *_ = env.step(action)
            first = False


def _batch(observation):
    if isinstance(observation, dict):
        return {key: _batch(each) for key, each in observation.items()}
    if isinstance(observation, tuple):
        return tuple(map(_batch, observation))
    return np.asarray(observation)[None]


def test_a_file_acts_without_pytorch_and_names_what_is_no_observation(exported):
    _, file = exported('test/MixedImages-v0', **RECURRENT)
    script = f"""
import sys
sys.modules['torch'] = None
import numpy as np, vdl_ros
policy = vdl_ros.load_policy({str(file)!r})
good = {{'image': np.zeros((36, 40, 3), np.uint8), 'speed': np.zeros(2), 'gear': 1}}
print(*policy.predict(good)[0])
for changed in ({{'speed': np.zeros(3)}}, {{'gear': 7}}, {{'speed': [0.0, np.nan]}}):
    try:
        policy.predict(good | changed)
    except ValueError as error:
        print(error)
try:
    policy.predict({{'image': 0}})
except ValueError as error:
    print(error)
"""
    first, *lines = subprocess.run(
        [sys.executable, '-c', script], check=True, capture_output=True,
        text=True).stdout.splitlines()
    assert all(action in range(-1, 7) for action in map(int, first.split()))
    assert lines == ["observation['speed']: shape [3] is not allowed: [2]",
                     "observation['gear']: 7 is not allowed: 0 to 2",
                     "observation['speed']: nan is not allowed: from -1e+09 to 1e+09",
                     "observation: no part 'gear' in dict"]


def test_a_part_whose_name_is_no_text_is_not_written_to_a_file():
    space = gymnasium.spaces.Dict({1: gymnasium.spaces.Discrete(2)})
    with pytest.raises(ValueError, match='^observation: 1 is not allowed as the name of a part'):
        to_plain(space)
