"""CheckedVectorEnv: the same behaviour for environments of different libraries."""

import contextlib
import ctypes
import signal
import threading
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper

from vdl_ros.common.command_line import stop_on_signals
from vdl_ros.envs import foreign
from vdl_ros.envs.checked_vector_env import CheckedVectorEnv, EnvError, EnvFailedError, seeds_for
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import make

IDS = ['CartPole-v1', 'Pendulum-v1', 'vdl/Counter-v0', 'vdl/MixedCounter-v0',
       'vdl_ros/OWI535Reach-v0', 'ALE/Pong-v5']


def roll(env, seed=None):
    """Return what 40 random steps gave: observations [T + 1], rewards, ends [T]."""
    observations = [env.reset(seed=seed)[0]]
    rewards, ends, kept = [], [], [observations[0].copy()]
    env.action_space.seed(0)
    for _ in range(40):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        observations.append(observation)
        kept.append(observation.copy())
        rewards.append(reward)
        ends.append(terminated | truncated)
    # An environment that wrote into an array it had handed out would differ from the copies.
    assert all(np.array_equal(a, b) for a, b in zip(observations, kept, strict=True))
    return np.stack(observations), np.stack(rewards), np.stack(ends)


@pytest.mark.parametrize('env_id', IDS)
def test_the_step_after_the_end_is_a_reset_without_reward_and_the_seed_decides(env_id):
    env = make(EnvConfig(env_id=env_id, time_limit=7), seed=3, num_envs=2)
    assert env.metadata['autoreset_mode'] is AutoresetMode.NEXT_STEP
    space = env.single_observation_space
    observations, rewards, ends = roll(env)
    assert observations.shape == (41, 2, *space.shape)
    assert observations.dtype == space.dtype
    assert rewards.dtype == np.float32
    assert ends.dtype == np.bool_
    assert ends.sum() >= 2 * 4
    after = np.zeros_like(ends)
    after[1:] = ends[:-1]
    assert not rewards[after].any()
    assert not ends[after].any()
    # No episode is longer than the limit: ends of one copy are at most 7 steps and a reset apart.
    assert all(np.diff(np.flatnonzero(column)).max() <= 8 for column in ends.T)
    assert not np.array_equal(observations[:, 0], observations[:, 1])
    # The first reset has the seed of the start; without one the episodes go on.
    assert not np.array_equal(observations, roll(env)[0])
    assert np.array_equal(observations, roll(env, seed=3)[0])
    env.close()


def test_seeds_are_distinct_and_not_shared_between_neighbours():
    drawn = [seed for actor in range(50) for seed in seeds_for(actor, 16)]
    assert len(set(drawn)) == 800
    assert min(drawn) >= 0
    assert max(drawn) < 2**31
    assert seeds_for(4, 2) == seeds_for(4, 16)[:2]
    with pytest.raises(EnvError, match='seed: -1'):
        seeds_for(-1, 1)


def test_an_environment_that_cannot_be_served_is_closed_and_named():
    def endless():
        env = gymnasium.make('CartPole-v1')
        env.observation_space = spaces.Text(5)
        return env

    for made, mode, message in (
            (endless, AutoresetMode.NEXT_STEP, '^observations: Text is not supported: Box, '),
            (lambda: gymnasium.make('CartPole-v1'), AutoresetMode.SAME_STEP,
             '^env_id: SyncVectorEnv: the autoreset mode SAME_STEP in its .* num_envs:=1')):
        env = SyncVectorEnv([made], autoreset_mode=mode)
        with pytest.raises(EnvError, match=message):
            CheckedVectorEnv(env, seed=0)
        assert env.closed, message


def test_observations_of_several_parts_are_one_vector_within_a_limit(monkeypatch):
    config = EnvConfig(env_id='Blackjack-v1')
    monkeypatch.setattr('vdl_ros.envs.checked_vector_env._MAX_OBSERVATION_BYTES', 2 * 45 * 4)
    env = make(config, seed=0, num_envs=2)
    observations, _ = env.reset()
    env.close()
    assert observations.shape == (2, 32 + 11 + 2)
    assert (observations.sum(1) == 3).all()
    with pytest.raises(EnvError, match='^num_envs: 3 observations of 180 bytes are not allowed'):
        make(config, seed=0, num_envs=3)


