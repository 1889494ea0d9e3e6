"""Dummy environments: observation size and step time follow from the id."""

import zlib
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from vdl_ros.envs import dummy
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.dummy import LARGEST, Dummy, DummyEnv, DummyVectorEnv, StepTime, parse
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import frames_per_observation, make, spaces


class Clock:
    """Time that passes only in sleep, which ends late."""

    def __init__(self, late=0.0):
        self.now = 100.0
        self.late = late
        self.slept = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds + self.late


@pytest.fixture
def clock(monkeypatch):
    """Stand in for the clock and the sleep of every dummy environment."""
    clock = Clock()
    monkeypatch.setattr(dummy, 'time', SimpleNamespace(
        perf_counter=clock, sleep=clock.sleep, thread_time=None))
    return clock


@pytest.mark.parametrize(('env_id', 'expected'), [
    ('dummy/OBS1-v0', Dummy(1)),
    ('dummy/OBS28224-FPS100-v0', Dummy(28224, 0.01)),
    ('dummy/OBS8-FPS0.5-v0', Dummy(8, 2.0)),
    ('dummy/OBS8-FPS4-SERIAL-v0', Dummy(8, 0.25, together=False)),
    ('dummy/OBS8-FPS4-BUSY-v0', Dummy(8, 0.25, together=False, busy=True)),
    (f'dummy/OBS{LARGEST}-v0', Dummy(LARGEST)),
])
def test_ids_are_parsed(env_id, expected):
    assert parse(env_id) == expected


FORM = 'dummy/OBS<bytes>[-FPS<steps per s>[-SERIAL|-BUSY]]-v0'


@pytest.mark.parametrize(('env_id', 'message'), [
    ('dummy/OBS0-v0', 'env_id: OBS0 is not allowed: 1 to 67108864 bytes'),
    ('dummy/OBS67108865-v0', 'env_id: OBS67108865 is not allowed: 1 to 67108864 bytes'),
    ('dummy/OBS8-FPS0-v0', 'env_id: FPS0 is not allowed: steps per second, at least 0.01; '
     'without FPS steps do not sleep'),
    *((name, f'env_id: {name!r} is not allowed: {FORM}') for name in (
        'dummy/OBS8-FPS-1-v0', 'dummy/OBSmany-v0', 'dummy/OBS8-FPSfast-v0', 'dummy/OBS-8-v0',
        'dummy/OBS8-FPSnan-v0', 'dummy/OBS8-FPS1e3-v0', 'dummy/OBS8-BUSY-v0', 'dummy/OBS8',
        'dummy/OBS8-v1', 'dummy/OBS٣-v0', 'dummy/OBS8-v0\n', 'dummy/'))])
def test_invalid_ids_are_rejected_with_one_line(env_id, message):
    with pytest.raises(EnvError) as caught:
        make(EnvConfig(env_id=env_id), seed=0)
    assert str(caught.value) == message
    assert env_id not in gymnasium.registry


def test_spaces_and_bytes():
    config = EnvConfig(env_id='dummy/OBS28224-FPS1-v0')
    observation_space, action_space = spaces(config)
    assert observation_space == gymnasium.spaces.Box(0, 255, (28224,), np.uint8)
    assert action_space == gymnasium.spaces.Discrete(2)
    assert frames_per_observation(config) == 1
    env = make(config, seed=0, num_envs=3)
    observations, _ = env.reset()
    assert observations.dtype == np.uint8
    assert observations.nbytes == 3 * 28224


def test_observations_hardly_compress_and_stay_the_callers():
    env = make(EnvConfig(env_id='dummy/OBS5000-v0'), seed=0, num_envs=2)
    seen = [env.reset()[0]]
    copies = [seen[0].copy()]
    for _ in range(20):
        seen.append(env.step(np.zeros(2, np.int64))[0])
        copies.append(seen[-1].copy())
    assert np.array_equal(seen, copies)
    for one in np.array(seen).swapaxes(0, 1):
        assert len(zlib.compress(one.tobytes())) > 0.99 * one.nbytes
    assert len({observation.tobytes() for step in seen for observation in step}) == 42


@pytest.mark.parametrize('size', [1, 1_048_573])
def test_observations_differ_even_if_the_size_divides_the_noise(size):
    env = DummyEnv(f'dummy/OBS{size}-v0')
    first, _ = env.reset(seed=0)
    others = [env.step(0)[0] for _ in range(8)]
    assert not all(np.array_equal(first, other) for other in others)


