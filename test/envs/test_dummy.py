"""Dummy environments: observation size and step time follow from the id."""

import zlib
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from vdl_ros.envs import dummy
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.dummy import MAX_BYTES, Dummy, parse
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import make, spaces

# That a sleep ends late shortens the next one, in 9 of 10 steps.
LATE = 9 * 0.0015
FORM = 'dummy/OBS<bytes>[-FPS<steps per s>[-SERIAL]]-v0'


class Clock:
    """Time that passes only in sleep, which ends late."""

    def __init__(self):
        self.now, self.slept = 100.0, []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds + 0.0015


def test_ids_are_parsed_and_invalid_ones_are_refused_with_one_line():
    for env_id, expected in (
            ('dummy/OBS28224-FPS100-v0', Dummy(28224, 0.01)),
            ('dummy/OBS8-FPS0.5-v0', Dummy(8, 2.0)),
            ('dummy/OBS8-FPS4-SERIAL-v0', Dummy(8, 0.25, together=False)),
            (f'dummy/OBS{MAX_BYTES}-v0', Dummy(MAX_BYTES))):
        assert parse(env_id) == expected
    for env_id, message in (
            ('dummy/OBS67108865-v0', 'env_id: OBS67108865 is not allowed: 1 to 67108864 bytes'),
            ('dummy/OBS8-FPS0-v0', 'env_id: FPS0 is not allowed: steps per second, at least 0.01; '
                                   'without FPS steps do not sleep'),
            *((name, f'env_id: {name!r} is not allowed: {FORM}') for name in (
                'dummy/OBS8-FPS-1-v0', 'dummy/OBS8-SERIAL-v0', 'dummy/OBS٣-v0',
                'dummy/OBS8-v0\n'))):
        with pytest.raises(EnvError) as caught:
            make(EnvConfig(env_id=env_id), seed=0)
        assert str(caught.value) == message
        assert env_id not in gymnasium.registry


def test_observations_hardly_compress_differ_and_follow_from_the_seed():
    config = EnvConfig(env_id='dummy/OBS5000-v0', time_limit=3)
    assert spaces(config) == (
        gymnasium.spaces.Box(0, 255, (5000,), np.uint8), gymnasium.spaces.Discrete(2))

    def play(seed):
        env = make(config, seed=seed, num_envs=2)
        return np.array([env.reset()[0], *(env.step(np.zeros(2, np.int64))[0] for _ in range(20))])

    seen = play(7)
    assert np.array_equal(seen, play(7))
    assert not np.array_equal(seen, play(8))
    for one in seen.swapaxes(0, 1):
        assert len(zlib.compress(one.tobytes())) > 0.99 * one.nbytes
    assert len({observation.tobytes() for step in seen for observation in step}) == 42
    # They differ even if the size divides the noise.
    for size in (1, 1_048_573):
        env = make(EnvConfig(env_id=f'dummy/OBS{size}-v0'), seed=0, num_envs=1)
        first, _ = env.reset(seed=0)
        assert not all(
            np.array_equal(first, env.step(np.zeros(1, np.int64))[0]) for _ in range(8))


@pytest.mark.parametrize(('time_limit', 'length'), [(0, 1000), (4, 4)])
def test_episodes_are_truncated_and_reward_is_one(time_limit, length):
    env = make(EnvConfig(env_id='dummy/OBS2-v0', time_limit=time_limit), seed=0, num_envs=2)
    env.reset()
    for step in range(1, 2 * length + 3):
        _, rewards, terminated, truncated, _ = env.step(np.zeros(2, np.int64))
        at = step % (length + 1)
        assert rewards.tolist() == [at != 0] * 2
        assert not terminated.any()
        assert truncated.tolist() == [at == length] * 2


@pytest.mark.parametrize(('rate', 'slept'), [
    ('', 0.0), ('-FPS100', 0.1 - LATE), ('-FPS100-SERIAL', 0.8 - LATE)])
def test_copies_sleep_together_or_in_turn(monkeypatch, rate, slept):
    clock = Clock()
    monkeypatch.setattr(dummy, 'time', SimpleNamespace(perf_counter=clock, sleep=clock.sleep))
    env = make(EnvConfig(env_id=f'dummy/OBS4{rate}-v0'), seed=0, num_envs=8)
    env.reset()
    for _ in range(10):
        env.step(np.zeros(8, np.int64))
        # Time between steps is not counted.
        clock.now += 3.0
    assert sum(clock.slept) == pytest.approx(slept)
