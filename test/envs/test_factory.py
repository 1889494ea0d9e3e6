"""Factory: environments by id, their limits, and error messages."""

import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import SyncVectorEnv

from vdl_ros.common.settings import SettingError, build
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import frames_per_observation, make, spaces


def balance(observations):
    """Return actions int64 [B] of a controller that holds CartPole's pole up."""
    x, speed, angle, turn = observations.T
    return (angle + 0.3 * turn + 0.02 * x + 0.05 * speed > 0).astype(np.int64)


def test_the_vector_version_of_an_environment_is_used_if_there_is_one():
    for env_id, kind in (('CartPole-v1', CartPoleVectorEnv), ('Acrobot-v1', SyncVectorEnv)):
        env = make(EnvConfig(env_id=env_id), seed=0)
        assert isinstance(env.unwrapped, kind)
        assert env.num_envs == 16
        env.close()


@pytest.mark.parametrize(('time_limit', 'length'), [(0, 500), (30, 30)])
def test_cartpole_that_stands_is_truncated_at_the_limit(time_limit, length):
    env = make(EnvConfig(time_limit=time_limit), seed=0, num_envs=4)
    observations, _ = env.reset()
    for episode in range(2):
        for step in range(1, length + 1):
            observations, rewards, terminated, truncated, _ = env.step(balance(observations))
            assert (rewards == 1.0).all()
            assert not terminated.any()
            assert (truncated == (step == length)).all(), (episode, step)
        observations, rewards, terminated, truncated, _ = env.step(balance(observations))
        assert not rewards.any()
        assert not (terminated | truncated).any()
        assert (abs(observations) <= 0.05).all()
    env.close()


def test_cartpole_that_falls_is_terminated_and_both_flags_may_meet():
    def fall(time_limit):
        env = make(EnvConfig(time_limit=time_limit), seed=0, num_envs=1)
        env.reset()
        for step in range(1, 50):
            _, _, terminated, truncated, _ = env.step(np.array([1]))
            if terminated[0] or truncated[0]:
                env.close()
                return step, bool(terminated[0]), bool(truncated[0])
        raise AssertionError('the pole stood')

    step, terminated, truncated = fall(0)
    assert (terminated, truncated) == (True, False)
    assert fall(step - 1) == (step - 1, False, True)
    assert fall(step) == (step, True, True)


def test_spaces_and_frames():
    for env_id, shape, frames in (
            ('CartPole-v1', (4,), 1), ('vdl/PixelCounter-v0', (4, 8, 8), 4),
            ('ALE/Pong-v5', (3, 42, 42), 3)):
        config = EnvConfig(env_id=env_id, frame_stack=3, screen_size=42)
        observation_space, action_space = spaces(config)
        assert observation_space.shape == shape
        assert isinstance(action_space, gymnasium.spaces.Discrete)
        assert frames_per_observation(config) == frames


def test_what_cannot_be_made_is_explained_in_one_line(monkeypatch):
    def refuse():
        raise ImportError('a library\n  is missing')

    monkeypatch.setitem(gymnasium.registry, 'vdl/Broken-v0', gymnasium.envs.registration.EnvSpec(
        'vdl/Broken-v0', entry_point=refuse))
    # Each of these settings is allowed.
    large = {'num_envs': 4096, 'frame_stack': 64, 'screen_size': 210}
    for given, message in (
            ('CartPol-v1', "env_id: no environment 'CartPol-v1' on this host; the module that "
             'registers it is named by env_modules:=MODULE with ros2 launch, by --ros-args -p '
             'env_modules:=MODULE with a node, else by --env_modules MODULE; did you mean '
             "'CartPole-v1'?"),
            ('ALE/Pogn-v5',
             "env_id: no Atari game 'ALE/Pogn-v5'; did you mean 'ALE/Pong-v5'?"),
            ('antigravity:CartPole-v1', "env_id: 'antigravity:CartPole-v1' is not allowed: no "
             "module to import, no ':'; env_modules are imported"),
            ('GymV26Environment-v0',
             'env_id: GymV26Environment-v0 is not allowed: it imports what an argument names'),
            ('ALE/os:Pong-v5', "env_id: no Atari game 'ALE/os:Pong-v5'; did you mean "),
            ('Pong-v4', 'env_id: Pong-v4 is not preprocessed: use an id such as ALE/Pong-v5'),
            ('vdl/Broken-v0', 'env_id: vdl/Broken-v0 cannot be created: a library is missing'),
            ({'env_id': 'ALE/Pong-v5', **large}, 'num_envs: 4096 observations of '),
            ({'env_id': 'Humanoid-v5', 'num_envs': 4096, 'env_wrappers':
              '[{"FrameStackObservation": {"stack_size": 256}}]'},
             'num_envs: 4096 observations of ')):
        config = EnvConfig(**({'env_id': given} if isinstance(given, str) else given))
        with pytest.raises(EnvError) as caught:
            make(config, seed=0)
        assert str(caught.value).startswith(message), given
        assert '\n' not in str(caught.value)
    assert 'antigravity' not in sys.modules
    with pytest.raises(EnvError, match='^env_id: vdl/Counter-v0 cannot render images$'):
        make(EnvConfig(env_id='vdl/Counter-v0'), seed=0, render=True)
    with pytest.raises(EnvError, match='num_envs: 0'):
        make(EnvConfig(), seed=0, num_envs=0)
    for name, value in (('num_envs', 4097), ('sticky_actions', float('nan')),
                        ('noop_max', 10**400), ('episodic_life', 1)):
        with pytest.raises(SettingError, match=name):
            build(EnvConfig, {name: value})
    monkeypatch.setitem(sys.modules, 'ale_py', None)
    with pytest.raises(EnvError, match=r"^env_id: 'ALE/Pong-v5' needs ale-py: pip install ale-py"):
        make(EnvConfig(env_id='ALE/Pong-v5'), seed=0)