def test_wrong_actions_are_refused_before_they_can_hang_a_worker(monkeypatch):
    env = make(EnvConfig(env_id='ALE/Pong-v5'), seed=0, num_envs=2)
    env.reset()
    with monkeypatch.context() as patch:
        patch.setattr(env.env, 'step', lambda _: pytest.fail('reached the environment'))
        for actions in (np.array([0, 6]), np.array([-1, 0]), np.array([0]), np.array([0.0, 1.0]),
                        [0, 1]):
            with pytest.raises(EnvError, match='actions: '):
                env.step(actions)
    env.step(np.array([0, 1]))
    env.close()
    # Numbers may be large, but must be finite.
    env = make(EnvConfig(env_id='vdl/Reach1D-v0'), seed=0, num_envs=2)
    env.reset()
    env.step(np.array([[9.0], [-9.0]], np.float32))
    with pytest.raises(EnvError, match='finite'):
        env.step(np.array([[np.nan], [0.0]], np.float32))
    env.close()


OWN = EnvConfig(env_id='test/Own-v0')
FOUR = spaces.Box(-1.0, 1.0, (4,), np.float32)
WIDE = spaces.Box(-np.inf, np.inf, (1,), np.float32)
PARTS = spaces.Dict({'arm': FOUR, 'goal': spaces.Discrete(3)})
ZEROS = np.zeros(4, np.float32)


class Panic(BaseException):
    """As of PyO3, for code in Rust."""


class Answers(gymnasium.Env):
    """Returns from reset and step what it was given, or raises it."""

    action_space = spaces.Discrete(2)

    def __init__(
            self, space=WIDE, at_reset=([0.0], {}), at_step=([0.0], 0.0, False, False, {})):
        self.observation_space, self._at_reset, self._at_step = space, at_reset, at_step

    def reset(self, *, seed=None, options=None):
        return self._at_reset

    def step(self, action):
        if isinstance(self._at_step, BaseException):
            raise self._at_step
        return self._at_step


@pytest.fixture
def made(monkeypatch):
    """Return copies of an environment, from what creates one."""
    def made(create, count=1):
        monkeypatch.setitem(gymnasium.registry, OWN.env_id, EnvSpec(
            OWN.env_id, lambda render_mode=None: create()))
        return make(OWN, seed=0, num_envs=count)
    return made


@pytest.fixture
def answers(made):
    """Return two copies of an environment, from its space and what it returns."""
    return lambda *given: made(lambda: Answers(*given), 2)


def test_an_observation_of_another_shape_is_named_from_reset_and_from_step(answers):
    for space, wrong, reason in (
            (FOUR, ZEROS[:3], ' has the shape (3,), its space has (4,)'),
            (FOUR, [[0.0], [0.0, 1.0]],
             ' is a list of unequal parts, its space has the shape (4,)'),
            (PARTS, ZEROS, ' is of ndarray, its space is Dict'),
            (PARTS, {'arm': ZEROS, 'target': 1},
             " has the parts ['arm', 'target'], its space has ['arm', 'goal']"),
            (PARTS, {'arm': ZEROS[:, None], 'goal': 1},
             "['arm'] has the shape (4, 1), its space has (4,)")):
        with pytest.raises(EnvFailedError) as caught:
            answers(space, (wrong, {}), None).reset()
        assert str(caught.value) == f'env_id: test/Own-v0: the observation of reset(){reason}'
    # Those beyond the bounds of their space pass.
    env = answers(FOUR, ([0.0, 0.0, 0.0, 1.5], {}), (ZEROS[:3], 0.0, False, False, {}))
    assert env.reset()[0][0, 3] == 1.5
    with pytest.raises(EnvFailedError, match='^env_id: test/Own-v0: the observation of step'):
        env.step(np.zeros(2, np.int64))


