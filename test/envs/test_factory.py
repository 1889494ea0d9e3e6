"""Factory: environments by id, their limits, and error messages."""

import contextlib
import sys

import gymnasium
import pytest
from counters import CounterEnv
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import make


def test_the_vector_version_of_an_environment_is_used_if_there_is_one():
    for env_id, kind in (('CartPole-v1', CartPoleVectorEnv), ('Acrobot-v1', SyncVectorEnv)):
        env = make(EnvConfig(env_id=env_id), seed=0)
        assert isinstance(env.unwrapped, kind)
        assert env.num_envs == 16
        env.close()


@pytest.mark.parametrize(('mode', 'reason'), [
    (AutoresetMode.SAME_STEP, 'the autoreset mode SAME_STEP, which is not allowed here'),
    ('NextStep', "in its metadata autoreset_mode 'NextStep' instead of an AutoresetMode")])
def test_single_copies_are_stepped_if_the_vector_environment_resets_at_once(
        monkeypatch, capsys, mode, reason):
    def at_once(num_envs, **kwargs):
        env = SyncVectorEnv([CartPoleEnv] * num_envs)
        env.metadata = {'autoreset_mode': mode}
        return env

    monkeypatch.setitem(gymnasium.registry, 'test/AtOnce-v0', EnvSpec(
        'test/AtOnce-v0', CartPoleEnv, vector_entry_point=at_once))
    env = make(EnvConfig(env_id='test/AtOnce-v0'), seed=0, num_envs=2)
    assert capsys.readouterr().out == (
        'env_id: test/AtOnce-v0: single copies are stepped, because its vector environment has '
        f'{reason}\n')
    assert env.metadata['autoreset_mode'] is AutoresetMode.NEXT_STEP
    env.close()


def test_a_vector_environment_with_another_number_of_copies_is_refused(monkeypatch):
    monkeypatch.setitem(gymnasium.registry, 'test/Three-v0', EnvSpec(
        'test/Three-v0', CartPoleEnv,
        vector_entry_point=lambda num_envs: SyncVectorEnv([CartPoleEnv] * 3)))
    with pytest.raises(EnvError, match='^num_envs: 2 is not allowed with env_id test/Three-v0, '
                                       'whose vector environment has 3 copies: num_envs:=3$'):
        make(EnvConfig(env_id='test/Three-v0'), seed=0, num_envs=2)


def test_an_environment_that_a_function_creates_is_asked_whether_it_draws(monkeypatch):
    for create, draws in ((lambda **kwargs: CartPoleEnv(**kwargs), True),
                          (lambda render_mode: CounterEnv(), False)):
        monkeypatch.setitem(gymnasium.registry, 'test/Made-v0', EnvSpec('test/Made-v0', create))
        with contextlib.nullcontext() if draws else pytest.raises(EnvError, match='cannot render'):
            env = make(EnvConfig(env_id='test/Made-v0'), seed=0, num_envs=1, render=True)
            env.reset()
            assert env.render()[0].shape == (400, 600, 3)
            env.close()


def test_what_cannot_be_made_is_explained_in_one_line(monkeypatch):
    def refuse():
        raise ImportError('a library\n  is missing')

    monkeypatch.setitem(gymnasium.registry, 'vdl/Broken-v0', EnvSpec(
        'vdl/Broken-v0', entry_point=refuse))
    # It has its spaces only after reset().
    late = type('Late', (gymnasium.Env,), {'observation_space': None})
    monkeypatch.setitem(gymnasium.registry, 'vdl/Late-v0', EnvSpec(
        'vdl/Late-v0', entry_point=late))
    monkeypatch.setattr('vdl_ros.envs.env_modules._imported', [])
    # Each of these settings is allowed.
    large = {'num_envs': 4096, 'frame_stack': 64, 'screen_size': 210}
    for given, message in (
            ('CartPol-v1', "env_id: no environment 'CartPol-v1' on this host; the module that "),
            ('ALE/Pogn-v5', "env_id: no Atari game 'ALE/Pogn-v5'; did you mean 'ALE/Pong-v5'?"),
            ('antigravity:CartPole-v1', "env_id: 'antigravity:CartPole-v1' is not allowed: no "),
            ('GymV26Environment-v0', 'env_id: GymV26Environment-v0 is not allowed: it imports '),
            ('Pong-v4', 'env_id: Pong-v4 is not preprocessed: use an id such as ALE/Pong-v5'),
            ('vdl/Broken-v0', 'env_id: vdl/Broken-v0 cannot be created: a library is missing'),
            ('vdl/Late-v0', 'env_id: vdl/Late-v0 cannot be created: observation_space is None'),
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
    monkeypatch.setattr('vdl_ros.envs.env_modules._imported', ['my.envs'])
    with pytest.raises(EnvError, match="'CartPol-v1' on this host; env_modules my.envs have regi"):
        make(EnvConfig(env_id='CartPol-v1'), seed=0)
    with pytest.raises(EnvError, match='^env_id: vdl/Counter-v0 cannot render images$'):
        make(EnvConfig(env_id='vdl/Counter-v0'), seed=0, render=True)
    with pytest.raises(EnvError, match='num_envs: 0'):
        make(EnvConfig(), seed=0, num_envs=0)
    monkeypatch.setitem(sys.modules, 'ale_py', None)
    with pytest.raises(EnvError, match=r"^env_id: 'ALE/Pong-v5' needs ale-py: pip install ale-py"):
        make(EnvConfig(env_id='ALE/Pong-v5'), seed=0)


def test_a_simulator_of_which_a_process_holds_one_names_num_envs(monkeypatch):
    there = []

    def create(**kwargs):
        if there:
            raise RuntimeError('one emulator per process')
        there.append(CounterEnv())
        return there[0]

    monkeypatch.setitem(gymnasium.registry, 'my/One-v0', EnvSpec('my/One-v0', create))
    with pytest.raises(EnvError, match=r'per process.*; 1 of 3 copies could be created: '
                                       r'num_envs:=1$'):
        make(EnvConfig(env_id='my/One-v0'), seed=0, num_envs=3)
    # Nor is it said where fewer would not help.
    with pytest.raises(EnvError, match=r'per process \([^;]*$'):
        make(EnvConfig(env_id='my/One-v0'), seed=0, num_envs=3)