def test_same_seed_same_observations():
    def play(seed):
        env = make(EnvConfig(env_id='dummy/OBS64-v0', time_limit=3), seed=seed, num_envs=2)
        return np.array([env.reset()[0]] + [env.step(np.ones(2, np.int64))[0] for _ in range(9)])

    again = play(7)
    assert np.array_equal(again, play(7))
    assert not np.array_equal(again, play(8))
    assert not np.array_equal(again[:, 0], again[:, 1])

    single = DummyEnv('dummy/OBS64-v0')
    first, second = single.reset(seed=7)[0], single.step(0)[0]
    assert np.array_equal(single.reset(seed=7)[0], first)
    assert np.array_equal(single.step(1)[0], second)
    assert not np.array_equal(single.reset()[0], first)


@pytest.mark.parametrize(('time_limit', 'length'), [(0, 1000), (4, 4)])
@pytest.mark.parametrize('vectorised', [True, False])
def test_episodes_are_truncated_and_reward_is_one(time_limit, length, vectorised):
    config = EnvConfig(env_id='dummy/OBS2-v0', time_limit=time_limit)
    if vectorised:
        env = make(config, seed=0, num_envs=2)
        assert isinstance(env.unwrapped, DummyVectorEnv)
    else:
        dummy.register(config.env_id)
        kwargs = {'max_episode_steps': time_limit} if time_limit else {}
        env = gymnasium.make_vec(config.env_id, 2, vectorization_mode='sync', **kwargs)
    env.reset()
    for _ in range(2):
        for step in range(1, length + 1):
            _, rewards, terminated, truncated, _ = env.step(np.zeros(2, np.int64))
            assert rewards.tolist() == [1, 1]
            assert not terminated.any()
            assert truncated.tolist() == [step == length] * 2
        _, rewards, terminated, truncated, _ = env.step(np.zeros(2, np.int64))
        assert not rewards.any()
        assert not (terminated | truncated).any()
    env.close()


def test_gymnasiums_checker_accepts_the_environment():
    dummy.register('dummy/OBS2-v0')
    env = gymnasium.make('dummy/OBS2-v0', disable_env_checker=False)
    env.reset(seed=0)
    assert env.step(1)[1:] == (1.0, False, False, {})


def test_delays_of_sleeps_do_not_add_up():
    clock = Clock(late=0.0015)
    step_time = StepTime(0.002, clock, clock.sleep)
    for _ in range(1000):
        step_time.begin()
        step_time.finish()
    assert clock.now - 100.0 == pytest.approx(1000 * 0.002, abs=0.002)


def test_a_late_step_shortens_the_next_one_at_most():
    clock = Clock()
    step_time = StepTime(0.01, clock, clock.sleep)
    step_time.begin()
    clock.now += 5.0
    step_time.finish()
    assert clock.slept == []
    for _ in range(3):
        step_time.begin()
        step_time.finish()
    assert sum(clock.slept) == pytest.approx(2 * 0.01)


def test_time_between_steps_is_not_counted(clock):
    env = DummyEnv('dummy/OBS4-FPS100-v0')
    env.reset(seed=0)
    for _ in range(5):
        env.step(0)
        clock.now += 3.0
    assert clock.slept == pytest.approx([0.01] * 5)


@pytest.mark.parametrize(('env_id', 'seconds'), [
    ('dummy/OBS4-v0', 0.0), ('dummy/OBS4-FPS100-v0', 0.01), ('dummy/OBS4-FPS100-SERIAL-v0', 0.08)])
def test_copies_sleep_together_or_in_turn(clock, env_id, seconds):
    env = make(EnvConfig(env_id=env_id), seed=0, num_envs=8)
    env.reset()
    for _ in range(10):
        env.step(np.zeros(8, np.int64))
    assert sum(clock.slept) == pytest.approx(10 * seconds)


def test_busy_steps_use_the_processor_time_of_their_id(monkeypatch):
    spent = iter(np.arange(0.0, 10.0, 0.001))
    last = []

    def thread_time():
        last.append(next(spent))
        return last[-1]

    monkeypatch.setattr(dummy, 'time', SimpleNamespace(
        perf_counter=None, sleep=None, thread_time=thread_time))
    env = make(EnvConfig(env_id='dummy/OBS4-FPS100-BUSY-v0'), seed=0, num_envs=8)
    env.reset()
    for _ in range(10):
        env.step(np.zeros(8, np.int64))
    assert last[-1] == pytest.approx(10 * 8 * 0.01, abs=0.02)