@pytest.mark.filterwarnings('ignore:overflow encountered in cast')
def test_whatever_a_step_returns_or_raises_that_is_not_allowed_is_named_with_its_value(
        answers, monkeypatch):
    def of(observation=(0.0,), reward=0.0, ends=False, info=None):
        return observation, reward, ends, False, {} if info is None else info

    monkeypatch.setattr(foreign, 'hears_signals', lambda: True)
    limits = 'is not allowed: from -1e+09 to 1e+09'
    for space, outcome, reason in (
            (WIDE, of([np.nan]), f'the observation of step(): nan {limits}'),
            (WIDE, of([-np.inf]), f'the observation of step(): -inf {limits}'),
            (WIDE, of([1e300]), f'the observation of step(): inf {limits}'),
            (WIDE, of([2e9]), f'the observation of step(): 2e+09 {limits}'),
            (WIDE, of(['up']), "the observation of step(): ['up'] of <U2 is not allowed: float32"),
            (PARTS, of({'arm': ZEROS + np.nan, 'goal': 1}),
             f"the observation of step()['arm']: nan {limits}"),
            (PARTS, of({'arm': ZEROS, 'goal': 3}),
             "the observation of step()['goal']: 3 is not allowed: 0 to 2"),
            (WIDE, of(reward=np.nan), f'the reward of step(): nan {limits}'),
            (WIDE, of(reward=-1e300), f'the reward of step(): -1e+300 {limits}'),
            (WIDE, of(reward=np.ones(1)),
             'the reward of step(): array([1.]) is not allowed: one number'),
            (WIDE, of(reward='good'), "the reward of step(): 'good' is not allowed: one number"),
            (WIDE, of(reward=1j), 'the reward of step(): 1j is not allowed: one number'),
            (WIDE, of(reward=np.str_('1')), "the reward of step(): '1' is not allowed: one"),
            (WIDE, of()[:4], 'step() returns 4 values, which is not allowed: observation, reward'),
            (WIDE, of(ends=np.array([False])),
             'terminated of step(): array([False]) is not allowed: True or False'),
            (WIDE, of(ends='no'), "terminated of step(): 'no' is not allowed: True or False"),
            (WIDE, of(ends=np.nan), 'terminated of step(): nan is not allowed: True or False'),
            (WIDE, of(info=[]), 'info of step(): [] is not allowed: a dictionary'),
            *((WIDE, of(info={'is_success': value}),
               f"info['is_success']: {value} is not allowed: True or False")
              for value in (np.nan, -1)),
            (WIDE, SystemExit(0), 'step(): SystemExit: 0 (test_checked_vector_env.py'),
            (WIDE, Panic('unwrap'), 'step(): Panic: unwrap (test_checked_vector_env.py'),
            (WIDE, GeneratorExit(), 'step(): GeneratorExit (test_checked_vector_env.py'),
            # Ctrl-C sets an event.
            (WIDE, KeyboardInterrupt(), 'step(): KeyboardInterrupt (test_checked_vector_env')):
        env = answers(space, ({'arm': ZEROS, 'goal': 1} if space is PARTS else [0.0], {}), outcome)
        env.reset()
        with pytest.raises(EnvFailedError) as caught:
            env.step(np.zeros(2, np.int64))
        assert str(caught.value).startswith(f'env_id: test/Own-v0: {reason}')
    with pytest.raises(EnvFailedError, match=r'truncated of step\(\): 2 is not allowed: True'):
        env.from_environment(([[0.0]] * 2, [0.0] * 2, [0, 1], [0, 2], {}))
    ended = [[0.0]] * 2, [0.0] * 2, [False, True], [True, False], {}
    env.from_environment(ended)
    with pytest.raises(EnvFailedError, match=r'also in the step after the end of an episode'):
        env.from_environment(ended)
    # The last one; in a process that a KeyboardInterrupt is to end.
    monkeypatch.setattr(foreign, 'hears_signals', lambda: False)
    with pytest.raises(KeyboardInterrupt):
        env.step(np.zeros(2, np.int64))
    with pytest.raises(EnvFailedError, match=r'reset\(\) returns array.* allowed: observation, i'):
        answers(WIDE, np.zeros(1), None).reset()


def test_what_nobody_reads_in_an_info_may_be_anything(answers):
    infos = [{'path': np.zeros(n), 'id': n, 'is_success': success, 'is_lost': True}
             for n, success in enumerate([np.True_, 1.0, 'yes', np.array([True, False]), None])]
    outcome = [[0.0], 0.0, False, False, infos[0]]
    env = answers(WIDE, ([0.0], infos[3]), outcome)
    env.reset()
    found = []
    for outcome[4] in infos:
        info = env.step(np.zeros(2, np.int64))[4]
        found.append(info.pop('is_success', np.zeros(2)).tolist())
        assert info.keys() <= {'_is_success'}
    assert found == [[1, 1], [1, 1], [0, 0], [0, 0], [0, 0]]
    for given, kept in (([True, False], [1, 0]), (np.array([np.True_, None], object), [1, 0]),
                        ('yes', None), (['a', 'b'], None), ([True], None)):
        info = env.from_environment(([[0.0]] * 2, [0.0] * 2, [False] * 2, [False] * 2,
                                     {'is_success': given, 'final_obs': 1}))[4]
        assert info.pop('final_obs') == 1
        assert (info['is_success'].tolist() if info else None) == kept


def test_ctrl_c_ends_a_training_also_after_a_step_that_has_taken_the_signals(made):
    class Deaf(Answers):
        def reset(self, **options):
            # As a native library does, of which Python does not know.
            ctypes.CDLL(None).signal(signal.SIGINT, ctypes.c_void_p(signal.SIG_IGN))
            return super().reset(**options)

        def step(self, action):
            if (step := next(steps)) == 2:
                ctypes.CDLL(None).signal(signal.SIGINT, ctypes.c_void_p(signal.SIG_IGN))
            else:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.SIG_IGN if step else signal.SIG_DFL)
            return super().step(action)

    stop = stop_on_signals()
    numbers, steps = (signal.SIGINT, signal.SIGTERM), iter((0, 1, 2))
    before = [signal.getsignal(each) for each in numbers]
    env = made(Deaf)
    for _ in range(3):
        env.reset()
        env.step(np.zeros(1, np.int64))
    assert [signal.getsignal(each) for each in numbers] == before
    # A look at it comes now and then.
    while not stop.wait(0.1):
        signal.raise_signal(signal.SIGINT)


def test_an_environment_that_seeds_pytorch_does_not_repeat_what_is_drawn(made):
    class Seeding(Answers):
        def reset(self, **options):
            torch.manual_seed(5)
            return super().reset(**options)

    def drawn():
        torch.manual_seed(1)
        env = made(Seeding)
        return [float(torch.rand(1)) for _ in range(3) if env.reset()]

    assert len(set(drawn())) == 3
    assert drawn() == drawn()


def test_a_call_that_does_not_return_is_said_again_and_again_however_long(made, monkeypatch):
    lines, over, now = [], threading.Event(), [0.0]

    def say(line):
        lines.append(line)
        now[0] += 10.0
        if len(lines) == 13:
            over.set()

    class Slow(Answers):
        def step(self, action):
            now[0] = 5.0
            assert over.wait(60.0)
            return super().step(action)

    monkeypatch.setattr(foreign, 'monotonic', lambda: now[0])
    monkeypatch.setattr(foreign, 'say', say)
    monkeypatch.setattr(foreign, '_LOOK_S', 0.01)
    env = made(Slow)
    env.reset()
    assert not lines
    env.step(np.zeros(1, np.int64))
    assert lines[:13] == [
        f'env_id: test/Own-v0: in step() for {n} s' for n in range(5, 126, 10)]


class OneArray(gymnasium.Env):
    """Has one array for all observations, which counts the steps."""

    observation_space = WIDE
    action_space = spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.array = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        self.array[:] = 0
        return self.array, {}

    def step(self, action):
        self.array += 1
        return self.array, float(self.array[0]), False, False, {}


class ReadOnly(VectorWrapper):
    """Returns read-only arrays, as libraries such as JAX do."""

    def reset(self, **more):
        observations, info = self.env.reset(**more)
        return np.broadcast_to(observations, observations.shape), info

    def step(self, actions):
        *arrays, info = self.env.step(actions)
        return *(np.broadcast_to(each, each.shape) for each in arrays), info


def test_an_environment_may_have_one_array_for_all_observations_or_read_only_ones(monkeypatch):
    def vector(num_envs, render_mode=None):
        return SyncVectorEnv([OneArray] * num_envs, copy=False)

    for spec, wrappers in (
            ({'entry_point': OneArray}, '[{"FrameStackObservation": {"stack_size": 2}}]'),
            ({'vector_entry_point': vector}, ''),
            ({'vector_entry_point': lambda **more: ReadOnly(vector(**more))}, '')):
        monkeypatch.setitem(gymnasium.registry, OWN.env_id, EnvSpec(OWN.env_id, **spec))
        env = make(replace(OWN, env_wrappers=wrappers), seed=0, num_envs=2)
        found = [env.reset()[0], *(array for _ in range(3) for array in env.step(
            np.zeros(2, np.int64))[:4])]
        assert [each.ravel()[-1] for each in found[:1] + found[1::4]] == [0, 1, 2, 3]
        # The first of two stacked frames.
        assert found[1].ravel()[0] == (0 if wrappers else 1)
        assert [each[-1] for each in found[2::4]] == [1, 2, 3]
        assert all(each.flags.writeable for each in found)


def test_a_close_that_may_never_return_names_what_failed_before(monkeypatch):
    named = []
    monkeypatch.setattr('vdl_ros.envs.checked_vector_env.closing',
                        lambda name: named.append(name) or contextlib.nullcontext())
    for fails in (False, True):
        env = make(EnvConfig(env_id='CartPole-v1'), seed=0, num_envs=1)
        env.reset()
        if fails:
            with pytest.raises(EnvFailedError):
                env.call('step', lambda: 1 / 0)
        env.close()
    assert named[0] == 'env_id: CartPole-v1: close()'
    assert named[1].startswith('env_id: CartPole-v1: step(): ZeroDivisionError: ')
    assert named[1].endswith('; close()')
